//! The whole state as a list of events, for a view that starts empty.
//!
//! Owns: the order of those events: settings and nodes first, then what depends on them.
//! Invariant: a view built from them equals a view that followed every command.

use std::{collections::BTreeMap, net::Ipv6Addr, sync::Arc};

use longshore_model::{
    Attempt, Evacuation, Event, GroupKey, Node, NodeName, ReplicaState, Slot, SlotKey, Time,
    rebalance::SpreadRebalance,
    replica::{Collected, DesiredState, Replica},
};

use crate::{State, state::Group};

impl State {
    /// The events that build the current state from an empty view.
    pub fn events(&self) -> Vec<Event> {
        let mut events = vec![Event::Configured(self.config.clone())];
        events.extend(self.nodes.values().cloned().map(Event::NodeChanged));
        let removed = |(name, node): (&NodeName, &Arc<Node>)| {
            Some(Event::NodeRemoved { node: name.clone(), at: node.removed_at? })
        };
        events.extend(self.removed.iter().filter_map(removed));
        if self.evacuation != Evacuation::Free {
            events.push(Event::EvacuationChanged(self.evacuation.clone()));
        }
        events.extend(
            self.quotas
                .iter()
                .map(|(namespace, quota)| Event::QuotaSet { namespace: namespace.clone(), quota: *quota }),
        );
        events.extend(self.secrets.iter().map(|((namespace, name), version)| Event::SecretSet {
            namespace: namespace.clone(),
            name: name.clone(),
            version: *version,
        }));
        events.extend(self.volumes.values().cloned().map(Event::VolumeCreated));
        events.extend(self.resting_events());
        events.extend(self.moves.values().cloned().map(Event::Rebalanced));
        for (key, group) in &self.groups {
            group_events(key, group, &mut events);
        }
        for ((namespace, deployment), known) in &self.deployments {
            let (namespace, deployment) = (namespace.clone(), deployment.clone());
            if known.is_stopped() {
                let (namespace, deployment) = (namespace.clone(), deployment.clone());
                events.push(Event::DeploymentStopped { namespace, deployment });
            }
            let rollout = known.rollout.iter().cloned();
            events.extend(rollout.map(|rollout| Event::RolloutChanged {
                namespace: namespace.clone(),
                deployment: deployment.clone(),
                rollout,
            }));
        }
        events
    }

    /// Addresses in cooldown, each with its latest release. An address that is in use again is left out.
    fn resting_events(&self) -> impl Iterator<Item = Event> {
        let mut latest: BTreeMap<Ipv6Addr, (Time, &NodeName)> = BTreeMap::new();
        latest.extend(self.resting.iter().map(|((since, address), node)| (*address, (*since, node))));
        for (_, _, replica) in self.replicas() {
            latest.remove(&replica.assignment.address);
        }
        let resting = |(address, (since, node)): (_, (_, &NodeName))| Event::AddressCoolingDown {
            node: node.clone(),
            address,
            since,
        };
        latest.into_iter().map(resting)
    }
}

fn group_events(key: &GroupKey, group: &Group, events: &mut Vec<Event>) {
    events.push(Event::GroupChanged {
        group: key.clone(),
        revision: group.revision,
        spec: group.spec.clone(),
        next_index: group.next_index,
        restart_epoch: group.restart_epoch,
        rollout_position: group.rollout_position.clone(),
    });
    if group.spread_rebalance == SpreadRebalance::Requested {
        events.push(Event::EvenOutRequested(key.clone()));
    }
    for (node, times) in &group.failures {
        events.extend(times.iter().map(|at| Event::FailureCounted { group: key.clone(), node: node.clone(), at: *at }));
    }
    events.extend(group.reschedules.iter().map(|(slot, moves)| Event::Rescheduled {
        group: key.clone(),
        slot: slot.clone(),
        moves: moves.clone(),
    }));
    if group.collected != Collected::default() {
        events.push(Event::Collected { group: key.clone(), collected: group.collected.clone() });
    }
    for slot in group.slots.values() {
        slot_events(key, slot, events);
    }
    if group.desired == DesiredState::Stop {
        events.push(Event::GroupRemoved(key.clone()));
    }
}

fn slot_events(key: &GroupKey, slot: &Slot, events: &mut Vec<Event>) {
    let (group, newest, moved_at) = (key.clone(), slot.newest, slot.moved_at);
    events.push(Event::SlotOpened { group, slot: slot.key.clone(), newest, moved_at });
    if let Some(generation) = slot.starts_again {
        events.push(Event::SlotStartsAgain(key.replica(&slot.key, generation)));
    }
    if let Some(step) = slot.step {
        events.push(Event::SlotStepped { group: key.clone(), slot: slot.key.clone(), step });
    }
    for replica in &slot.replicas {
        replica_events(key, slot, replica, events);
    }
    if let Some(reason) = slot.waiting {
        let details = slot.waiting_details.clone();
        events.push(Event::SlotWaits { group: key.clone(), slot: slot.key.clone(), reason, details });
    }
    if slot.desired == DesiredState::Stop {
        events.push(Event::SlotClosing { group: key.clone(), slot: slot.key.clone() });
    }
    for replica in slot.replicas.iter().filter(|replica| replica.desired == DesiredState::Stop) {
        events.push(Event::Stopping(key.replica(&slot.key, replica.generation)));
    }
}

fn replica_events(group: &GroupKey, slot: &Slot, replica: &Replica, events: &mut Vec<Event>) {
    let key = group.replica(&slot.key, replica.generation);
    events.push(Event::Placed { key: key.clone(), assignment: replica.assignment.clone() });
    if replica.attempt > Attempt(0) {
        events.push(Event::Restarting { key, attempt: replica.attempt });
    }
    // `Stopping` covers a draining replica, and `Placed` covers a pending one without failures.
    let counted = replica.failures > 0 || !replica.history.is_empty();
    let untold = replica.code.is_some() || counted || replica.state != ReplicaState::Pending;
    if untold && replica.state != ReplicaState::Draining {
        events.push(observed(group, &slot.key, replica));
    }
}

/// The `Observed` event for a replica's current state.
pub(crate) fn observed(group: &GroupKey, slot: &SlotKey, replica: &Replica) -> Event {
    Event::Observed {
        key: group.replica(slot, replica.generation),
        attempt: replica.attempt,
        state: replica.state,
        code: replica.code,
        details: replica.details.clone(),
        failures: replica.failures,
        history: replica.history,
        at: replica.since,
        replaced_by: replica.replaced_by,
    }
}
