//! How each event changes the view.
//!
//! Owns: the mapping from events to indexes, and what each event makes dirty.
//! Invariant: an event about something unknown changes nothing; taking an event twice changes nothing more.

use std::{net::Ipv6Addr, sync::Arc};

use longshore_model::{
    Assignment, Attempt, Event, Generation, GroupKey, Node, NodeName, Reason, ReplicaState, RevisionNumber,
    ServiceSpec, SlotIndex, SlotKey, Time,
    command::Quota,
    rebalance::{EveningOut, Move},
    replica::{Collected, Details, Rescheduled, Wanted},
    rollout::{Rolling, Step},
};

use super::{
    GroupIx, RoomAppeared, View,
    classes::Split,
    groups::{Group, Replica, is_live},
    occupancy,
    rollouts::Standing,
};
use crate::{address, feasibility::constraints::Rules};

impl View {
    /// Takes one change in. The cost is that of what changed, never of the cluster, save for a node that joins or
    /// leaves: that reorders the lanes once before the next plan.
    pub fn apply(&mut self, event: &Event) {
        self.take_in(event);
        self.tell_dependents(event);
    }

    fn take_in(&mut self, event: &Event) {
        match event {
            Event::Configured(config) => self.configure(config),
            Event::NodeChanged(node) => self.node_changed(node),
            Event::NodeGone(name) => self.node_gone(name),
            Event::NodeRemoved { node, at } => _ = self.removed.insert(node.clone(), *at),
            Event::NodeForgotten(node) => _ = self.removed.remove(node),
            Event::EvacuationChanged(evacuation) => self.evacuation = evacuation.clone(),
            Event::GroupChanged { group, revision, spec, next_index, restart_epoch, rolling } => {
                self.group_changed(group, *revision, spec, *next_index);
                self.in_group(group, |known| known.restart_epoch = *restart_epoch);
                self.group_rolls(group, rolling);
            }
            Event::GroupRolls { group, rolling } => self.group_rolls(group, rolling),
            Event::RolloutChanged { namespace, deployment, rollout } => {
                self.rollout_changed(namespace, deployment, rollout);
            }
            Event::DeploymentGone { namespace, deployment } => {
                self.rollouts.remove(&(namespace.clone(), deployment.clone()));
            }
            Event::SlotStepped { group, slot, step } => self.slot_stepped(group, slot, *step),
            Event::GroupUnwanted(group) => self.group_unwanted(group),
            Event::GroupGone(group) => self.group_gone(group),
            Event::SlotOpened { group, slot, newest, moved_at } => self.slot_opened(group, slot, *newest, *moved_at),
            Event::SlotWaits { group, slot, reason, details } => self.slot_waits(group, slot, *reason, details),
            Event::SlotClosing { group, slot } => self.in_group(group, |known| {
                if let Some(slot) = known.slot_mut(slot) {
                    slot.wanted = Wanted::Stop;
                }
            }),
            Event::SlotGone { group, slot } => self.slot_gone(group, slot),
            Event::Placed { group, slot, generation, assignment } => {
                self.placed(group, slot, *generation, assignment);
            }
            Event::Rebalanced(made) => self.rebalanced(made),
            Event::EvenOutAsked(group) => self.in_group(group, |known| known.evening_out = EveningOut::Asked),
            Event::EvenedOut(group) => self.in_group(group, |known| known.evening_out = EveningOut::Idle),
            Event::Stopping { group, slot, generation } => self.stopping(group, slot, *generation),
            Event::Restarting { group, slot, generation, attempt } => {
                self.restarting(group, slot, *generation, *attempt);
            }
            Event::Rescheduled { group, slot, moves } => self.rescheduled(group, slot, moves),
            Event::Collected { group, collected } => self.in_group(group, |known| known.collected = collected.clone()),
            Event::Observed { .. } => self.observed(event),
            Event::Released { group, slot, generation, .. } => self.released(group, slot, *generation),
            Event::FailureCounted { group, node, at } => self.failure_counted(group, node, *at),
            Event::AddressResting { node, address, since } => self.address_resting(node, *address, *since),
            Event::VolumeMade(volume) => {
                self.volumes.settle(&volume.key, &volume.owner, &volume.home);
                self.room_appeared = RoomAppeared::Yes;
            }
            Event::VolumeGone(key) => {
                self.volumes.unsettle(key);
                self.room_appeared = RoomAppeared::Yes;
            }
            Event::SecretSet { namespace, name, version } => {
                self.secrets.insert((namespace.clone(), name.clone()), *version);
                self.room_appeared = RoomAppeared::Yes;
            }
            Event::SecretGone { namespace, name } => {
                self.secrets.remove(&(namespace.clone(), name.clone()));
            }
            // Who may ask has no say in where anything runs.
            Event::AccessChanged => {}
            Event::QuotaSet { namespace, quota } => {
                self.quotas.insert(namespace.clone(), *quota);
                self.quotas.retain(|_, quota| *quota != Quota::default());
                self.room_appeared = RoomAppeared::Yes;
            }
        }
    }

    fn slot_stepped(&mut self, group: &GroupKey, slot: &SlotKey, step: Step) {
        self.in_group(group, |known| {
            if let Some(slot) = known.slot_mut(slot) {
                slot.step = Some(step);
            }
        });
    }

    fn rescheduled(&mut self, group: &GroupKey, slot: &SlotKey, moves: &[Rescheduled]) {
        self.in_group(group, |known| {
            if moves.is_empty() {
                known.reschedules.remove(slot);
            } else {
                known.reschedules.insert(slot.clone(), moves.to_vec());
            }
        });
    }

    fn failure_counted(&mut self, group: &GroupKey, node: &NodeName, at: Time) {
        if let (Some(&ix), Some(&node)) = (self.group_ids.get(group), self.fleet.by_name.get(node)) {
            self.group_mut(ix).failures.entry(node).or_default().push(at);
        }
    }

    fn address_resting(&mut self, node: &NodeName, address: Ipv6Addr, since: Time) {
        if let Some(&ix) = self.fleet.by_name.get(node) {
            let host = address::host(address);
            self.fleet.addresses[ix.at()].mark(host);
            self.resting.insert((since, ix, host));
        }
    }

    fn configure(&mut self, config: &longshore_model::ClusterConfig) {
        self.config = config.clone();
        self.fleet.lay_out_again();
        let nodes: Vec<Arc<Node>> = self.fleet.in_order().map(|ix| Arc::clone(self.fleet.node(ix))).collect();
        for node in &nodes {
            self.fleet.put(node, config);
        }
        self.dirty.extend(self.group_ids.values());
    }

    fn node_changed(&mut self, node: &Arc<Node>) {
        self.removed.remove(&node.name);
        let ix = self.fleet.put(node, &self.config);
        self.dirty.extend(self.fleet.tenants[ix.at()].keys());
        self.dirty.extend(&self.per_node);
        self.room_appeared = RoomAppeared::Yes;
    }

    fn node_gone(&mut self, name: &NodeName) {
        let Some(&ix) = self.fleet.by_name.get(name) else { return };
        let tenants: Vec<GroupIx> = self.fleet.tenants[ix.at()].keys().copied().collect();
        for group in tenants {
            self.release_all(group, |_, replica| replica.node == ix);
        }
        self.fleet.forget(name);
        self.resting.retain(|(_, node, _)| *node != ix);
        self.dirty.extend(self.fleet.tenants[ix.at()].keys());
        self.dirty.extend(&self.per_node);
        // No room came of it, but what was said of those that wait was said of this node too.
        self.room_appeared = RoomAppeared::Yes;
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
        if self.fleet.classes.add_interest(&spec.placement) == Split::Anew {
            self.fleet.lay_out_again();
        }
        let known = self.group_ids.get(key).copied();
        let ix = known.unwrap_or_else(|| self.add_group(key, spec));
        let old = Arc::clone(&self.group(ix).spec);
        if known.is_some() {
            self.fleet.classes.drop_interest(&old.placement);
        }
        self.unwatch(ix, key, &old);
        self.watch(ix, key, spec);
        self.depend_no_longer(ix, key, &old);
        self.depend(ix, key, spec);
        let group = self.group_mut(ix);
        if group.spec.spec_hash != spec.spec_hash {
            group.failures.clear();
        }
        if group.spec.placement != spec.placement || group.spec.resources != spec.resources {
            group.rules = Arc::new(Rules::of(spec));
        }
        group.spec = Arc::clone(spec);
        group.revision = revision;
        group.wanted = Wanted::Run;
        group.next_index = group.next_index.max(next_index.0);
        if spec.kind.is_per_node() {
            self.per_node.insert(ix);
        } else {
            self.per_node.remove(&ix);
        }
        self.dirty.insert(ix);
        self.stand(key, ix, Standing::Working);
    }

    fn group_rolls(&mut self, key: &GroupKey, rolling: &Rolling) {
        let Some(&ix) = self.group_ids.get(key) else { return };
        let (old, new) = (self.group(ix).rolling.held.clone(), &rolling.held);
        if old != *new {
            // What a slot may have to be made of again must be told apart by the node classes too.
            if new.as_ref().is_some_and(|held| self.fleet.classes.add_interest(&held.spec.placement) == Split::Anew) {
                self.fleet.lay_out_again();
            }
            if let Some(held) = old {
                self.fleet.classes.drop_interest(&held.spec.placement);
            }
        }
        self.in_group(key, |known| known.rolling = rolling.clone());
    }

    fn add_group(&mut self, key: &GroupKey, spec: &Arc<ServiceSpec>) -> GroupIx {
        let ix = GroupIx(u32::try_from(self.groups.len()).unwrap_or(u32::MAX));
        self.groups.push(Some(Group {
            key: key.clone(),
            spec: Arc::clone(spec),
            rules: Arc::new(Rules::of(spec)),
            revision: RevisionNumber(0),
            wanted: Wanted::Run,
            next_index: 0,
            slots: Vec::new(),
            reschedules: std::collections::BTreeMap::new(),
            collected: Collected::default(),
            restart_epoch: 0,
            rolling: Rolling::default(),
            failures: std::collections::BTreeMap::new(),
            evening_out: EveningOut::Idle,
            promised: 0,
            alarm: None,
        }));
        self.group_ids.insert(key.clone(), ix);
        ix
    }

    fn group_unwanted(&mut self, key: &GroupKey) {
        let Some(&ix) = self.group_ids.get(key) else { return };
        if self.group(ix).wanted == Wanted::Run {
            let spec = Arc::clone(&self.group(ix).spec);
            self.unwatch(ix, key, &spec);
            self.depend_no_longer(ix, key, &spec);
        }
        self.group_mut(ix).wanted = Wanted::Stop;
        self.per_node.remove(&ix);
        self.waiting.remove(&ix);
        self.dirty.insert(ix);
        self.tell_watchers(key);
    }

    fn group_gone(&mut self, key: &GroupKey) {
        let Some(&ix) = self.group_ids.get(key) else { return };
        self.release_all(ix, |_, _| true);
        self.group_ids.remove(key);
        if let Some(group) = self.groups[ix.at()].take() {
            if group.promised > 0 {
                self.room_appeared = RoomAppeared::Yes;
            }
            self.unwatch(ix, key, &group.spec);
            self.depend_no_longer(ix, key, &group.spec);
            // Not before: what is being removed is still explained, by labels that nobody else may ask about.
            self.fleet.classes.drop_interest(&group.spec.placement);
            if let Some(held) = group.rolling.held {
                self.fleet.classes.drop_interest(&held.spec.placement);
            }
        }
        self.stand(key, ix, Standing::Finished);
        self.dirty.remove(&ix);
        self.waiting.remove(&ix);
        self.per_node.remove(&ix);
        self.alarms.retain(|(_, group)| *group != ix);
    }

    fn in_group(&mut self, key: &GroupKey, change: impl FnOnce(&mut Group)) {
        if let Some(&ix) = self.group_ids.get(key) {
            change(self.group_mut(ix));
            self.dirty.insert(ix);
        }
    }

    fn slot_opened(&mut self, key: &GroupKey, slot: &SlotKey, newest: Generation, moved_at: Option<Time>) {
        self.in_group(key, |known| {
            let slot = known.slot_or_open(slot);
            slot.newest = slot.newest.max(newest);
            slot.moved_at = slot.moved_at.max(moved_at);
        });
    }

    fn slot_gone(&mut self, key: &GroupKey, slot: &SlotKey) {
        let Some(&ix) = self.group_ids.get(key) else { return };
        self.release_all(ix, |at, _| at == slot);
        self.in_group(key, |known| {
            if let Ok(at) = known.slot_at(slot) {
                known.slots.remove(at);
                known.reschedules.remove(slot);
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

    fn placed(&mut self, key: &GroupKey, slot: &SlotKey, generation: Generation, assignment: &Assignment) {
        let (Some(&ix), Some(&node)) = (self.group_ids.get(key), self.fleet.by_name.get(&assignment.node)) else {
            return;
        };
        let replica = Replica {
            generation,
            attempt: Attempt(0),
            node,
            address: assignment.address,
            terms: Arc::clone(&assignment.terms),
            devices: assignment.devices.clone(),
            wanted: Wanted::Run,
            state: ReplicaState::Pending,
            code: None,
            since: assignment.placed_at,
            placed_at: assignment.placed_at,
            failures: 0,
            rival: None,
        };
        let known = self.group_mut(ix).slot_or_open(slot);
        if known.replica_mut(generation).is_some() {
            return;
        }
        known.newest = known.newest.max(generation);
        known.waiting = None;
        known.replicas.push(replica.clone());
        let group = self.group_mut(ix);
        group.promised = group.promised.saturating_sub(1);
        let host = address::host(assignment.address);
        if self.fleet.addresses[node.at()].mark(host) == address::Before::Taken {
            // Its rest was over for whoever decided this, and must not end later for a view that was not asked.
            self.resting.retain(|(_, owner, resting)| (*owner, *resting) != (node, host));
        }
        *self.fleet.tenants[node.at()].entry(ix).or_default() += 1;
        self.occupy(ix, slot, &replica);
        self.count(key, node, &replica.terms);
        self.tell_watchers(key);
    }

    /// A move leaves its stamp on the slot and on the node that took it in. One told anew comes before the groups, whose
    /// slots bring their own stamp.
    fn rebalanced(&mut self, made: &Move) {
        if let Some(&node) = self.fleet.by_name.get(&made.to) {
            let received = &mut self.fleet.received[node.at()];
            *received = (*received).max(Some(made.at));
        }
        if let Some(&group) = self.group_ids.get(&made.group)
            && let Some(slot) = self.group_mut(group).slot_mut(&made.slot)
        {
            slot.moved_at = slot.moved_at.max(Some(made.at));
        }
    }

    fn stopping(&mut self, key: &GroupKey, slot: &SlotKey, generation: Generation) {
        let Some(&ix) = self.group_ids.get(key) else { return };
        let Some(replica) = self.group_mut(ix).slot_mut(slot).and_then(|slot| slot.replica_mut(generation)) else {
            return;
        };
        let counted = occupancy::counts(replica);
        replica.wanted = Wanted::Stop;
        // What had ended by itself holds what it held, which for a job is nothing: there is nothing left to drain.
        if replica.state != ReplicaState::Completed {
            replica.state = ReplicaState::Draining;
            replica.code = None;
        }
        let (node, terms) = (replica.node, Arc::clone(&replica.terms));
        if counted {
            self.uncount(key, node, &terms);
        }
        self.dirty.insert(ix);
        self.tell_watchers(key);
    }

    fn restarting(&mut self, key: &GroupKey, slot: &SlotKey, generation: Generation, attempt: Attempt) {
        self.in_group(key, |group| {
            if let Some(replica) = group.slot_mut(slot).and_then(|slot| slot.replica_mut(generation)) {
                replica.attempt = attempt;
                replica.state = ReplicaState::Pending;
                replica.code = None;
            }
        });
    }

    fn observed(&mut self, event: &Event) {
        let Event::Observed { group: key, slot, generation, state, code, failures, at, rival, .. } = event else {
            return;
        };
        let Some(&ix) = self.group_ids.get(key) else { return };
        let Some(known) = self.group_mut(ix).slot_mut(slot) else { return };
        let Some(place) = known.replicas.iter().position(|replica| replica.generation == *generation) else { return };
        let replica = &mut known.replicas[place];
        let before = (occupancy::counts(replica), occupancy::occupies(replica.terms.kind, replica.state));
        replica.since = *at;
        replica.state = *state;
        replica.code = *code;
        replica.failures = *failures;
        replica.rival = *rival;
        let after = (occupancy::counts(replica), occupancy::occupies(replica.terms.kind, replica.state));
        let replica = replica.clone();
        if is_live(&replica) {
            known.waiting = None;
        }
        match (before.1, after.1) {
            (true, false) => {
                self.vacate(ix, slot, &replica);
                self.room_appeared = RoomAppeared::Yes;
            }
            (false, true) => self.occupy(ix, slot, &replica),
            (true, true) | (false, false) => {}
        }
        match (before.0, after.0) {
            (true, false) => self.uncount(key, replica.node, &replica.terms),
            (false, true) => self.count(key, replica.node, &replica.terms),
            (true, true) | (false, false) => {}
        }
        if before.0 != after.0 {
            self.tell_watchers(key);
        }
        self.dirty.insert(ix);
    }

    fn released(&mut self, key: &GroupKey, slot_key: &SlotKey, generation: Generation) {
        let Some(&ix) = self.group_ids.get(key) else { return };
        let Some(slot) = self.group_mut(ix).slot_mut(slot_key) else { return };
        let Some(at) = slot.replicas.iter().position(|replica| replica.generation == generation) else { return };
        let replica = slot.replicas.remove(at);
        if occupancy::occupies(replica.terms.kind, replica.state) {
            self.vacate(ix, slot_key, &replica);
        }
        if occupancy::counts(&replica) {
            self.uncount(key, replica.node, &replica.terms);
        }
        self.fleet.leave(replica.node, ix);
        self.dirty.insert(ix);
        self.tell_watchers(key);
        self.room_appeared = RoomAppeared::Yes;
    }

    /// Releases generations of a group that were not heard to stop before their node, slot or group went, so that nothing is
    /// left that names what is gone.
    fn release_all(&mut self, group: GroupIx, which: impl Fn(&SlotKey, &Replica) -> bool) {
        let Some(known) = self.groups[group.at()].as_ref() else { return };
        let key = known.key.clone();
        let replicas = known.slots.iter().flat_map(|slot| slot.replicas.iter().map(|replica| (&slot.key, replica)));
        let going: Vec<(SlotKey, Generation)> = replicas
            .filter(|(slot, replica)| which(slot, replica))
            .map(|(slot, replica)| (slot.clone(), replica.generation))
            .collect();
        for (slot, generation) in going {
            self.released(&key, &slot, generation);
        }
    }
}
