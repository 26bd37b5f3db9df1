//! Machines that were out of sight come back: booted with nothing running, or cut off with everything still running.
//!
//! ```text
//! heard of again ─▶ lets go of what is no longer its own ─▶ ready ─▶ says what runs, starts what is missing
//! ```
//!
//! Owns: that order. Must not touch: which generations are still wanted; the state says so.
//! Invariant: a node becomes ready only when nothing runs on it that was given to another.

use longshore_model::{Attempt, NodeName, ReplicaState, replica::Wanted};

use super::Engine;
use crate::machine::{ContainerId, Due, Link, Machine, Outbox, Power, Report};

impl Engine<'_> {
    /// A machine boots with nothing running.
    pub(super) fn boot(&mut self, node: &NodeName) {
        let Some(machine) = self.machines.get_mut(node).filter(|machine| machine.power() == Power::Off) else { return };
        machine.boot();
        if machine.link() != Link::Cut {
            self.hear_again(node);
        }
    }

    /// No message comes or goes any more; the machine does not notice.
    pub(super) fn isolate(&mut self, node: &NodeName) {
        if let Some(machine) = self.machines.get_mut(node) {
            machine.set_link(Link::Cut);
        }
    }

    /// Messages come and go again.
    pub(super) fn heal(&mut self, node: &NodeName) {
        let Some(machine) = self.machines.get_mut(node).filter(|machine| machine.link() == Link::Cut) else { return };
        machine.set_link(Link::Up);
        if machine.power() == Power::On {
            self.hear_again(node);
        }
    }

    pub(super) fn hear_again(&mut self, node: &NodeName) {
        let due = self.due_on(node);
        let mut out = Outbox { reports: self.ended_unseen(node), ..Outbox::default() };
        let Some(machine) = self.machines.get_mut(node) else { return };
        machine.set_link(Link::Returning);
        machine.connect(self.state.index());
        machine.let_go_of_others(&due, self.now, &mut out);
        self.send(node, out);
        self.deliver();
        self.welcome(node);
    }

    /// A machine that is coming back is ready once it has let go of everything that is not its own.
    pub(super) fn welcome(&mut self, node: &NodeName) {
        let clean = |machine: &&mut Machine| machine.link() == Link::Returning && !machine.is_letting_go();
        let Some(machine) = self.machines.get_mut(node).filter(clean) else { return };
        machine.set_link(Link::Up);
        let fitness = machine.fitness();
        self.set_health(node.clone(), fitness);
        let due = self.due_on(node);
        let mut out = Outbox::default();
        if let Some(machine) = self.machines.get_mut(node) {
            machine.adopt(&due, self.now, &mut out);
        }
        self.send(node, out);
        self.deliver();
    }

    /// What a machine should be running. Work that had ended and left no trace waits for the scheduler's word; the rest
    /// is the agent's to bring back.
    pub(super) fn due_on(&self, node: &NodeName) -> Vec<Due> {
        let Some(machine) = self.machines.get(node) else { return Vec::new() };
        let here = self.state.replicas().filter(|(_, _, replica)| replica.assignment.node == *node);
        let due = here.filter_map(|(group, slot, replica)| {
            let id = ContainerId { group: group.clone(), slot: slot.key.clone(), generation: replica.generation };
            let wanted = replica.wanted == Wanted::Run && (machine.has(&id) || restarts_by_itself(replica.state));
            let spec = self.spec_of(group, replica.assignment.terms.revision).filter(|_| wanted)?;
            Some(Due { id, attempt: replica.attempt, spec })
        });
        due.collect()
    }

    /// What shall stop and is not there any more.
    fn ended_unseen(&self, node: &NodeName) -> Vec<Report> {
        let Some(machine) = self.machines.get(node) else { return Vec::new() };
        self.to_be_stopped(node).into_iter().filter(|report| !machine.has(&report.id)).collect()
    }

    /// What a machine will have to say of all that shall stop, once it is gone.
    pub(super) fn to_be_stopped(&self, node: &NodeName) -> Vec<Report> {
        let here = self.state.replicas().filter(|(_, _, replica)| replica.assignment.node == *node);
        let shall_stop = here.filter(|(_, _, replica)| replica.wanted == Wanted::Stop);
        let reports = shall_stop.map(|(group, slot, replica)| {
            let id = ContainerId { group: group.clone(), slot: slot.key.clone(), generation: replica.generation };
            stopped(id, replica.attempt)
        });
        reports.collect()
    }
}

fn stopped(id: ContainerId, attempt: Attempt) -> Report {
    let details = longshore_model::replica::Details::new();
    Report { id, attempt, state: ReplicaState::Stopped, code: None, details }
}

const fn restarts_by_itself(state: ReplicaState) -> bool {
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
