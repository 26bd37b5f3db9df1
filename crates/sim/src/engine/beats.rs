//! Machines go off and on, and the control plane notices by their heartbeats.
//!
//! Owns: detection, from missed beats to `suspect` and `down`, and what a machine says when it boots.
//! Must not touch: what a lost node leads to.
//! Invariant: all nodes beat in phase, at whole multiples of the interval.

use longshore_model::{Command, Health, Node, NodeName, ReplicaState, replica::Wanted};

use super::{Engine, Tick};
use crate::machine::{ContainerId, Outbox, Power, Report};

impl Engine<'_> {
    pub(super) fn beat(&mut self) {
        self.queue.push(self.now.after(self.state.config().heartbeat_interval), Tick::Beat);
        let (suspect, down) = (self.state.config().suspect_after_missed, self.state.config().down_after_missed);
        let mut changes: Vec<(NodeName, Health)> = Vec::new();
        for (name, machine) in &mut self.machines {
            let missed = machine.beat();
            let known = self.state.node(name).map(|node| node.health);
            let health = match known {
                Some(Health::Suspect | Health::Down) if missed == 0 => machine.fitness(),
                Some(_) if missed == suspect => Health::Suspect,
                Some(_) if missed == down => Health::Down,
                Some(_) | None => continue,
            };
            changes.push((name.clone(), health));
        }
        for (node, health) in changes {
            self.set_health(node, health);
        }
    }

    fn set_health(&mut self, node: NodeName, health: Health) {
        self.tell(Command::SetHealth { node, health, at: self.now });
    }

    pub(super) fn fail(&mut self, node: &NodeName) {
        if let Some(machine) = self.machines.get_mut(node).filter(|machine| machine.power() == Power::On) {
            machine.power_off();
        }
    }

    /// A machine that boots first lets go of what is no longer its own, then takes work, then goes on with what is.
    pub(super) fn boot(&mut self, node: &NodeName) {
        let Some(machine) = self.machines.get_mut(node).filter(|machine| machine.power() == Power::Off) else { return };
        machine.boot();
        let mut ended = Outbox::default();
        let mut wanted = Vec::new();
        for (group, slot, replica) in self.state.replicas().filter(|(_, _, replica)| replica.assignment.node == *node) {
            let id = ContainerId { group: group.clone(), slot: slot.key.clone(), generation: replica.generation };
            match replica.wanted {
                Wanted::Stop => ended.reports.push(stopped(id, replica.attempt)),
                Wanted::Run if restarts_by_itself(replica.state) => {
                    wanted.push((id, replica.attempt, replica.assignment.terms.revision));
                }
                Wanted::Run => {}
            }
        }
        self.send(node, ended);
        self.set_health(node.clone(), Health::Ready);
        for (id, attempt, revision) in wanted {
            self.start(node, &id, attempt, revision);
        }
        self.deliver();
    }

    pub(super) fn degrade(&mut self, node: &NodeName) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        machine.degrade();
        // A machine that is off cannot say so; it says so with its next beat if it is degraded again by then.
        if machine.power() == Power::On {
            self.set_health(node.clone(), Health::Degraded);
        }
    }

    /// A node joined: there is a machine behind it.
    pub(super) fn plug_in(&mut self, node: &Node) {
        let behaviours = std::sync::Arc::clone(&self.behaviours);
        self.machines
            .entry(node.name.clone())
            .or_insert_with(|| crate::machine::Machine::new(node.name.clone(), behaviours));
    }
}

fn stopped(id: ContainerId, attempt: longshore_model::Attempt) -> Report {
    let details = longshore_model::replica::Details::new();
    Report { id, attempt, state: ReplicaState::Stopped, code: None, details }
}

/// Work that had ended waits for the scheduler's word; the rest is the agent's to bring back.
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
