//! A machine that was out of sight compares what it has with what it should have.
//!
//! Owns: which containers it lets go of, which it goes on with, and which it starts.
//! Invariant: what is no longer its own is gone before anything is said of the rest.

use std::sync::Arc;

use longshore_model::{Attempt, ServiceSpec, Time};

use super::{ContainerId, Machine, Outbox};

/// What a machine should be running.
#[derive(Clone, Debug)]
pub(crate) struct Due {
    pub(crate) id: ContainerId,
    pub(crate) attempt: Attempt,
    pub(crate) spec: Arc<ServiceSpec>,
}

impl Machine {
    /// Lets go of every container that is not among those due; a container that is gone already was let go of before.
    pub(crate) fn let_go_of_others(&mut self, due: &[Due], now: Time, out: &mut Outbox) {
        let is_due = |id: &ContainerId| due.iter().any(|due| due.id == *id);
        let others: Vec<(ContainerId, Attempt)> = self
            .containers
            .iter()
            .filter(|(id, container)| !is_due(id) && !container.is_leaving())
            .map(|(id, container)| (id.clone(), container.attempt()))
            .collect();
        for (id, attempt) in others {
            self.stop(&id, attempt, now, out);
        }
    }

    /// Whether something is still on its way out.
    pub(crate) fn is_letting_go(&self) -> bool {
        self.containers.values().any(super::container::Container::is_leaving)
    }

    /// Whether it knows a container at all.
    pub(crate) fn has(&self, id: &ContainerId) -> bool {
        self.containers.contains_key(id)
    }

    /// Goes on with what it has, brings up to date what it missed an order for, and starts the rest.
    pub(crate) fn adopt(&mut self, due: &[Due], now: Time, out: &mut Outbox) {
        for Due { id, attempt, spec } in due {
            match self.containers.get(id).map(super::container::Container::attempt) {
                Some(known) if known == *attempt => self.repeat(id, out),
                Some(_) => self.restart(id.clone(), *attempt, spec, now, out),
                None => self.run(id, *attempt, spec, now, out),
            }
        }
    }

    /// Containers with a process, for whoever audits what really runs.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &ContainerId> {
        self.containers.iter().filter(|(_, container)| container.has_process()).map(|(id, _)| id)
    }
}
