//! What machines make of events, and what becomes of their reports.
//!
//! Owns: the way from an event to the machine it concerns and back.
//! Invariant: a machine that is off or cut off hears nothing, and nothing is heard of it.

use std::sync::Arc;

use longshore_model::{
    Attempt, Event, GroupKey, NodeName, ReplicaState, RevisionNumber, ServiceSpec, SlotKey, replica::Replica,
};

use super::{Engine, Tick};
use crate::{
    machine::{Alarm, ContainerId, Felt, Link, Machine, Outbox, Power},
    scenario::Mishap,
};

impl Engine<'_> {
    pub(super) fn react(&mut self, event: &Event) {
        match event {
            Event::NodeChanged(node) => self.plug_in(node),
            Event::NodeGone(node) => {
                self.machines.remove(node);
            }
            Event::Placed { group, slot, generation, assignment } => {
                let id = ContainerId { group: group.clone(), slot: slot.clone(), generation: *generation };
                self.start(&assignment.node, &id, Attempt(0), assignment.terms.revision);
            }
            Event::Stopping { group, slot, generation } => {
                let id = ContainerId { group: group.clone(), slot: slot.clone(), generation: *generation };
                self.order(&id, |machine, replica, _, now, out| machine.stop(&id, replica.attempt, now, out));
            }
            Event::Restarting { group, slot, generation, attempt } => {
                let id = ContainerId { group: group.clone(), slot: slot.clone(), generation: *generation };
                self.order(&id, |machine, _, spec, now, out| machine.restart(id.clone(), *attempt, spec, now, out));
            }
            Event::Configured(_)
            | Event::NodeRemoved { .. }
            | Event::NodeForgotten(_)
            | Event::EvacuationChanged(_)
            | Event::GroupChanged { .. }
            | Event::GroupRolls { .. }
            | Event::RolloutChanged { .. }
            | Event::DeploymentGone { .. }
            | Event::SlotStepped { .. }
            | Event::GroupUnwanted(_)
            | Event::GroupGone(_)
            | Event::SlotOpened { .. }
            | Event::SlotWaits { .. }
            | Event::SlotClosing { .. }
            | Event::SlotGone { .. }
            | Event::Rescheduled { .. }
            | Event::Collected { .. }
            | Event::Observed { .. }
            | Event::Released { .. }
            | Event::FailureCounted { .. }
            | Event::Rebalanced(_)
            | Event::EvenOutAsked(_)
            | Event::EvenedOut(_)
            | Event::AddressResting { .. }
            | Event::VolumeMade(_)
            | Event::VolumeGone(_)
            | Event::SecretSet { .. }
            | Event::SecretGone { .. }
            | Event::AccessChanged
            | Event::QuotaSet { .. } => {}
        }
    }

    /// A generation begins on its machine.
    pub(super) fn start(&mut self, node: &NodeName, id: &ContainerId, attempt: Attempt, revision: RevisionNumber) {
        if self.owe(node) {
            return;
        }
        let Some(spec) = self.spec_of(&id.group, revision) else { return };
        let Some(machine) = self.machines.get_mut(node).filter(|machine| machine.is_reachable()) else { return };
        let mut out = Outbox::default();
        machine.run(id, attempt, &spec, self.now, &mut out);
        self.send(node, out);
    }

    /// An order about a generation that is on a machine already.
    fn order(
        &mut self,
        id: &ContainerId,
        carry_out: impl FnOnce(&mut Machine, &Replica, &ServiceSpec, longshore_model::Time, &mut Outbox),
    ) {
        let Some(replica) = self.replica(&id.group, &id.slot, id).cloned() else { return };
        let Some(spec) = self.spec_of(&id.group, replica.assignment.terms.revision) else { return };
        let node = replica.assignment.node.clone();
        if self.owe(&node) {
            return;
        }
        let Some(machine) = self.machines.get_mut(&node).filter(|machine| machine.is_reachable()) else { return };
        let mut out = Outbox::default();
        carry_out(machine, &replica, &spec, self.now, &mut out);
        self.send(&node, out);
    }

    /// Something happens to a replica's newest generation. Where it has no process there is nothing it could happen to,
    /// and the timeline says so.
    pub(super) fn befall(&mut self, replica: &str, mishap: Mishap) {
        let found = self.newest(replica);
        let mut out = Outbox::default();
        let felt = found.as_ref().map_or(Felt::No, |(id, node)| {
            let machine = self.machines.get_mut(node).filter(|machine| machine.power() == Power::On);
            machine.map_or(Felt::No, |machine| machine.befall(id, mishap, &mut out))
        });
        match (felt, found) {
            (Felt::Yes, Some((_, node))) => self.send(&node, out),
            (Felt::No | Felt::Yes, _) => self.chronicle.in_vain(self.now, replica),
        }
        self.deliver();
    }

    /// The newest generation of a replica, by its printed id, and its node.
    fn newest(&self, replica: &str) -> Option<(ContainerId, NodeName)> {
        let slots = self.state.groups().flat_map(|(key, group)| group.slots.values().map(move |slot| (key, slot)));
        let (key, slot) = slots.into_iter().find(|(key, slot)| slot.key.printed(key) == replica)?;
        let newest = slot.replicas.last()?;
        let id = ContainerId { group: key.clone(), slot: slot.key.clone(), generation: newest.generation };
        Some((id, newest.assignment.node.clone()))
    }

    pub(super) fn alarm(&mut self, node: &NodeName, boots: u32, alarm: Alarm) {
        let Some(machine) = self.machines.get_mut(node).filter(|machine| machine.boots() == boots) else { return };
        let mut out = Outbox::default();
        machine.ring(alarm, self.now, &mut out);
        self.send(node, out);
        self.deliver();
        self.welcome(node);
    }

    /// Reports go to the control plane, alarms into the queue. What is said while nobody hears it is said again later.
    pub(super) fn send(&mut self, node: &NodeName, mut out: Outbox) {
        let Some((boots, link)) = self.machines.get(node).map(|machine| (machine.boots(), machine.link())) else {
            return;
        };
        match link {
            Link::Up => {}
            Link::Returning => out.reports.retain(|report| report.state == ReplicaState::Stopped),
            Link::Cut => out.reports.clear(),
        }
        for (at, alarm) in out.alarms {
            self.queue.push(at, Tick::Alarm { node: node.clone(), boots, alarm });
        }
        for report in out.reports {
            // A machine that is coming back is being talked to this very moment; nothing of that is lost.
            let said = if link == Link::Up { self.post_sighting(node, report) } else { Some(report) };
            if let Some(report) = said {
                self.take_in(report, None);
            }
        }
    }

    pub(super) fn replica(&self, group: &GroupKey, slot: &SlotKey, id: &ContainerId) -> Option<&Replica> {
        let slot = self.state.group(group)?.slots.get(slot)?;
        slot.replicas.iter().find(|replica| replica.generation == id.generation)
    }

    /// The service as the revision has it; the newest where the revision is no longer kept.
    pub(super) fn spec_of(&self, group: &GroupKey, revision: RevisionNumber) -> Option<Arc<ServiceSpec>> {
        let deployment = self.state.deployment(&group.namespace, &group.deployment)?;
        let kept = deployment.revisions.iter().find(|kept| kept.number == revision);
        let spec = kept.and_then(|kept| kept.spec.services.get(&group.service));
        spec.or_else(|| self.state.group(group).map(|group| &group.spec)).cloned()
    }
}
