//! What events change on nodes, and how node reports become commands.
//!
//! Owns: the way from an event to the node it concerns, and from a node's outbox back to the state.
//! Invariant: a node that is off or cut off receives nothing, and nothing of it is received.

use std::sync::Arc;

use longshore_model::{
    Attempt, Event, GroupKey, NodeName, ReplicaKey, ReplicaState, RevisionNumber, ServiceSpec, Time, replica::Replica,
};

use super::{Engine, Tick};
use crate::{
    scenario::InjectedFault,
    virtual_node::{Link, Outbox, Timer, VirtualNode},
};

impl Engine<'_> {
    pub(super) fn notify_virtual_nodes(&mut self, event: &Event) {
        match event {
            Event::NodeChanged(node) => self.add_virtual_node(node),
            Event::NodeGone(node) => {
                self.virtual_nodes.remove(node);
            }
            Event::Placed { key, assignment } => {
                self.start(&assignment.node, key, Attempt(0), assignment.reservation.revision);
            }
            Event::Stopping(key) => {
                self.on_virtual_node_of(key, |virtual_node, replica, _, now, out| {
                    virtual_node.stop(key, replica.attempt, now, out);
                });
            }
            Event::Restarting { key, attempt } => {
                self.on_virtual_node_of(key, |virtual_node, _, spec, now, out| {
                    virtual_node.restart(key.clone(), *attempt, spec, now, out);
                });
            }
            Event::Configured(_)
            | Event::NodeRemoved { .. }
            | Event::NodeForgotten(_)
            | Event::EvacuationChanged(_)
            | Event::GroupChanged { .. }
            | Event::GroupRolloutChanged { .. }
            | Event::RolloutChanged { .. }
            | Event::DeploymentGone { .. }
            | Event::DeploymentStopped { .. }
            | Event::SlotStartsAgain(_)
            | Event::DeploymentStarted { .. }
            | Event::SlotStepped { .. }
            | Event::GroupRemoved(_)
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
            | Event::EvenOutRequested(_)
            | Event::EvenOutDone(_)
            | Event::AddressCoolingDown { .. }
            | Event::VolumeCreated(_)
            | Event::VolumeGone(_)
            | Event::SecretSet { .. }
            | Event::SecretGone { .. }
            | Event::AccessChanged
            | Event::QuotaSet { .. } => {}
        }
    }

    /// Starts a new generation on its node.
    fn start(&mut self, node: &NodeName, key: &ReplicaKey, attempt: Attempt, revision: RevisionNumber) {
        if self.mark_feed_due(node) {
            return;
        }
        let Some(spec) = self.spec_of(&key.group, revision) else { return };
        let Some(virtual_node) = self.virtual_nodes.get_mut(node).filter(|virtual_node| virtual_node.is_reachable())
        else {
            return;
        };
        let mut out = Outbox::default();
        virtual_node.run(key, attempt, &spec, self.now, &mut out);
        self.flush(node, out);
    }

    /// Runs `action` on the node that a generation was placed on, if it is reachable.
    fn on_virtual_node_of(
        &mut self,
        key: &ReplicaKey,
        action: impl FnOnce(&mut VirtualNode, &Replica, &ServiceSpec, Time, &mut Outbox),
    ) {
        let Some(replica) = self.replica(key).cloned() else { return };
        let Some(spec) = self.spec_of(&key.group, replica.assignment.reservation.revision) else { return };
        let node = replica.assignment.node.clone();
        if self.mark_feed_due(&node) {
            return;
        }
        let Some(virtual_node) = self.virtual_nodes.get_mut(&node).filter(|virtual_node| virtual_node.is_reachable())
        else {
            return;
        };
        let mut out = Outbox::default();
        action(virtual_node, &replica, &spec, self.now, &mut out);
        self.flush(&node, out);
    }

    /// Injects a fault into a replica's newest generation. Without a process it has no effect, and the timeline says so.
    pub(super) fn inject_fault(&mut self, replica: &str, fault: InjectedFault) {
        let mut out = Outbox::default();
        let hit = self.newest_generation(replica).filter(|(key, node)| {
            let virtual_node = self.virtual_nodes.get_mut(node).filter(|virtual_node| virtual_node.is_on());
            virtual_node.is_some_and(|virtual_node| virtual_node.inject_fault(key, fault, &mut out))
        });
        match hit {
            Some((_, node)) => self.flush(&node, out),
            None => self.timeline.no_effect(self.now, replica),
        }
        self.apply_commands();
    }

    /// The newest generation of a replica, found by its printed id, and its node.
    fn newest_generation(&self, replica: &str) -> Option<(ReplicaKey, NodeName)> {
        let slots = self.state.groups().flat_map(|(key, group)| group.slots.values().map(move |slot| (key, slot)));
        let (key, slot) = slots.into_iter().find(|(key, slot)| slot.key.replica_id(key) == replica)?;
        let newest = slot.replicas.last()?;
        Some((key.replica(&slot.key, newest.generation), newest.assignment.node.clone()))
    }

    pub(super) fn fire_timer(&mut self, node: &NodeName, boots: u32, timer: Timer) {
        let Some(virtual_node) = self.virtual_nodes.get_mut(node).filter(|virtual_node| virtual_node.boots() == boots)
        else {
            return;
        };
        let mut out = Outbox::default();
        virtual_node.fire(timer, self.now, &mut out);
        self.flush(node, out);
        self.apply_commands();
        self.ready_if_clean(node);
    }

    /// Sends a node's reports to the control plane and its timers to the queue. Reports that cannot be delivered are
    /// dropped: the agent sends its last report again when it reconnects.
    pub(super) fn flush(&mut self, node: &NodeName, mut out: Outbox) {
        let Some((boots, link)) =
            self.virtual_nodes.get(node).map(|virtual_node| (virtual_node.boots(), virtual_node.link()))
        else {
            return;
        };
        match link {
            Link::Up => {}
            Link::Reconnecting => out.reports.retain(|report| report.state == ReplicaState::Stopped),
            Link::Cut => out.reports.clear(),
        }
        for (at, timer) in out.timers {
            self.queue.push(at, Tick::Timer { node: node.clone(), boots, timer });
        }
        for report in out.reports {
            // Reconnecting is one exchange with the control plane, which either succeeds or is tried again as a whole.
            if link == Link::Up && self.network.is_some() {
                self.send_report(node, report);
            } else {
                self.observe(report, None);
            }
        }
    }

    pub(super) fn replica(&self, key: &ReplicaKey) -> Option<&Replica> {
        self.state.replica(key)
    }

    /// The service as the revision has it, or as it is now if that revision is no longer kept.
    pub(super) fn spec_of(&self, group: &GroupKey, revision: RevisionNumber) -> Option<Arc<ServiceSpec>> {
        let deployment = self.state.deployment(&group.namespace, &group.deployment)?;
        let kept = deployment.revisions.iter().find(|kept| kept.number == revision);
        let spec = kept.and_then(|kept| kept.spec.services.get(&group.service));
        spec.or_else(|| self.state.group(group).map(|group| &group.spec)).cloned()
    }
}
