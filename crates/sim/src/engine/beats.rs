//! Machines go off, and the control plane notices by their heartbeats.
//!
//! Owns: detection, from missed beats to `suspect` and `down`.
//! Must not touch: what a lost node leads to.
//! Invariant: all nodes beat in phase, at whole multiples of the interval.

use longshore_model::{Command, Health, Node, NodeName};

use super::{Engine, Tick, network::Network};
use crate::machine::{Beat, Link, Power};

impl Engine<'_> {
    pub(super) fn beat(&mut self) {
        let every = self.state.config().beat_every(self.machines.len());
        self.queue.push(self.now.after(every), Tick::Beat);
        let (suspect, down) = (self.state.config().suspect_after_missed, self.state.config().down_after_missed);
        let mut changes: Vec<(NodeName, Health)> = Vec::new();
        let mut returning: Vec<NodeName> = Vec::new();
        for (name, machine) in &mut self.machines {
            let missed = machine.beat(self.network.as_mut().map_or(Beat::Heard, Network::beat));
            let known = self.state.node(name).map(|node| node.health);
            let health = match known {
                // Called down for beats that were lost, it has never been away; what it runs may no longer be its own.
                Some(Health::Down) if missed == 0 && machine.link() == Link::Up => {
                    returning.push(name.clone());
                    continue;
                }
                // One that is coming back says so itself, once it has let go of what is not its own.
                Some(Health::Suspect | Health::Down) if missed == 0 && machine.link() == Link::Up => machine.fitness(),
                Some(Health::Ready | Health::Degraded) if missed >= suspect => Health::Suspect,
                Some(Health::Suspect) if missed >= down => Health::Down,
                Some(_) | None => continue,
            };
            changes.push((name.clone(), health));
        }
        for (node, health) in changes {
            self.set_health(node, health);
        }
        for node in returning {
            self.hear_again(&node);
        }
    }

    pub(super) fn set_health(&mut self, node: NodeName, health: Health) {
        self.tell(Command::SetHealth { node, health, at: self.clock() });
    }

    pub(super) fn fail(&mut self, node: &NodeName) {
        if let Some(machine) = self.machines.get_mut(node).filter(|machine| machine.power() == Power::On) {
            machine.power_off();
        }
    }

    pub(super) fn degrade(&mut self, node: &NodeName) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        machine.degrade();
        // Out of sight it cannot say so; it says so when it is heard of again, unless it has booted by then.
        if machine.is_reachable() {
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
