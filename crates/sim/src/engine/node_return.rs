//! Machines that were unreachable come back: booted with nothing running, or reconnected with everything still running.
//!
//! ```text
//! reconnects ─▶ stops what is no longer assigned to it ─▶ ready ─▶ reports what runs, starts what is missing
//! ```
//!
//! Owns: that order. Must not touch: which generations are still assigned; the state says so.
//! Invariant: a node becomes ready only when nothing runs on it that was placed elsewhere meanwhile.

use longshore_model::{
    NodeName, ReplicaKey, ReplicaState, Slot,
    replica::{DesiredState, Details, Replica},
};

use super::Engine;
use crate::virtual_node::{DesiredContainer, Link, Outbox, StatusReport, VirtualNode};

impl Engine<'_> {
    /// Boots a node that is off, with nothing running.
    pub(super) fn boot(&mut self, node: &NodeName) {
        let Some(virtual_node) = self.virtual_nodes.get_mut(node).filter(|virtual_node| !virtual_node.is_on()) else {
            return;
        };
        virtual_node.boot();
        if virtual_node.link() != Link::Cut {
            self.reconnect(node);
        }
    }

    /// Cuts the link of a node in both directions. Its containers run on.
    pub(super) fn isolate(&mut self, node: &NodeName) {
        if let Some(virtual_node) = self.virtual_nodes.get_mut(node) {
            virtual_node.set_link(Link::Cut);
        }
    }

    /// Restores the link of a node that was cut off.
    pub(super) fn heal(&mut self, node: &NodeName) {
        let Some(virtual_node) =
            self.virtual_nodes.get_mut(node).filter(|virtual_node| virtual_node.link() == Link::Cut)
        else {
            return;
        };
        virtual_node.set_link(Link::Up);
        if virtual_node.is_on() {
            self.reconnect(node);
        }
    }

    pub(super) fn reconnect(&mut self, node: &NodeName) {
        let desired = self.desired_on(node);
        let mut out = Outbox { reports: self.missed_stops(node), ..Outbox::default() };
        let Some(virtual_node) = self.virtual_nodes.get_mut(node) else { return };
        virtual_node.set_link(Link::Reconnecting);
        virtual_node.connect(self.state.index());
        virtual_node.stop_undesired(&desired, self.now, &mut out);
        self.flush(node, out);
        self.apply_commands();
        self.ready_if_clean(node);
    }

    /// Sets a reconnecting node to ready once it has stopped everything that is not assigned to it.
    pub(super) fn ready_if_clean(&mut self, node: &NodeName) {
        let clean = |virtual_node: &&mut VirtualNode| {
            virtual_node.link() == Link::Reconnecting && !virtual_node.is_stopping_any()
        };
        let Some(virtual_node) = self.virtual_nodes.get_mut(node).filter(clean) else { return };
        virtual_node.set_link(Link::Up);
        let health = virtual_node.reported_health();
        self.set_health(node.clone(), health);
        let desired = self.desired_on(node);
        let mut out = Outbox::default();
        if let Some(virtual_node) = self.virtual_nodes.get_mut(node) {
            virtual_node.adopt(&desired, self.now, &mut out);
        }
        self.flush(node, out);
        self.apply_commands();
    }

    /// What a node should be running. Work that had ended and is gone from the node waits for a decision of the
    /// scheduler; the agent starts the rest by itself.
    pub(super) fn desired_on(&self, node: &NodeName) -> Vec<DesiredContainer> {
        let Some(virtual_node) = self.virtual_nodes.get(node) else { return Vec::new() };
        let desired = self.replicas_on(node, DesiredState::Run).filter_map(|(key, replica)| {
            let runs = virtual_node.has_container(&key) || agent_starts_again(replica.state);
            let spec = self.spec_of(&key.group, replica.assignment.reservation.revision).filter(|_| runs)?;
            Some(DesiredContainer { key, attempt: replica.attempt, spec })
        });
        desired.collect()
    }

    /// `stopped` reports for replicas that should stop and are already gone from the node.
    fn missed_stops(&self, node: &NodeName) -> Vec<StatusReport> {
        let Some(virtual_node) = self.virtual_nodes.get(node) else { return Vec::new() };
        self.stop_reports(node).into_iter().filter(|report| !virtual_node.has_container(&report.key)).collect()
    }

    /// A `stopped` report for every replica on a node that should stop, to be sent once it is gone.
    pub(super) fn stop_reports(&self, node: &NodeName) -> Vec<StatusReport> {
        let stopping = self.replicas_on(node, DesiredState::Stop);
        let stopped = |(key, replica): (ReplicaKey, &Replica)| StatusReport {
            key,
            attempt: replica.attempt,
            placed_at: Some(replica.assignment.placed_at),
            state: ReplicaState::Stopped,
            code: None,
            details: Details::new(),
        };
        stopping.map(stopped).collect()
    }

    fn replicas_on(&self, node: &NodeName, desired: DesiredState) -> impl Iterator<Item = (ReplicaKey, &Replica)> {
        let here = self.state.replicas().filter(move |(_, _, replica)| replica.assignment.node == *node);
        here.filter(move |(_, _, replica)| replica.desired == desired)
            .map(|(group, slot, replica): (_, &Slot, _)| (group.replica(&slot.key, replica.generation), replica))
    }
}

const fn agent_starts_again(state: ReplicaState) -> bool {
    match state {
        ReplicaState::Failed | ReplicaState::Completed | ReplicaState::Stopped => false,
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Degraded
        | ReplicaState::Draining
        | ReplicaState::Lost => true,
    }
}
