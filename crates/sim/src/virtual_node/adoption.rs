//! Compares the containers of a node with those it should have.
//!
//! Owns: which containers are stopped, which run on, and which are started.
//! Invariant: what is no longer assigned to the node is gone before anything is reported of the rest.

use std::sync::Arc;

use longshore_model::{Attempt, ReplicaKey, ServiceSpec, Time};

use super::{Outbox, VirtualNode, container::Container};

/// A container that a node should be running.
#[derive(Clone, Debug)]
pub(crate) struct DesiredContainer {
    pub(crate) key: ReplicaKey,
    pub(crate) attempt: Attempt,
    pub(crate) spec: Arc<ServiceSpec>,
}

impl VirtualNode {
    /// Stops every container that is not desired, except those that are being removed already.
    pub(crate) fn stop_undesired(&mut self, desired: &[DesiredContainer], now: Time, out: &mut Outbox) {
        let is_desired = |key: &ReplicaKey| desired.iter().any(|container| container.key == *key);
        let others: Vec<(ReplicaKey, Attempt)> = self
            .containers
            .iter()
            .filter(|(key, container)| !is_desired(key) && !container.is_being_removed())
            .map(|(key, container)| (key.clone(), container.attempt()))
            .collect();
        for (key, attempt) in others {
            self.stop(&key, attempt, now, out);
        }
    }

    /// Whether a container is still being removed.
    pub(crate) fn is_stopping_any(&self) -> bool {
        self.containers.values().any(Container::is_being_removed)
    }

    pub(crate) fn has_container(&self, key: &ReplicaKey) -> bool {
        self.containers.contains_key(key)
    }

    /// Reports containers that run the desired attempt, restarts those with another attempt, and starts missing ones.
    pub(crate) fn adopt(&mut self, desired: &[DesiredContainer], now: Time, out: &mut Outbox) {
        for DesiredContainer { key, attempt, spec } in desired {
            match self.containers.get(key).map(Container::attempt) {
                Some(known) if known == *attempt => self.resend_last_report(key, out),
                Some(_) => self.restart(key.clone(), *attempt, spec, now, out),
                None => self.run(key, *attempt, spec, now, out),
            }
        }
    }

    /// Containers that have a process, for the invariants.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &ReplicaKey> {
        self.containers.iter().filter(|(_, container)| container.has_process()).map(|(key, _)| key)
    }
}
