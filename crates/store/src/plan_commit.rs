//! Commits a plan item by item. Stale items are dropped, not repaired.
//!
//! Owns: creating and closing slots, generations and volumes.
//! Must not touch: policy. An item is checked only against the versions recorded in its own slot.
//! Invariant: committing the same plan again changes nothing.

use std::net::Ipv6Addr;

use longshore_model::{
    Assignment, Attempt, Event, Generation, GroupKey, GroupPlan, NodeName, Placement, Plan, PlanItem, ReplicaKey,
    ReplicaState, RuntimeCode, Slot, SlotIndex, SlotKey, Time, VolumeKey, Wait,
    rebalance::Move,
    replica::{DesiredState, Details, Replica, RestartHistory},
    volume::Volume,
};

use crate::{State, state::Group, state_events::observed, status::is_live};

impl State {
    pub(crate) fn commit(&mut self, plan: Plan) -> Vec<Event> {
        let mut events = Vec::new();
        for part in plan.groups {
            self.commit_group(part, plan.made_at, &mut events);
        }
        self.commit_nodes(plan.nodes, plan.made_at, &mut events);
        for part in plan.deployments {
            self.commit_rollout(part, plan.made_at, &mut events);
        }
        events
    }

    fn commit_group(&mut self, part: GroupPlan, at: Time, events: &mut Vec<Event>) {
        let GroupPlan { group: key, reservation, items } = part;
        let stopped = self.is_stopped(&key);
        for item in items {
            // The plan was made before an operator stopped the deployment: what it starts would be stopped at once.
            if stopped && !ends_something(&item) {
                continue;
            }
            match item {
                PlanItem::Open(slot) => self.open(&key, &slot, None, at, events),
                PlanItem::Place(placement) => {
                    let assignment = Assignment {
                        node: placement.node.clone(),
                        address: placement.address,
                        placed_at: at,
                        reservation: placement.reservation.clone().unwrap_or_else(|| reservation.clone()),
                        devices: placement.devices.clone(),
                    };
                    self.place(&key, placement, assignment, events);
                }
                PlanItem::Wait(wait) => self.wait(&key, &wait, events),
                PlanItem::Stop(item) => self.stop(&item.in_group(&key), events),
                PlanItem::Close(slot) => self.close(&key, &slot, events),
                PlanItem::Restart { key: item, attempt } => self.restart(item.in_group(&key), attempt, at, events),
                PlanItem::Reschedule { key: item, delay } => {
                    self.reschedule(&item.in_group(&key), at, delay, events);
                }
                PlanItem::Collect(item) => self.collect(&item.in_group(&key), events),
                PlanItem::Step { slot, rollout, outcome } => self.step(&key, &slot, rollout, outcome, at, events),
                PlanItem::NoRoom { since } => self.note_no_room(&key, since, events),
                PlanItem::Blocked { since } => self.note_blocked(&key, since, events),
                PlanItem::Promote => self.promote(&key, events),
                PlanItem::GiveUp { key: item, code } => self.give_up(&item.in_group(&key), code, at, events),
                PlanItem::EvenOutDone => self.finish_rebalance(&key, events),
            }
        }
    }

    /// `placed` is the slot's first generation, where it is opened for one.
    fn open(&mut self, key: &GroupKey, slot: &SlotKey, placed: Option<&Assignment>, at: Time, events: &mut Vec<Event>) {
        if let Some(group) = self.groups.get_mut(key).filter(|group| may_open(group, slot)) {
            open_slot(key, group, slot, events);
            self.step_of_new_slot(key, slot, placed, at, events);
        }
    }

    fn place(&mut self, key: &GroupKey, placement: Placement, assignment: Assignment, events: &mut Vec<Event>) {
        let Some(group) = self.groups.get_mut(key).filter(|group| group.desired == DesiredState::Run) else {
            return;
        };
        let newest = match group.slots.get(&placement.key.slot) {
            Some(slot) if slot.desired == DesiredState::Stop => return,
            Some(slot) => slot.newest,
            None if may_open(group, &placement.key.slot) => Generation(0),
            None => return,
        };
        if !self.nodes.contains_key(&placement.node) || placement.key.generation.0 != newest.0 + 1 {
            return;
        }
        if !group.slots.contains_key(&placement.key.slot) {
            self.open(key, &placement.key.slot, Some(&assignment), assignment.placed_at, events);
        }
        let Some(slot) = self.groups.get_mut(key).and_then(|group| group.slots.get_mut(&placement.key.slot)) else {
            return;
        };
        slot.newest = placement.key.generation;
        slot.waiting = None;
        slot.waiting_details = Details::new();
        // A slot grows by one generation at a time. The default growth would quadruple the memory of a million slots.
        slot.replicas.reserve_exact(1);
        slot.replicas.push(new_replica(placement.key.generation, assignment.clone()));
        for volume in placement.new_volumes {
            self.make_volume(key, volume, &assignment, events);
        }
        let (key, at) = (placement.key.in_group(key), assignment.placed_at);
        events.push(Event::Placed { key: key.clone(), assignment });
        if let Some(score) = placement.moved {
            self.record_move(Move { key, to: placement.node, at, score: *score }, events);
        }
    }

    fn make_volume(&mut self, key: &GroupKey, volume: VolumeKey, assignment: &Assignment, events: &mut Vec<Event>) {
        if self.volumes.contains_key(&volume) {
            return;
        }
        let engine_name = self
            .deployment(&key.namespace, &key.deployment)
            .and_then(|known| known.current().spec.volumes.get(volume.name.as_str())?.engine_name.clone());
        let home = assignment.node.clone();
        // A one-off job may be the first to mount a volume of its deployment, and is gone before it.
        let one_off = self.groups.get(key).and_then(|group| group.spec.one_off.as_ref());
        let owner = one_off.map_or(&key.deployment, |job| &job.of).clone();
        let made = Volume { key: volume.clone(), owner, home, engine_name };
        self.volumes.insert(volume, made.clone());
        events.push(Event::VolumeCreated(made));
    }

    fn wait(&mut self, key: &GroupKey, wait: &Wait, events: &mut Vec<Event>) {
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        for slot_key in &wait.slots {
            let Some(slot) = group.slots.get_mut(slot_key).filter(|slot| may_wait(slot)) else {
                continue;
            };
            if slot.waiting == Some(wait.reason) && slot.waiting_details == wait.details {
                continue;
            }
            slot.waiting = Some(wait.reason);
            slot.waiting_details = wait.details.clone();
            events.push(Event::SlotWaits {
                group: key.clone(),
                slot: slot_key.clone(),
                reason: wait.reason,
                details: wait.details.clone(),
            });
        }
    }

    fn stop(&mut self, key: &ReplicaKey, events: &mut Vec<Event>) {
        if let Some(replica) = self.replica_mut(key) {
            stop_replica(&key.group, &key.slot, replica, events);
        }
    }

    pub(crate) fn close(&mut self, key: &GroupKey, slot_key: &SlotKey, events: &mut Vec<Event>) {
        let Some(slot) = self.groups.get_mut(key).and_then(|group| group.slots.get_mut(slot_key)) else {
            return;
        };
        let was_wanted = slot.desired == DesiredState::Run;
        if was_wanted {
            slot.desired = DesiredState::Stop;
            slot.waiting = None;
            slot.waiting_details = Details::new();
            if !slot.replicas.is_empty() {
                events.push(Event::SlotClosing { group: key.clone(), slot: slot_key.clone() });
            }
            for replica in &mut slot.replicas {
                stop_replica(key, slot_key, replica, events);
            }
        }
        if was_wanted {
            self.count_closed(key);
        }
        self.forget_slot_if_done(key, slot_key, events);
    }

    fn restart(&mut self, key: ReplicaKey, attempt: Attempt, at: Time, events: &mut Vec<Event>) {
        let Some(replica) = self.replica_mut(&key) else {
            return;
        };
        if replica.desired == DesiredState::Stop || attempt.0 != replica.attempt.0 + 1 {
            return;
        }
        replica.attempt = attempt;
        replica.restarts += 1;
        if replica.code == Some(RuntimeCode::RestartExhausted) {
            replica.failures = 0;
            replica.history = replica.history.after_return();
        }
        replica.state = ReplicaState::Pending;
        replica.code = None;
        replica.details = Details::new();
        replica.since = at;
        events.push(Event::Restarting { key, attempt });
    }

    fn give_up(&mut self, key: &ReplicaKey, code: RuntimeCode, at: Time, events: &mut Vec<Event>) {
        let Some(replica) = self.replica_mut(key) else {
            return;
        };
        let given_up = replica.state == ReplicaState::Failed && replica.code == Some(code);
        // A replica that was lost meanwhile is replaced, not given up.
        if replica.desired == DesiredState::Stop || given_up || replica.state == ReplicaState::Lost {
            return;
        }
        // `since` is the time of the decision, so a replica given up late is shown as failed for the full time.
        replica.since = at;
        replica.state = ReplicaState::Failed;
        replica.code = Some(code);
        events.push(observed(&key.group, &key.slot, replica));
    }

    pub(crate) fn replica_mut(&mut self, key: &ReplicaKey) -> Option<&mut Replica> {
        let slot = self.groups.get_mut(&key.group)?.slots.get_mut(&key.slot)?;
        slot.replicas.iter_mut().find(|replica| replica.generation == key.generation)
    }

    /// Frees what a generation occupied, once it was seen stopped or its node was removed.
    pub(crate) fn release(&mut self, key: &ReplicaKey, at: Time, events: &mut Vec<Event>) {
        let Some(slot) = self.groups.get_mut(&key.group).and_then(|group| group.slots.get_mut(&key.slot)) else {
            return;
        };
        let Some(position) = slot.replicas.iter().position(|replica| replica.generation == key.generation) else {
            return;
        };
        let Assignment { node, address, .. } = slot.replicas.remove(position).assignment;
        events.push(Event::Released { key: key.clone(), at });
        self.rest_address(node, address, at, events);
        self.forget_slot_if_done(&key.group, &key.slot, events);
    }

    fn rest_address(&mut self, node: NodeName, address: Ipv6Addr, since: Time, events: &mut Vec<Event>) {
        while let Some(oldest) = self.resting.first_entry()
            && since.since(oldest.key().0) >= self.config.address_cooldown
        {
            oldest.remove();
        }
        self.resting.insert((since, address), node.clone());
        events.push(Event::AddressCoolingDown { node, address, since });
    }

    fn forget_slot_if_done(&mut self, key: &GroupKey, slot_key: &SlotKey, events: &mut Vec<Event>) {
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        let done = |slot: &Slot| slot.desired == DesiredState::Stop && slot.replicas.is_empty();
        if group.slots.get(slot_key).is_some_and(done) {
            group.slots.remove(slot_key);
            group.reschedules.remove(slot_key);
            events.push(Event::SlotGone { group: key.clone(), slot: slot_key.clone() });
            self.forget_group_if_done(key, events);
        }
    }
}

/// Whether an item stops or removes something, rather than starting or changing it.
const fn ends_something(item: &PlanItem) -> bool {
    match item {
        PlanItem::Stop(_) | PlanItem::Close(_) | PlanItem::Collect(_) | PlanItem::EvenOutDone => true,
        PlanItem::Open(_)
        | PlanItem::Place(_)
        | PlanItem::Wait(_)
        | PlanItem::Restart { .. }
        | PlanItem::Reschedule { .. }
        | PlanItem::Step { .. }
        | PlanItem::NoRoom { .. }
        | PlanItem::Blocked { .. }
        | PlanItem::Promote
        | PlanItem::GiveUp { .. } => false,
    }
}

/// Each index is used once. An index below the counter without a slot comes from a stale plan.
fn may_open(group: &Group, slot: &SlotKey) -> bool {
    let fresh = match slot {
        SlotKey::Index(index) => *index >= group.next_index,
        SlotKey::Node(_) => true,
    };
    group.desired == DesiredState::Run && fresh && !group.slots.contains_key(slot)
}

fn may_wait(slot: &Slot) -> bool {
    slot.desired == DesiredState::Run && !slot.replicas.iter().any(is_live)
}

fn open_slot(key: &GroupKey, group: &mut Group, slot: &SlotKey, events: &mut Vec<Event>) {
    if let SlotKey::Index(index) = slot {
        group.next_index = group.next_index.max(SlotIndex(index.0 + 1));
    }
    group.slots.insert(
        slot.clone(),
        Slot {
            key: slot.clone(),
            newest: Generation(0),
            replicas: Vec::new(),
            waiting: None,
            waiting_details: Details::new(),
            desired: DesiredState::Run,
            step: None,
            moved_at: None,
            starts_again: None,
        },
    );
    let (group, slot) = (key.clone(), slot.clone());
    events.push(Event::SlotOpened { group, slot, newest: Generation(0), moved_at: None });
}

fn new_replica(generation: Generation, assignment: Assignment) -> Replica {
    Replica {
        generation,
        attempt: Attempt(0),
        since: assignment.placed_at,
        assignment,
        desired: DesiredState::Run,
        state: ReplicaState::Pending,
        code: None,
        details: Details::new(),
        failures: 0,
        restarts: 0,
        history: RestartHistory::default(),
        before_loss: None,
        replaced_by: None,
    }
}

/// A lost replica stays `Lost`, because its agent has not received the stop. A completed one has nothing to drain.
pub(crate) fn stop_replica(key: &GroupKey, slot: &SlotKey, replica: &mut Replica, events: &mut Vec<Event>) {
    if replica.desired == DesiredState::Stop {
        return;
    }
    replica.desired = DesiredState::Stop;
    if !matches!(replica.state, ReplicaState::Lost | ReplicaState::Completed) {
        replica.state = ReplicaState::Draining;
        replica.code = None;
        replica.details = Details::new();
    }
    events.push(Event::Stopping(key.replica(slot, replica.generation)));
}
