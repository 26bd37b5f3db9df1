//! A plan taken for carried out, until it is taken back.
//!
//! What follows from a plan is found by looking at the cluster as the plan will leave it. The changes go through the same
//! events as when the plan is committed, so that what is seen here is what will be seen then; only the way back is its
//! own. Copying the view was refused: it would cost the cluster where this costs what the plan touches.
//!
//! Owns: the events a plan will have, and the slots as they were before them.
//! Invariant: after [`View::take_back`] the view is what it was; before, it is what committing the plan will make it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use longshore_model::{
    Assignment, Event, Generation, GroupKey, GroupPlan, Placement, PlanItem, ReplicaState, RuntimeCode, SlotKey, Time,
    VolumeKey,
    replica::{Collected, Details, Ending, Rescheduled, Wanted},
    rollout::{Promoted, Rolling, Step, StepKind, StepOutcome},
    volume::Volume,
};

use super::{
    GroupIx, RoomAppeared, View,
    groups::{Group, Replica, Slot, is_live},
    occupancy,
};
use crate::address;

/// What is needed to take plans back.
#[derive(Debug)]
pub(crate) struct Supposed {
    dirty: BTreeSet<GroupIx>,
    waiting: BTreeSet<GroupIx>,
    /// Slots as they were before the first change to each; `None` where there was none.
    slots: BTreeMap<(GroupIx, SlotKey), Option<Slot>>,
    /// What is known of whole groups, as it was.
    records: BTreeMap<GroupIx, Records>,
    homes: Vec<VolumeKey>,
}

/// What a plan can change of a group beside its slots.
#[derive(Debug)]
struct Records {
    next_index: u32,
    reschedules: BTreeMap<SlotKey, Vec<Rescheduled>>,
    collected: Collected,
    rolling: Rolling,
}

impl Records {
    fn of(group: &Group) -> Self {
        let (reschedules, collected) = (group.reschedules.clone(), group.collected.clone());
        Self { next_index: group.next_index, reschedules, collected, rolling: group.rolling.clone() }
    }
}

impl View {
    /// Begins to suppose.
    pub(crate) fn suppose(&self) -> Supposed {
        Supposed {
            dirty: self.dirty.clone(),
            waiting: self.waiting.clone(),
            slots: BTreeMap::new(),
            records: BTreeMap::new(),
            homes: Vec::new(),
        }
    }

    /// Takes changes for carried out.
    pub(crate) fn carry_out(&mut self, changes: &[GroupPlan], at: Time, supposed: &mut Supposed) {
        for part in changes {
            let Some(&group) = self.group_ids.get(&part.group) else { continue };
            supposed.records.entry(group).or_insert_with(|| Records::of(self.group(group)));
            for item in &part.items {
                self.carry_out_item(group, part, item, at, supposed);
            }
        }
    }

    fn carry_out_item(&mut self, group: GroupIx, part: &GroupPlan, item: &PlanItem, at: Time, supposed: &mut Supposed) {
        for slot in named(item) {
            supposed.keep(self, group, slot);
        }
        let events = match item {
            PlanItem::Open(slot) => self.opening_events(group, slot, at),
            PlanItem::Place(placement) => {
                supposed.homes.extend(placement.new_volumes.iter().cloned());
                let mut events = self.opening_events(group, &placement.slot, at);
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
            PlanItem::Stop { slot, generation } => vec![stopping(&part.group, slot, *generation)],
            PlanItem::Close(slot) => self.closing_events(group, &part.group, slot),
            PlanItem::Restart { slot, generation, attempt } => {
                let (group, slot) = (part.group.clone(), slot.clone());
                vec![Event::Restarting { group, slot, generation: *generation, attempt: *attempt }]
            }
            PlanItem::Reschedule { slot, generation, delay } => {
                self.rescheduling_events(group, slot, *generation, (at, *delay))
            }
            PlanItem::Collect { slot, generation } => self.collecting_events(group, slot, *generation),
            PlanItem::Step { .. } | PlanItem::NoRoom { .. } | PlanItem::Promote => self.rolling_events(group, item, at),
            // No pass decides that: the rebalancer does, in a plan of its own.
            PlanItem::EvenedOut => Vec::new(),
            PlanItem::GiveUp { slot, generation, code } => {
                let found = self.group_mut(group).slot_mut(slot).and_then(|slot| slot.replica_mut(*generation));
                found.map(|replica| given_up(&part.group, slot, replica, *code, at)).into_iter().collect()
            }
        };
        for event in &events {
            self.apply(event);
        }
    }

    /// A slot comes to be, and where a rollout is live it is a step of it.
    fn opening_events(&self, group: GroupIx, slot: &SlotKey, at: Time) -> Vec<Event> {
        let known = self.group(group);
        let mut events = vec![opened(&known.key, slot)];
        let rollout = self.rollout_of(&known.key).filter(|_| !known.spec.kind.is_job());
        if let (Some(rollout), Err(_)) = (rollout, known.slot_at(slot)) {
            let (kind, outcome) = (StepKind::Added, StepOutcome::UnderWay);
            let step = Step { rollout: rollout.number, kind, at, outcome };
            events.push(Event::SlotStepped { group: known.key.clone(), slot: slot.clone(), step });
        }
        events
    }

    fn rolling_events(&self, group: GroupIx, item: &PlanItem, at: Time) -> Vec<Event> {
        let known = self.group(group);
        let mut rolling = known.rolling.clone();
        match item {
            PlanItem::Step { slot, rollout, outcome } => {
                let Ok(place) = known.slot_at(slot) else { return Vec::new() };
                let earlier = known.slots[place].step.filter(|step| step.rollout == *rollout);
                if earlier.is_some_and(|step| step.outcome != StepOutcome::UnderWay || step.outcome == *outcome) {
                    return Vec::new();
                }
                let kind = earlier.map_or(StepKind::Changed, |step| step.kind);
                let step = Step { rollout: *rollout, kind, at, outcome: *outcome };
                return vec![Event::SlotStepped { group: known.key.clone(), slot: slot.clone(), step }];
            }
            PlanItem::NoRoom { since } => _ = rolling.no_room_since.get_or_insert(*since),
            PlanItem::Promote => rolling.promotion = Promoted::Yes,
            PlanItem::Open(_)
            | PlanItem::Place(_)
            | PlanItem::Wait(_)
            | PlanItem::Stop { .. }
            | PlanItem::Close(_)
            | PlanItem::Restart { .. }
            | PlanItem::Reschedule { .. }
            | PlanItem::Collect { .. }
            | PlanItem::GiveUp { .. }
            | PlanItem::EvenedOut => return Vec::new(),
        }
        vec![Event::GroupRolls { group: known.key.clone(), rolling }]
    }

    fn may_wait(&self, group: GroupIx, slot: &SlotKey) -> bool {
        let known = self.group(group);
        known.slot_at(slot).is_ok_and(|at| !known.slots[at].replicas.iter().any(is_live))
    }

    fn closing_events(&self, group: GroupIx, key: &GroupKey, slot: &SlotKey) -> Vec<Event> {
        let known = self.group(group);
        let Ok(at) = known.slot_at(slot) else { return Vec::new() };
        let replicas = &known.slots[at].replicas;
        if replicas.is_empty() {
            return vec![Event::SlotGone { group: key.clone(), slot: slot.clone() }];
        }
        let stops = replicas.iter().filter(|replica| replica.wanted == Wanted::Run);
        let stops = stops.map(|replica| stopping(key, slot, replica.generation));
        std::iter::once(Event::SlotClosing { group: key.clone(), slot: slot.clone() }).chain(stops).collect()
    }

    fn rescheduling_events(
        &self,
        group: GroupIx,
        slot: &SlotKey,
        generation: Generation,
        (at, delay): (Time, Duration),
    ) -> Vec<Event> {
        let known = self.group(group);
        let replicas = known.slot_at(slot).ok().map(|at| &known.slots[at].replicas);
        let replica = replicas.into_iter().flatten().find(|replica| replica.generation == generation);
        let Some(replica) = replica else { return Vec::new() };
        let from = self.fleet.node(replica.node).name.clone();
        let mut moves = known.reschedules.get(slot).cloned().unwrap_or_default();
        moves.push(Rescheduled { at, from, delay });
        let noted = Event::Rescheduled { group: known.key.clone(), slot: slot.clone(), moves };
        vec![noted, stopping(&known.key, slot, generation)]
    }

    fn collecting_events(&self, group: GroupIx, slot: &SlotKey, generation: Generation) -> Vec<Event> {
        let known = self.group(group);
        let replicas = known.slot_at(slot).ok().map(|at| &known.slots[at].replicas);
        let replica = replicas.into_iter().flatten().find(|replica| replica.generation == generation);
        let Some(replica) = replica else { return Vec::new() };
        let mut collected = known.collected.clone();
        let ending = if replica.state == ReplicaState::Completed { Ending::Completed } else { Ending::Failed };
        match ending {
            Ending::Completed => collected.completed += 1,
            Ending::Failed => collected.failed += 1,
        }
        if let SlotKey::Node(node) = slot {
            collected.nodes.insert(node.clone(), ending);
        }
        let mut events = vec![Event::Collected { group: known.key.clone(), collected }];
        events.extend(self.closing_events(group, &known.key, slot));
        events
    }

    /// Takes everything back that was supposed.
    pub(crate) fn take_back(&mut self, supposed: Supposed) {
        for ((group, key), before) in supposed.slots {
            self.put_back(group, &key, before);
        }
        for (group, Records { next_index, reschedules, collected, rolling }) in supposed.records {
            let group = self.group_mut(group);
            (group.next_index, group.reschedules, group.collected) = (next_index, reschedules, collected);
            group.rolling = rolling;
        }
        for key in &supposed.homes {
            self.volumes.unsettle(key);
        }
        self.dirty = supposed.dirty;
        self.waiting = supposed.waiting;
        self.room_appeared = RoomAppeared::No;
    }

    fn put_back(&mut self, group: GroupIx, key: &SlotKey, before: Option<Slot>) {
        let known = self.group_mut(group);
        let after = known.slot_at(key).ok().map(|at| known.slots.remove(at));
        let was = |generation: Generation| {
            before.iter().flat_map(|slot| &slot.replicas).find(|replica| replica.generation == generation)
        };
        let owner = known.key.clone();
        for replica in after.iter().flat_map(|slot| &slot.replicas) {
            match was(replica.generation) {
                Some(before) if occupancy::counts(before) && !occupancy::counts(replica) => {
                    self.count(&owner, before.node, &before.terms);
                }
                Some(_) => {}
                None => self.unplace(group, key, replica),
            }
        }
        let known = self.group_mut(group);
        if let (Some(slot), Err(at)) = (before, known.slot_at(key)) {
            known.slots.insert(at, slot);
        }
    }

    /// A generation that was only supposed is gone without a trace.
    fn unplace(&mut self, group: GroupIx, slot: &SlotKey, replica: &Replica) {
        self.set_aside(group, slot, replica);
        self.fleet.leave(replica.node, group);
        self.fleet.addresses[replica.node.at()].free(address::host(replica.address));
    }
}

impl Supposed {
    /// Remembers a slot as it is, unless it was changed before.
    fn keep(&mut self, view: &View, group: GroupIx, slot: &SlotKey) {
        let known = view.group(group);
        let as_it_is = || known.slot_at(slot).ok().map(|at| known.slots[at].clone());
        self.slots.entry((group, slot.clone())).or_insert_with(as_it_is);
    }
}

/// The slots an item changes.
fn named(item: &PlanItem) -> &[SlotKey] {
    match item {
        PlanItem::Open(slot)
        | PlanItem::Close(slot)
        | PlanItem::Place(Placement { slot, .. })
        | PlanItem::Stop { slot, .. }
        | PlanItem::Restart { slot, .. }
        | PlanItem::Reschedule { slot, .. }
        | PlanItem::Collect { slot, .. }
        | PlanItem::Step { slot, .. }
        | PlanItem::GiveUp { slot, .. } => std::slice::from_ref(slot),
        PlanItem::Wait(wait) => &wait.slots,
        PlanItem::NoRoom { .. } | PlanItem::Promote | PlanItem::EvenedOut => &[],
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
        terms: Arc::clone(placement.terms.as_ref().unwrap_or(&part.terms)),
        devices: placement.devices.clone(),
    };
    let (group, slot, generation) = (part.group.clone(), placement.slot.clone(), placement.generation);
    let volume = |key: &VolumeKey| {
        let (owner, home) = (part.group.deployment.clone(), placement.node.clone());
        Event::VolumeMade(Volume { key: key.clone(), owner, home })
    };
    let mut events: Vec<Event> = placement.new_volumes.iter().map(volume).collect();
    events.push(Event::Placed { group, slot, generation, assignment });
    events
}

fn stopping(group: &GroupKey, slot: &SlotKey, generation: Generation) -> Event {
    Event::Stopping { group: group.clone(), slot: slot.clone(), generation }
}

fn given_up(group: &GroupKey, slot: &SlotKey, replica: &Replica, code: RuntimeCode, at: Time) -> Event {
    Event::Observed {
        group: group.clone(),
        slot: slot.clone(),
        generation: replica.generation,
        attempt: replica.attempt,
        state: ReplicaState::Failed,
        code: Some(code),
        details: Details::new(),
        failures: replica.failures,
        at,
        rival: replica.rival,
    }
}
