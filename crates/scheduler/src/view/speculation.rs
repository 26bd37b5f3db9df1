//! Speculative application of a plan to the view, until it is reverted.
//!
//! The consequences of a plan are found by deciding on the cluster as the plan will leave it. The changes go through
//! the same events as when the plan is committed, so that the result is the same; only the way back is separate.
//! Copying the view was refused: it would cost the size of the cluster where this costs what the plan touches.
//!
//! Owns: the events a plan will cause, and the slots as they were before them.
//! Invariant: after [`View::revert`] the view is what it was; before, it is what committing the plan will make it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use longshore_model::{
    Assignment, Event, Generation, GroupKey, GroupPlan, Placement, PlanItem, ReplicaState, RuntimeCode, SlotGeneration,
    SlotKey, Time, VolumeKey,
    replica::{Collected, DesiredState, Details, JobOutcome, Rescheduled},
    rollout::{RolloutPosition, Step, StepKind, StepOutcome},
    volume::Volume,
};

use super::{
    GroupIx, View,
    groups::{Group, Replica, Slot, is_live},
    occupancy,
};
use crate::address;

/// What is needed to revert speculatively applied plans.
#[derive(Debug)]
pub(crate) struct Speculation {
    dirty: BTreeSet<GroupIx>,
    waiting: BTreeSet<GroupIx>,
    /// Slots before the first change to each; `None` where the slot did not exist.
    slots: BTreeMap<(GroupIx, SlotKey), Option<Slot>>,
    /// Other group data before the first change.
    records: BTreeMap<GroupIx, GroupRecords>,
    homes: Vec<VolumeKey>,
}

/// What a plan can change of a group apart from its slots.
#[derive(Debug)]
struct GroupRecords {
    next_index: u32,
    reschedules: BTreeMap<SlotKey, Vec<Rescheduled>>,
    collected: Collected,
    rollout_position: RolloutPosition,
}

impl GroupRecords {
    fn of(group: &Group) -> Self {
        let (reschedules, collected) = (group.reschedules.clone(), group.collected.clone());
        Self { next_index: group.next_index, reschedules, collected, rollout_position: group.rollout_position.clone() }
    }
}

impl View {
    /// Starts a speculation.
    pub(crate) fn speculate(&self) -> Speculation {
        Speculation {
            dirty: self.dirty.clone(),
            waiting: self.waiting.clone(),
            slots: BTreeMap::new(),
            records: BTreeMap::new(),
            homes: Vec::new(),
        }
    }

    /// Applies changes as if they were committed.
    pub(crate) fn apply_speculatively(&mut self, changes: &[GroupPlan], at: Time, speculation: &mut Speculation) {
        for part in changes {
            let Some(&group) = self.group_ids.get(&part.group) else { continue };
            speculation.records.entry(group).or_insert_with(|| GroupRecords::of(self.group(group)));
            for item in &part.items {
                self.apply_item(group, part, item, at, speculation);
            }
        }
    }

    fn apply_item(
        &mut self,
        group: GroupIx,
        part: &GroupPlan,
        item: &PlanItem,
        at: Time,
        speculation: &mut Speculation,
    ) {
        for slot in changed_slots(item) {
            speculation.remember_slot(self, group, slot);
        }
        let events = match item {
            PlanItem::Open(slot) => self.opening_events(group, slot, at),
            PlanItem::Place(placement) => {
                speculation.homes.extend(placement.new_volumes.iter().cloned());
                let mut events = self.opening_events(group, &placement.key.slot, at);
                events.extend(placed(part, placement, at));
                events
            }
            PlanItem::Wait(wait) => {
                let waits = wait.slots.iter().filter(|slot| self.may_wait(group, slot));
                let event = |slot: &SlotKey| {
                    let (group, slot, details) = (part.group.clone(), slot.clone(), wait.details.clone());
                    Event::SlotWaits { group, slot, reason: wait.reason, details }
                };
                waits.map(event).collect()
            }
            PlanItem::Stop(key) => vec![Event::Stopping(key.clone().in_group(&part.group))],
            PlanItem::Close(slot) => self.closing_events(group, &part.group, slot),
            PlanItem::Restart { key, attempt } => {
                vec![Event::Restarting { key: key.clone().in_group(&part.group), attempt: *attempt }]
            }
            PlanItem::Reschedule { key, delay } => self.rescheduling_events(group, key, at, *delay),
            PlanItem::Collect(key) => self.collecting_events(group, key),
            PlanItem::Step { .. } | PlanItem::NoRoom { .. } | PlanItem::Blocked { .. } | PlanItem::Promote => {
                self.rolling_events(group, item, at)
            }
            // Only the rebalancer emits it, in a plan of its own.
            PlanItem::EvenOutDone => Vec::new(),
            PlanItem::GiveUp { key, code } => {
                let found = self.group(group).replica(&key.slot, key.generation);
                found.map(|replica| given_up(&part.group, &key.slot, replica, *code, at)).into_iter().collect()
            }
        };
        for event in &events {
            self.apply(event);
        }
    }

    /// Opens a slot. While a rollout is live a new slot is a step of it.
    fn opening_events(&self, group: GroupIx, slot: &SlotKey, at: Time) -> Vec<Event> {
        let record = self.group(group);
        let mut events = vec![opened(&record.key, slot)];
        let rollout = self.rollout_of(&record.key).filter(|_| !record.spec.kind.is_job());
        // A slot of the previous spec is no step: its step comes when the rollout is no longer held.
        let rollout = rollout.filter(|rollout| !record.rollout_position.holds_growth(rollout, &record.spec));
        if let (Some(rollout), Err(_)) = (rollout, record.slot_at(slot)) {
            let (kind, outcome) = (StepKind::Added, StepOutcome::UnderWay);
            let step = Step { rollout: rollout.number, kind, at, outcome };
            events.push(Event::SlotStepped { group: record.key.clone(), slot: slot.clone(), step });
        }
        events
    }

    fn rolling_events(&self, group: GroupIx, item: &PlanItem, at: Time) -> Vec<Event> {
        let record = self.group(group);
        let mut rollout_position = record.rollout_position.clone();
        match item {
            PlanItem::Step { slot, rollout, outcome } => {
                let Ok(place) = record.slot_at(slot) else { return Vec::new() };
                let earlier = record.slots[place].step.filter(|step| step.rollout == *rollout);
                if earlier.is_some_and(|step| !step.outcome.may_become(*outcome)) {
                    return Vec::new();
                }
                let kind = earlier.map_or(StepKind::Changed, |step| step.kind);
                let step = Step { rollout: *rollout, kind, at, outcome: *outcome };
                return vec![Event::SlotStepped { group: record.key.clone(), slot: slot.clone(), step }];
            }
            PlanItem::NoRoom { since } => _ = rollout_position.no_room_since.get_or_insert(*since),
            PlanItem::Blocked { since } => rollout_position.blocked_since = *since,
            PlanItem::Promote => rollout_position.promoted = true,
            PlanItem::Open(_)
            | PlanItem::Place(_)
            | PlanItem::Wait(_)
            | PlanItem::Stop(_)
            | PlanItem::Close(_)
            | PlanItem::Restart { .. }
            | PlanItem::Reschedule { .. }
            | PlanItem::Collect(_)
            | PlanItem::GiveUp { .. }
            | PlanItem::EvenOutDone => return Vec::new(),
        }
        vec![Event::GroupRolloutChanged { group: record.key.clone(), rollout_position }]
    }

    fn may_wait(&self, group: GroupIx, slot: &SlotKey) -> bool {
        let record = self.group(group);
        record.slot_at(slot).is_ok_and(|at| !record.slots[at].replicas.iter().any(is_live))
    }

    fn closing_events(&self, group: GroupIx, key: &GroupKey, slot: &SlotKey) -> Vec<Event> {
        let record = self.group(group);
        let Ok(at) = record.slot_at(slot) else { return Vec::new() };
        let replicas = &record.slots[at].replicas;
        if replicas.is_empty() {
            return vec![Event::SlotGone { group: key.clone(), slot: slot.clone() }];
        }
        let stops = replicas.iter().filter(|replica| replica.desired == DesiredState::Run);
        let stops = stops.map(|replica| Event::Stopping(key.replica(slot, replica.generation)));
        std::iter::once(Event::SlotClosing { group: key.clone(), slot: slot.clone() }).chain(stops).collect()
    }

    fn rescheduling_events(&self, group: GroupIx, key: &SlotGeneration, at: Time, delay: Duration) -> Vec<Event> {
        let record = self.group(group);
        let Some(replica) = record.replica(&key.slot, key.generation) else { return Vec::new() };
        let from = self.nodes.node(replica.node).name.clone();
        let mut moves = record.reschedules.get(&key.slot).cloned().unwrap_or_default();
        moves.push(Rescheduled { at, from, delay });
        let noted = Event::Rescheduled { group: record.key.clone(), slot: key.slot.clone(), moves };
        vec![noted, Event::Stopping(key.clone().in_group(&record.key))]
    }

    fn collecting_events(&self, group: GroupIx, key: &SlotGeneration) -> Vec<Event> {
        let record = self.group(group);
        let Some(replica) = record.replica(&key.slot, key.generation) else { return Vec::new() };
        let mut collected = record.collected.clone();
        let ending = if replica.state == ReplicaState::Completed { JobOutcome::Completed } else { JobOutcome::Failed };
        match ending {
            JobOutcome::Completed => collected.completed += 1,
            JobOutcome::Failed => collected.failed += 1,
        }
        if let SlotKey::Node(node) = &key.slot {
            collected.nodes.insert(node.clone(), ending);
        }
        let mut events = vec![Event::Collected { group: record.key.clone(), collected }];
        events.extend(self.closing_events(group, &record.key, &key.slot));
        events
    }

    /// Reverts everything that was applied speculatively.
    pub(crate) fn revert(&mut self, speculation: Speculation) {
        for ((group, key), before) in speculation.slots {
            self.restore_slot(group, &key, before);
        }
        for (group, GroupRecords { next_index, reschedules, collected, rollout_position }) in speculation.records {
            let group = self.group_mut(group);
            (group.next_index, group.reschedules, group.collected) = (next_index, reschedules, collected);
            group.rollout_position = rollout_position;
        }
        for key in &speculation.homes {
            self.volumes.clear_home(key);
        }
        self.dirty = speculation.dirty;
        self.waiting = speculation.waiting;
        self.capacity_freed = false;
    }

    fn restore_slot(&mut self, group: GroupIx, key: &SlotKey, before: Option<Slot>) {
        let record = self.group_mut(group);
        let after = record.slot_at(key).ok().map(|at| record.slots.remove(at));
        let was = |generation: Generation| {
            before.iter().flat_map(|slot| &slot.replicas).find(|replica| replica.generation == generation)
        };
        let owner = record.key.clone();
        for replica in after.iter().flat_map(|slot| &slot.replicas) {
            match was(replica.generation) {
                Some(before) if occupancy::counts(before) && !occupancy::counts(replica) => {
                    self.count(&owner, before.node, &before.reservation);
                }
                Some(_) => {}
                None => self.unplace(group, key, replica),
            }
        }
        let record = self.group_mut(group);
        if let (Some(slot), Err(at)) = (before, record.slot_at(key)) {
            record.slots.insert(at, slot);
        }
    }

    /// Removes a generation that existed only speculatively.
    fn unplace(&mut self, group: GroupIx, slot: &SlotKey, replica: &Replica) {
        self.set_aside(group, slot, replica);
        self.nodes.leave(replica.node, group);
        self.nodes.addresses[replica.node.at()].free(address::host(replica.address));
    }
}

impl Speculation {
    /// Saves a slot before its first change.
    fn remember_slot(&mut self, view: &View, group: GroupIx, slot: &SlotKey) {
        let record = view.group(group);
        let as_it_is = || record.slot_at(slot).ok().map(|at| record.slots[at].clone());
        self.slots.entry((group, slot.clone())).or_insert_with(as_it_is);
    }
}

/// The slots an item changes.
fn changed_slots(item: &PlanItem) -> &[SlotKey] {
    match item {
        PlanItem::Open(slot) | PlanItem::Close(slot) | PlanItem::Step { slot, .. } => std::slice::from_ref(slot),
        PlanItem::Place(Placement { key, .. })
        | PlanItem::Stop(key)
        | PlanItem::Restart { key, .. }
        | PlanItem::Reschedule { key, .. }
        | PlanItem::Collect(key)
        | PlanItem::GiveUp { key, .. } => std::slice::from_ref(&key.slot),
        PlanItem::Wait(wait) => &wait.slots,
        PlanItem::NoRoom { .. } | PlanItem::Blocked { .. } | PlanItem::Promote | PlanItem::EvenOutDone => &[],
    }
}

fn opened(group: &GroupKey, slot: &SlotKey) -> Event {
    Event::SlotOpened { group: group.clone(), slot: slot.clone(), newest: Generation(0), moved_at: None }
}

fn placed(part: &GroupPlan, placement: &Placement, at: Time) -> Vec<Event> {
    let assignment = Assignment {
        node: placement.node.clone(),
        address: placement.address,
        placed_at: at,
        reservation: Arc::clone(placement.reservation.as_ref().unwrap_or(&part.reservation)),
        devices: placement.devices.clone(),
    };
    let volume = |key: &VolumeKey| {
        let (owner, home) = (part.group.deployment.clone(), placement.node.clone());
        Event::VolumeCreated(Volume { key: key.clone(), owner, home, engine_name: None })
    };
    let mut events: Vec<Event> = placement.new_volumes.iter().map(volume).collect();
    events.push(Event::Placed { key: placement.key.clone().in_group(&part.group), assignment });
    events
}

fn given_up(group: &GroupKey, slot: &SlotKey, replica: &Replica, code: RuntimeCode, at: Time) -> Event {
    Event::Observed {
        key: group.replica(slot, replica.generation),
        attempt: replica.attempt,
        state: ReplicaState::Failed,
        code: Some(code),
        details: Details::new(),
        failures: replica.failures,
        history: replica.history,
        at,
        replaced_by: replica.replaced_by,
    }
}
