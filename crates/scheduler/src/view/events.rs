//! How each event changes the view.
//!
//! Owns: the mapping from events to indexes, and which groups each event makes dirty.
//! Invariant: an event about something unknown changes nothing; applying an event twice has no further effect.

use std::{net::Ipv6Addr, sync::Arc};

use longshore_model::{
    Assignment, Attempt, Event, Generation, GroupKey, Node, NodeName, Reason, ReplicaKey, ReplicaState, RevisionNumber,
    RuntimeCode, ServiceSpec, SlotIndex, SlotKey, Time,
    command::Quota,
    rebalance::{Move, SpreadRebalance},
    replica::{Collected, DesiredState, Details, RegistryAnswer, Rescheduled, RestartHistory},
    rollout::{RolloutPosition, Step},
};

use super::{
    GroupIx, View,
    groups::{Group, Replica, is_live},
    occupancy,
    rollouts::GroupProgress,
};
use crate::{address, feasibility::constraints::Rules};

impl View {
    /// Applies one event. The cost depends on what changed, never on the cluster size, except for a node that joins or
    /// leaves: then the node indexes are rebuilt before the next plan.
    pub fn apply(&mut self, event: &Event) {
        self.update_indexes(event);
        self.mark_dependents_dirty(event);
    }

    fn update_indexes(&mut self, event: &Event) {
        match event {
            Event::Configured(config) => self.configure(config),
            Event::NodeChanged(node) => self.node_changed(node),
            Event::NodeGone(name) => self.node_gone(name),
            Event::NodeRemoved { node, at } => _ = self.removed.insert(node.clone(), *at),
            Event::NodeForgotten(node) => _ = self.removed.remove(node),
            Event::EvacuationChanged(evacuation) => self.evacuation = evacuation.clone(),
            Event::GroupChanged { group, revision, spec, next_index, restart_epoch, rollout_position } => {
                self.group_changed(group, *revision, spec, *next_index);
                self.in_group(group, |record| record.restart_epoch = *restart_epoch);
                self.group_rolls(group, rollout_position);
            }
            Event::GroupRolloutChanged { group, rollout_position } => self.group_rolls(group, rollout_position),
            Event::RolloutChanged { namespace, deployment, rollout } => {
                self.rollout_changed(namespace, deployment, rollout);
            }
            Event::DeploymentGone { namespace, deployment } => self.deployment_gone(namespace, deployment),
            Event::DeploymentStopped { namespace, deployment } => self.deployment_stopped(namespace, deployment),
            Event::SlotStartsAgain(key) => self.slot_starts_again(key),
            Event::DeploymentStarted { namespace, deployment } => self.deployment_started(namespace, deployment),
            Event::SlotStepped { group, slot, step } => self.slot_stepped(group, slot, *step),
            Event::GroupRemoved(group) => self.group_unwanted(group),
            Event::GroupGone(group) => self.group_gone(group),
            Event::SlotOpened { group, slot, newest, moved_at } => self.slot_opened(group, slot, *newest, *moved_at),
            Event::SlotWaits { group, slot, reason, details } => self.slot_waits(group, slot, *reason, details),
            Event::SlotClosing { group, slot } => self.slot_closing(group, slot),
            Event::SlotGone { group, slot } => self.slot_gone(group, slot),
            Event::Placed { key, assignment } => self.placed(key, assignment),
            Event::Rebalanced(made) => self.rebalanced(made),
            Event::EvenOutRequested(group) => self.set_spread_rebalance(group, SpreadRebalance::Requested),
            Event::EvenOutDone(group) => self.set_spread_rebalance(group, SpreadRebalance::Idle),
            Event::Stopping(key) => self.stopping(key),
            Event::Restarting { key, attempt } => self.restarting(key, *attempt),
            Event::Rescheduled { group, slot, moves } => self.rescheduled(group, slot, moves),
            Event::Collected { group, collected } => {
                self.in_group(group, |record| record.collected = collected.clone());
            }
            Event::Observed { .. } => self.observed(event),
            Event::Released { key, .. } => self.released(key),
            Event::FailureCounted { group, node, at } => self.failure_counted(group, node, *at),
            Event::AddressCoolingDown { node, address, since } => self.address_resting(node, *address, *since),
            Event::VolumeCreated(volume) => {
                self.volumes.set_home(&volume.key, &volume.owner, &volume.home);
                self.capacity_freed = true;
            }
            Event::VolumeGone(key) => {
                self.volumes.clear_home(key);
                self.capacity_freed = true;
            }
            Event::SecretSet { namespace, name, version } => {
                self.secrets.insert((namespace.clone(), name.clone()), *version);
                self.capacity_freed = true;
            }
            Event::SecretGone { namespace, name } => {
                self.secrets.remove(&(namespace.clone(), name.clone()));
            }
            // Access rules do not influence placement.
            Event::AccessChanged => {}
            Event::QuotaSet { namespace, quota } => {
                self.quotas.insert(namespace.clone(), *quota);
                self.quotas.retain(|_, quota| *quota != Quota::default());
                self.capacity_freed = true;
            }
        }
    }

    fn slot_stepped(&mut self, group: &GroupKey, slot: &SlotKey, step: Step) {
        self.in_group(group, |record| {
            if let Some(slot) = record.slot_mut(slot) {
                slot.step = Some(step);
            }
        });
    }

    fn rescheduled(&mut self, group: &GroupKey, slot: &SlotKey, moves: &[Rescheduled]) {
        self.in_group(group, |record| {
            if moves.is_empty() {
                record.reschedules.remove(slot);
            } else {
                record.reschedules.insert(slot.clone(), moves.to_vec());
            }
        });
    }

    fn failure_counted(&mut self, group: &GroupKey, node: &NodeName, at: Time) {
        if let (Some(&ix), Some(&node)) = (self.group_ids.get(group), self.nodes.by_name.get(node)) {
            self.group_mut(ix).failures.entry(node).or_default().push(at);
        }
    }

    fn address_resting(&mut self, node: &NodeName, address: Ipv6Addr, since: Time) {
        if let Some(&ix) = self.nodes.by_name.get(node) {
            let host = address::host(address);
            self.nodes.addresses[ix.at()].mark_taken(host);
            self.cooling_addresses.insert((since, ix, host));
        }
    }

    fn configure(&mut self, config: &longshore_model::ClusterConfig) {
        self.config = config.clone();
        self.nodes.invalidate_layout();
        let nodes: Vec<Arc<Node>> = self.nodes.by_name_order().map(|ix| Arc::clone(self.nodes.node(ix))).collect();
        for node in &nodes {
            self.nodes.put(node, config);
        }
        self.dirty.extend(self.group_ids.values());
    }

    fn node_changed(&mut self, node: &Arc<Node>) {
        self.removed.remove(&node.name);
        let ix = self.nodes.put(node, &self.config);
        self.dirty.extend(self.nodes.groups_on[ix.at()].keys());
        self.dirty.extend(&self.per_node);
        self.capacity_freed = true;
    }

    fn node_gone(&mut self, name: &NodeName) {
        let Some(&ix) = self.nodes.by_name.get(name) else { return };
        let tenants: Vec<GroupIx> = self.nodes.groups_on[ix.at()].keys().copied().collect();
        for group in tenants {
            self.release_all(group, |_, replica| replica.node == ix);
        }
        self.nodes.forget(name);
        self.cooling_addresses.retain(|(_, node, _)| *node != ix);
        self.dirty.extend(self.nodes.groups_on[ix.at()].keys());
        self.dirty.extend(&self.per_node);
        // No capacity was freed, but the reasons recorded for waiting slots counted this node too.
        self.capacity_freed = true;
        for group in self.groups.iter_mut().flatten() {
            group.failures.remove(&ix);
            group.collected.nodes.remove(name);
        }
    }

    fn group_changed(
        &mut self,
        key: &GroupKey,
        revision: RevisionNumber,
        spec: &Arc<ServiceSpec>,
        next_index: SlotIndex,
    ) {
        if self.nodes.classes.add_interest(&spec.placement) {
            self.nodes.invalidate_layout();
        }
        let existing = self.group_ids.get(key).copied();
        let ix = existing.unwrap_or_else(|| self.add_group(key, spec));
        let old = Arc::clone(&self.group(ix).spec);
        if existing.is_some() {
            self.nodes.classes.drop_interest(&old.placement);
        }
        self.unwatch(ix);
        self.remove_dependent(ix);
        let group = self.group_mut(ix);
        if !group.spec.has_same_code(spec) {
            group.failures.clear();
        }
        if group.spec.placement != spec.placement || group.spec.resources != spec.resources {
            group.rules = Arc::new(Rules::of(spec));
        }
        group.spec = Arc::clone(spec);
        group.revision = revision;
        group.desired = DesiredState::Run;
        group.next_index = group.next_index.max(next_index.0);
        self.watch(ix);
        self.add_dependent(ix);
        if spec.kind.is_per_node() {
            self.per_node.insert(ix);
        } else {
            self.per_node.remove(&ix);
        }
        self.dirty.insert(ix);
        self.set_group_progress(key, ix, GroupProgress::Working);
    }

    fn set_spread_rebalance(&mut self, group: &GroupKey, state: SpreadRebalance) {
        self.in_group(group, |record| record.spread_rebalance = state);
    }

    fn group_rolls(&mut self, key: &GroupKey, rollout_position: &RolloutPosition) {
        let Some(&ix) = self.group_ids.get(key) else { return };
        let (old, new) = (self.group(ix).rollout_position.previous.clone(), &rollout_position.previous);
        if old != *new {
            // Slots may be created from the previous spec again, so node classes must distinguish its labels too.
            if new.as_ref().is_some_and(|previous| self.nodes.classes.add_interest(&previous.spec.placement)) {
                self.nodes.invalidate_layout();
            }
            if let Some(previous) = old {
                self.nodes.classes.drop_interest(&previous.spec.placement);
            }
        }
        let is_desired = self.group(ix).desired == DesiredState::Run;
        if is_desired {
            self.unwatch(ix);
            self.remove_dependent(ix);
        }
        self.in_group(key, |group| group.rollout_position = rollout_position.clone());
        if is_desired {
            self.watch(ix);
            self.add_dependent(ix);
        }
    }

    fn add_group(&mut self, key: &GroupKey, spec: &Arc<ServiceSpec>) -> GroupIx {
        let ix = GroupIx(u32::try_from(self.groups.len()).unwrap_or(u32::MAX));
        self.groups.push(Some(Group {
            key: key.clone(),
            spec: Arc::clone(spec),
            rules: Arc::new(Rules::of(spec)),
            revision: RevisionNumber(0),
            desired: DesiredState::Run,
            next_index: 0,
            slots: Vec::new(),
            reschedules: std::collections::BTreeMap::new(),
            collected: Collected::default(),
            restart_epoch: 0,
            rollout_position: RolloutPosition::default(),
            failures: std::collections::BTreeMap::new(),
            spread_rebalance: SpreadRebalance::Idle,
            outstanding: 0,
            wake_at: None,
        }));
        self.group_ids.insert(key.clone(), ix);
        ix
    }

    fn group_unwanted(&mut self, key: &GroupKey) {
        let Some(&ix) = self.group_ids.get(key) else { return };
        if self.group(ix).desired == DesiredState::Run {
            self.unwatch(ix);
            self.remove_dependent(ix);
        }
        self.group_mut(ix).desired = DesiredState::Stop;
        self.per_node.remove(&ix);
        self.waiting.remove(&ix);
        self.dirty.insert(ix);
        self.mark_watchers_dirty(key);
    }

    fn group_gone(&mut self, key: &GroupKey) {
        let Some(&ix) = self.group_ids.get(key) else { return };
        self.release_all(ix, |_, _| true);
        self.unwatch(ix);
        self.remove_dependent(ix);
        self.group_ids.remove(key);
        if let Some(group) = self.groups[ix.at()].take() {
            if group.outstanding > 0 {
                self.capacity_freed = true;
            }
            // Not earlier: a group being removed is still explained, and may be the only one that refers to these
            // labels.
            self.nodes.classes.drop_interest(&group.spec.placement);
            if let Some(previous) = group.rollout_position.previous {
                self.nodes.classes.drop_interest(&previous.spec.placement);
            }
        }
        self.set_group_progress(key, ix, GroupProgress::Finished);
        self.dirty.remove(&ix);
        self.waiting.remove(&ix);
        self.per_node.remove(&ix);
        self.wakeups.retain(|(_, group)| *group != ix);
    }

    fn in_group(&mut self, key: &GroupKey, change: impl FnOnce(&mut Group)) {
        if let Some(&ix) = self.group_ids.get(key) {
            change(self.group_mut(ix));
            self.dirty.insert(ix);
        }
    }

    fn slot_opened(&mut self, key: &GroupKey, slot: &SlotKey, newest: Generation, moved_at: Option<Time>) {
        self.in_group(key, |group| {
            let slot = group.slot_or_open(slot);
            slot.newest = slot.newest.max(newest);
            slot.moved_at = slot.moved_at.max(moved_at);
        });
    }

    fn slot_gone(&mut self, key: &GroupKey, slot: &SlotKey) {
        let Some(&ix) = self.group_ids.get(key) else { return };
        self.release_all(ix, |at, _| at == slot);
        self.in_group(key, |group| {
            if let Ok(at) = group.slot_at(slot) {
                group.slots.remove(at);
                group.reschedules.remove(slot);
            }
        });
    }

    fn slot_closing(&mut self, key: &GroupKey, slot: &SlotKey) {
        self.in_group(key, |group| {
            if let Some(slot) = group.slot_mut(slot) {
                slot.desired = DesiredState::Stop;
            }
        });
    }

    fn slot_starts_again(&mut self, key: &ReplicaKey) {
        self.in_group(&key.group, |group| {
            if let Some(slot) = group.slot_mut(&key.slot) {
                slot.starts_again = Some(key.generation);
            }
        });
    }

    fn slot_waits(&mut self, key: &GroupKey, slot: &SlotKey, reason: Reason, details: &Details) {
        if let Some(&ix) = self.group_ids.get(key) {
            let slot = self.group_mut(ix).slot_or_open(slot);
            slot.waiting = Some(reason);
            slot.waiting_details = details.clone();
            self.waiting.insert(ix);
        }
    }

    fn placed(&mut self, key: &ReplicaKey, assignment: &Assignment) {
        let (Some(&ix), Some(&node)) = (self.group_ids.get(&key.group), self.nodes.by_name.get(&assignment.node))
        else {
            return;
        };
        let replica = Replica {
            generation: key.generation,
            attempt: Attempt(0),
            node,
            address: assignment.address,
            reservation: Arc::clone(&assignment.reservation),
            devices: assignment.devices.clone(),
            desired: DesiredState::Run,
            state: ReplicaState::Pending,
            code: None,
            pull_refused: false,
            since: assignment.placed_at,
            placed_at: assignment.placed_at,
            failures: 0,
            history: RestartHistory::default(),
            replaced_by: None,
        };
        let record = self.group_mut(ix).slot_or_open(&key.slot);
        if record.replica_mut(key.generation).is_some() {
            return;
        }
        record.newest = record.newest.max(key.generation);
        record.waiting = None;
        record.replicas.push(replica.clone());
        let group = self.group_mut(ix);
        group.outstanding = group.outstanding.saturating_sub(1);
        let host = address::host(assignment.address);
        if !self.nodes.addresses[node.at()].mark_taken(host) {
            // The planner saw this cooldown as over; a view that was not advanced must not free the address later.
            self.cooling_addresses.retain(|(_, owner, resting)| (*owner, *resting) != (node, host));
        }
        *self.nodes.groups_on[node.at()].entry(ix).or_default() += 1;
        self.occupy(ix, &key.slot, &replica);
        self.count(&key.group, node, &replica.reservation);
        self.mark_watchers_dirty(&key.group);
    }

    /// Records the time of a move on the slot and on the destination node. When a view is rebuilt this event precedes
    /// the groups, whose slots carry their own time.
    fn rebalanced(&mut self, made: &Move) {
        if let Some(&node) = self.nodes.by_name.get(&made.to) {
            let received = &mut self.nodes.last_received[node.at()];
            *received = (*received).max(Some(made.at));
        }
        if let Some(&group) = self.group_ids.get(&made.key.group)
            && let Some(slot) = self.group_mut(group).slot_mut(&made.key.slot)
        {
            slot.moved_at = slot.moved_at.max(Some(made.at));
        }
    }

    fn stopping(&mut self, key: &ReplicaKey) {
        let Some(&ix) = self.group_ids.get(&key.group) else { return };
        let Some(replica) = self.group_mut(ix).slot_mut(&key.slot).and_then(|slot| slot.replica_mut(key.generation))
        else {
            return;
        };
        let counted = occupancy::counts(replica);
        replica.desired = DesiredState::Stop;
        // A completed replica has nothing left to drain: it keeps its state, in which a job holds no resources.
        if replica.state != ReplicaState::Completed {
            replica.state = ReplicaState::Draining;
            replica.code = None;
        }
        let (node, reservation) = (replica.node, Arc::clone(&replica.reservation));
        if counted {
            self.uncount(&key.group, node, &reservation);
        }
        self.dirty.insert(ix);
        self.mark_watchers_dirty(&key.group);
    }

    fn restarting(&mut self, key: &ReplicaKey, attempt: Attempt) {
        self.in_group(&key.group, |group| {
            if let Some(replica) = group.slot_mut(&key.slot).and_then(|slot| slot.replica_mut(key.generation)) {
                replica.attempt = attempt;
                if replica.code == Some(RuntimeCode::RestartExhausted) {
                    replica.failures = 0;
                    replica.history = replica.history.after_return();
                }
                replica.state = ReplicaState::Pending;
                replica.code = None;
            }
        });
    }

    fn observed(&mut self, event: &Event) {
        let Event::Observed { key, state, code, details, failures, history, at, replaced_by, .. } = event else {
            return;
        };
        let Some(&ix) = self.group_ids.get(&key.group) else { return };
        let Some(record) = self.group_mut(ix).slot_mut(&key.slot) else { return };
        let Some(replica) = record.replica_mut(key.generation) else { return };
        let before = (occupancy::counts(replica), occupancy::occupies(replica.reservation.kind, replica.state));
        replica.since = *at;
        replica.state = *state;
        replica.code = *code;
        replica.pull_refused =
            *code == Some(RuntimeCode::ImagePullFailed) && details.contains_key(RegistryAnswer::DETAIL);
        replica.failures = *failures;
        replica.history = *history;
        replica.replaced_by = *replaced_by;
        let after = (occupancy::counts(replica), occupancy::occupies(replica.reservation.kind, replica.state));
        let replica = replica.clone();
        if is_live(&replica) {
            record.waiting = None;
        }
        match (before.1, after.1) {
            (true, false) => {
                self.vacate(ix, &key.slot, &replica);
                self.capacity_freed = true;
            }
            (false, true) => self.occupy(ix, &key.slot, &replica),
            (true, true) | (false, false) => {}
        }
        match (before.0, after.0) {
            (true, false) => self.uncount(&key.group, replica.node, &replica.reservation),
            (false, true) => self.count(&key.group, replica.node, &replica.reservation),
            (true, true) | (false, false) => {}
        }
        if before.0 != after.0 {
            self.mark_watchers_dirty(&key.group);
        }
        self.dirty.insert(ix);
    }

    fn released(&mut self, key: &ReplicaKey) {
        let Some(&ix) = self.group_ids.get(&key.group) else { return };
        let Some(slot) = self.group_mut(ix).slot_mut(&key.slot) else { return };
        let Some(at) = slot.replicas.iter().position(|replica| replica.generation == key.generation) else { return };
        let replica = slot.replicas.remove(at);
        if occupancy::occupies(replica.reservation.kind, replica.state) {
            self.vacate(ix, &key.slot, &replica);
        }
        if occupancy::counts(&replica) {
            self.uncount(&key.group, replica.node, &replica.reservation);
        }
        self.nodes.leave(replica.node, ix);
        self.dirty.insert(ix);
        self.mark_watchers_dirty(&key.group);
        self.capacity_freed = true;
    }

    /// Releases generations that were not observed stopped before their node, slot or group was removed, so that no
    /// index refers to something removed.
    fn release_all(&mut self, group: GroupIx, which: impl Fn(&SlotKey, &Replica) -> bool) {
        let Some(record) = self.groups[group.at()].as_ref() else { return };
        let replicas = record.slots.iter().flat_map(|slot| slot.replicas.iter().map(|replica| (&slot.key, replica)));
        let going: Vec<ReplicaKey> = replicas
            .filter(|(slot, replica)| which(slot, replica))
            .map(|(slot, replica)| record.key.replica(slot, replica.generation))
            .collect();
        for key in &going {
            self.released(key);
        }
    }
}
