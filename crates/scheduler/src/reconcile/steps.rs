//! Which slots change next, and how: the new generation first where both fit, the old one gone first where they do not.
//!
//! Owns: parallelism, delay, canaries, order and its fall-back. Must not touch: whether a step has succeeded.
//! Invariant: no more slots than `parallelism` are short because of a rollout, and none where the new generation goes
//! first; nothing that serves is stopped unless its successor would fit.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use longshore_model::{
    Explanation, PlanItem, ReplicaState, Rollout, RuntimeCode, ServiceSpec, SlotKey, Time,
    replica::Wanted,
    rollout::{StepKind, StepOutcome},
    service::{PortMode, UpdateOrder},
};

use super::{
    Pass, attempt, global,
    rollout::{self, Part},
    scale, slots,
};
use crate::{
    ask::Ask,
    explain,
    feasibility::gates::{self, Gate, dependencies},
    placement,
    view::{
        NodeIx, View,
        fleet::takes_work,
        groups::{Group, Replica, Slot},
    },
};

/// How long room for two generations at once is waited for, once in a rollout.
const ROOM_PATIENCE: Duration = Duration::from_secs(30);

/// Whether two generations of a slot cannot be alive together: they would fight for a port or a volume, or do the same
/// work twice.
pub(super) fn blocks_successor(spec: &ServiceSpec) -> bool {
    if spec.kind.is_job() {
        return true;
    }
    let host_port = spec.ports.iter().any(|port| port.mode == PortMode::Host);
    spec.update.order == Some(UpdateOrder::StopFirst) || host_port || spec.volumes().next().is_some()
}

/// Lets as many of the outdated slots step as may be under way at once, by index.
pub(super) fn take(
    pass: &mut Pass<'_>,
    ask: &mut Ask,
    outdated: &[SlotKey],
    leaving: &BTreeSet<SlotKey>,
    closed: &BTreeSet<SlotKey>,
) {
    let Some(part) = Part::of(pass.view, ask).filter(Part::may_step) else { return };
    // What too many failures mean for the others is settled at the end of the pass.
    if rollout::is_broken(pass, ask, &part, closed) {
        return;
    }
    // What comes first changes first. The way back waits for nobody.
    if !part.goes_back() && dependencies::unmet(pass.view, &ask.key, &ask.spec).is_some() {
        pass.view.waiting.insert(ask.group);
        return;
    }
    let ahead = pass.view.group(ask.group).wanted_slots().filter(|slot| !closed.contains(&slot.key));
    let ahead: Vec<SlotKey> = ahead.filter(|slot| is_ahead(&part, ask, slot)).map(|slot| slot.key.clone()).collect();
    for slot in due(pass, ask, &part, (outdated, leaving), closed) {
        step(pass, ask, &part, &slot);
    }
    pass.items.extend(ahead.iter().map(|slot| part.step(slot, StepOutcome::UnderWay)));
}

/// Whether a slot went ahead in an earlier rollout to the same end, and its step in this one has not begun. Where some go ahead of the
/// others it is one of them: or whoever changes the count while they are waited for would send another ahead each time.
fn is_ahead(part: &Part, ask: &Ask, slot: &Slot) -> bool {
    let is_there = slot.current().is_some_and(|replica| !slots::is_outdated(ask, replica));
    part.canary.is_some() && part.outcome(slot).is_none() && is_there && !is_added(slot)
}

/// The slots whose turn it is.
fn due(
    pass: &mut Pass<'_>,
    ask: &Ask,
    part: &Part,
    (outdated, leaving): (&[SlotKey], &BTreeSet<SlotKey>),
    closed: &BTreeSet<SlotKey>,
) -> Vec<SlotKey> {
    let known = pass.view.group(ask.group);
    let staying: Vec<&Slot> = known.wanted_slots().filter(|slot| !closed.contains(&slot.key)).collect();
    let has_gone = |slot: &Slot| part.outcome(slot).is_some() && !is_added(slot) || is_ahead(part, ask, slot);
    let begun = staying.iter().filter(|slot| has_gone(slot)).count();
    let mut canaries = part.canary.map_or(usize::MAX, |count| (count as usize).saturating_sub(begun));
    let mut due: BTreeMap<SlotKey, Turn> = BTreeMap::new();
    for slot in outdated.iter().filter_map(|key| known.slot_at(key).ok().map(|at| &known.slots[at])) {
        let has_begun = part.outcome(slot).is_some();
        let Some(turn) = turn(pass, ask, part, leaving, slot).filter(|_| has_begun || canaries > 0) else { continue };
        canaries = canaries.saturating_sub(usize::from(!has_begun));
        due.insert(slot.key.clone(), turn);
    }
    // Those that jump are under way from now on; whoever has to wait for a turn waits for them too.
    let is_under_way = |slot: &&&Slot| match due.get(&slot.key) {
        Some(Turn::Jumps) => true,
        Some(Turn::Waits) => false,
        None => holds_up(pass, part, slot),
    };
    let under_way = staying.iter().filter(is_under_way).count();
    let free = match part.policy.parallelism {
        0 => usize::MAX,
        limit => (limit as usize).saturating_sub(under_way),
    };
    let pause_ends = pause_ends(part, &staying).filter(|at| *at > pass.now);
    let free = if pause_ends.is_some() { 0 } else { free };
    let waiting: BTreeSet<SlotKey> =
        due.iter().filter(|(_, turn)| **turn == Turn::Waits).skip(free).map(|(slot, _)| slot.clone()).collect();
    if let Some(at) = pause_ends.filter(|_| !waiting.is_empty()) {
        pass.wake(at);
    }
    due.into_keys().filter(|slot| !waiting.contains(slot)).collect()
}

/// How a slot comes to its turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// At once, as nothing is lost by it.
    Jumps,
    /// When no more are under way than may be.
    Waits,
}

/// How a slot that is outdated comes to its turn; not at all for as long as it is in the middle of something else.
fn turn(pass: &Pass<'_>, ask: &Ask, part: &Part, leaving: &BTreeSet<SlotKey>, slot: &Slot) -> Option<Turn> {
    let replica = slot.current()?;
    // Its data keeps it on its node: stopped there while the node takes no new work, it could not start again.
    if ask.spec.is_stateful() && !takes_work(pass.view.fleet.node(replica.node)) {
        return None;
    }
    // Where the old one must go first, one that serves waits for its turn whatever else is true of it: neither a drain nor
    // a change that leads nowhere is a reason to be short of more.
    let would_be_missed =
        serves(slot) && (old_goes_first(ask, part) || has_waited_for_room(pass.view.group(ask.group), pass.now));
    let hurries = part.outcome(slot).is_some() || leaving.contains(&slot.key) || jumps(pass, part, ask, slot, replica);
    match (hurries, would_be_missed) {
        (true, false) => Some(Turn::Jumps),
        (true, true) => Some(Turn::Waits),
        (false, _) => {
            // What has ended well serves nobody and is as good a canary as any.
            let stands = serves(slot) || replica.state == ReplicaState::Completed;
            (stands && !holds_up(pass, part, slot)).then_some(Turn::Waits)
        }
    }
}

/// Whether a slot changes at once and takes nobody's turn: it serves nobody, or is in the middle of a change that leads
/// nowhere. While canaries are held back that is true only of what has failed.
fn jumps(pass: &Pass<'_>, part: &Part, ask: &Ask, slot: &Slot, replica: &Replica) -> bool {
    let troubled = replica.failures > 0
        || matches!(replica.state, ReplicaState::Failed | ReplicaState::Degraded)
        || replica.code.is_some_and(|code| code != RuntimeCode::Pulling);
    let held = pass.view.group(ask.group).rolling.held.as_ref();
    let made = (&replica.terms.spec_hash, replica.terms.kind);
    // A slot that only moves, as it was, is let move.
    let moves = held.is_some_and(|held| made == (&held.spec.spec_hash, held.spec.kind));
    let idle = !serves(slot);
    let unsettled = !is_settled(pass, slot);
    idle && (troubled || part.canary.is_none()) || unsettled && (troubled || slot.replicas.len() > 1 && !moves)
}

/// When the pause after the last step ends.
fn pause_ends(part: &Part, slots: &[&Slot]) -> Option<Time> {
    let ended = slots.iter().filter(|slot| part.outcome(slot).is_some_and(|it| it != StepOutcome::UnderWay));
    let last = ended.filter_map(|slot| slot.step).map(|step| step.at).max()?;
    Some(last.after(part.policy.delay)).filter(|_| !part.policy.delay.is_zero())
}

/// How a slot's step in a rollout goes, if it has begun.
pub(super) fn outcome_in(rollout: &Rollout, slot: &Slot) -> Option<StepOutcome> {
    slot.step.filter(|step| step.rollout == rollout.number).map(|step| step.outcome)
}

pub(super) fn is_added(slot: &Slot) -> bool {
    slot.step.is_some_and(|step| step.kind == StepKind::Added)
}

/// Whether any generation of a slot does the service's work.
pub(super) fn serves(slot: &Slot) -> bool {
    slot.replicas.iter().any(|replica| replica.wanted == Wanted::Run && replica.state == ReplicaState::Running)
}

/// Whether a slot is in the middle of a change, so that others wait. One that was made for the rollout takes nothing away
/// from what was there, and one that failed for good holds nobody up.
fn holds_up(pass: &Pass<'_>, part: &Part, slot: &Slot) -> bool {
    let said = |outcome: StepOutcome| {
        let item = part.step(&slot.key, outcome);
        pass.items.contains(&item)
    };
    let begun = part.outcome(slot);
    if begun.is_some() && is_added(slot) {
        return false;
    }
    if matches!(begun, Some(StepOutcome::Failed(_))) {
        return false;
    }
    let under_way = begun == Some(StepOutcome::UnderWay) && !said(StepOutcome::Done);
    under_way || !is_settled(pass, slot)
}

/// Whether a slot runs one generation and no change is under way. One that failed for good holds nobody up.
fn is_settled(pass: &Pass<'_>, slot: &Slot) -> bool {
    let restarted =
        pass.items.iter().any(|item| matches!(item, PlanItem::Restart { slot: other, .. } if *other == slot.key));
    let given_up = pass.items.iter().filter_map(slots::given_up).any(|other| *other == slot.key);
    let settled = |replica: &Replica| match replica.state {
        ReplicaState::Running | ReplicaState::Completed => true,
        ReplicaState::Failed => given_up || replica.code == Some(RuntimeCode::RestartExhausted),
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Degraded
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Lost => given_up,
    };
    let current = slot.current().map(|replica| replica.generation);
    let others = slot.replicas.iter().filter(|replica| Some(replica.generation) != current);
    // One that is out of sight holds nobody up either.
    let alone = others.filter(|replica| !pass.view.fleet.is_down(replica.node)).count() == 0;
    !restarted && alone && slot.current().is_some_and(settled)
}

/// One slot changes, if there is a way for it to.
fn step(pass: &mut Pass<'_>, ask: &mut Ask, part: &Part, key: &SlotKey) {
    let known = pass.view.group(ask.group);
    let Ok(at) = known.slot_at(key) else { return };
    let slot = known.slots[at].clone();
    let Some(node) = slot.current().map(|replica| replica.node) else { return };
    if old_goes_first(ask, part) {
        if would_fit(pass.view, ask, &slot, Elsewhere::Too) {
            stop_first(pass, part, &slot);
        } else {
            pass.view.waiting.insert(ask.group);
        }
        return;
    }
    if start_first(pass, ask, part, &slot, node) {
        return;
    }
    // Room may appear without anything happening to the group.
    pass.view.waiting.insert(ask.group);
    if has_waited_for_room(pass.view.group(ask.group), pass.now) || !serves(&slot) {
        if would_fit(pass.view, ask, &slot, Elsewhere::Not) {
            stop_first(pass, part, &slot);
        }
        return;
    }
    note_no_room(pass, ask);
}

/// Notes that there is no room for old and new at once, and asks to be woken when that was waited for long enough.
pub(super) fn note_no_room(pass: &mut Pass<'_>, ask: &Ask) {
    let since = pass.view.group(ask.group).rolling.no_room_since;
    if since.is_none() && !pass.items.iter().any(|item| matches!(item, PlanItem::NoRoom { .. })) {
        pass.items.push(PlanItem::NoRoom { since: pass.now });
    }
    let over = since.unwrap_or(pass.now).after(ROOM_PATIENCE);
    if over > pass.now {
        pass.wake(over);
    }
}

/// Whether room for two generations at once was waited for long enough in this rollout.
pub(super) fn has_waited_for_room(known: &Group, now: Time) -> bool {
    known.rolling.no_room_since.is_some_and(|since| since.after(ROOM_PATIENCE) <= now)
}

/// Whether the last generation goes before the next comes, room or not.
pub(super) fn old_goes_first(ask: &Ask, part: &Part) -> bool {
    part.policy.order == Some(UpdateOrder::StopFirst) || blocks_successor(&ask.spec)
}

/// Whether a slot changes on its own node or not at all: its data is there, or it is that node's replica.
fn keeps_its_node(spec: &ServiceSpec) -> bool {
    spec.is_stateful() || spec.kind.is_per_node()
}

/// Places the next generation beside the last: on its node, else on another, unless it is bound to its own.
fn start_first(pass: &mut Pass<'_>, ask: &mut Ask, part: &Part, slot: &Slot, node: NodeIx) -> bool {
    super::suppose_told(pass.view, ask.group, &pass.items);
    if !matches!(gates::check(pass.view, ask, 1), Gate::Open) {
        return false;
    }
    ask.counts.remove_from(Some(node));
    let placed = match placement::place_at(pass.view, ask, slots::next_generation(slot), node) {
        Ok(placed) => Some(placed),
        Err(_) if keeps_its_node(&ask.spec) => None,
        Err(vacancy) => attempt::attempt(pass.view, ask, vec![vacancy]).placed.pop(),
    };
    let Some(placed) = placed else {
        ask.counts.add(node);
        return false;
    };
    if pass.view.fleet.node(node).name != placed.node {
        // Until the new one has proved itself the old one may be the one that stays.
        ask.counts.add_beside(node);
    }
    pass.items.push(PlanItem::Place(placed));
    pass.items.push(part.step(&slot.key, StepOutcome::UnderWay));
    true
}

/// Stops what the slot has; its next generation comes once that is gone.
fn stop_first(pass: &mut Pass<'_>, part: &Part, slot: &Slot) {
    let wanted = slot.replicas.iter().filter(|replica| replica.wanted == Wanted::Run);
    let stops = wanted.map(|replica| PlanItem::Stop { slot: slot.key.clone(), generation: replica.generation });
    pass.items.retain(|item| match item {
        PlanItem::Restart { slot: other, .. } | PlanItem::GiveUp { slot: other, .. } => *other != slot.key,
        _ => true,
    });
    pass.items.extend(stops);
    pass.items.push(part.step(&slot.key, StepOutcome::UnderWay));
}

/// Slots whose turn it is to change and that no node takes as they shall become, each with the reason. The view may be left
/// with what others were given on the way.
pub(crate) fn hindered(view: &mut View, ask: &mut Ask, now: Time) -> Vec<(Vec<SlotKey>, Explanation)> {
    let Some(part) = Part::of(view, ask).filter(Part::may_step) else { return Vec::new() };
    let closed = scale::surplus(view, view.group(ask.group), now);
    let mut pass = Pass::new(view, now);
    let (outdated, leaving) = if ask.spec.kind.is_per_node() {
        (global::outdated(&pass, ask, &closed), BTreeSet::new())
    } else {
        let needs = slots::needs(&mut pass, ask, &closed);
        (needs.outdated, needs.leaving)
    };
    if outdated.is_empty() || rollout::is_broken(&pass, ask, &part, &closed) {
        return Vec::new();
    }
    let due = due(&mut pass, ask, &part, (&outdated, &leaving), &closed);
    let unmet = dependencies::unmet(pass.view, &ask.key, &ask.spec).filter(|_| !part.goes_back());
    if let Some(refusal) = unmet {
        return vec![(due, explain::gated(pass.view, refusal))];
    }
    // One that already leaves its node is explained as any other that has to move.
    let due = due.into_iter().filter(|slot| !leaving.contains(slot));
    due.filter_map(|slot| Some((vec![slot.clone()], hindrance(&mut pass, ask, &part, &slot)?))).collect()
}

/// Why a slot cannot change now, if it cannot.
fn hindrance(pass: &mut Pass<'_>, ask: &mut Ask, part: &Part, key: &SlotKey) -> Option<Explanation> {
    let known = pass.view.group(ask.group);
    let slot = known.slots[known.slot_at(key).ok()?].clone();
    let node = slot.current()?.node;
    if old_goes_first(ask, part) {
        return without_its_last(pass.view, ask, &slot, Elsewhere::Too);
    }
    if start_first(pass, ask, part, &slot, node) {
        return None;
    }
    let since = pass.view.group(ask.group).rolling.no_room_since;
    if since.is_some_and(|since| since.after(ROOM_PATIENCE) <= pass.now) || !serves(&slot) {
        return without_its_last(pass.view, ask, &slot, Elsewhere::Not);
    }
    ask.counts.remove_from(Some(node));
    let why = nowhere(pass.view, ask);
    ask.counts.add(node);
    Some(why)
}

fn nowhere(view: &View, ask: &Ask) -> Explanation {
    match gates::check(view, ask, 1) {
        Gate::Shut(refusal) | Gate::Partly { refusal, .. } => explain::gated(view, refusal),
        Gate::Open => explain::nowhere(view, ask),
    }
}

/// Where room is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Elsewhere {
    Too,
    Not,
}

/// Whether the next generation of a slot would have a node if its last one were gone.
fn would_fit(view: &mut View, ask: &mut Ask, slot: &Slot, elsewhere: Elsewhere) -> bool {
    with_last_gone(view, ask, slot, |view, ask, node| fits(view, ask, node, elsewhere)).unwrap_or(false)
}

/// Whether a replica that waits would have a node if what a slot has were gone: that slot's own node where each has its own, else
/// any.
pub(super) fn makes_room(view: &mut View, ask: &mut Ask, slot: &Slot) -> bool {
    would_fit(view, ask, slot, Elsewhere::Too)
}

/// Why the next generation of a slot would have no node if its last one were gone.
fn without_its_last(view: &mut View, ask: &mut Ask, slot: &Slot, elsewhere: Elsewhere) -> Option<Explanation> {
    let why = |view: &View, ask: &Ask, node: NodeIx| {
        (!fits(view, ask, node, elsewhere)).then(|| match gates::check(view, ask, 1) {
            Gate::Open if elsewhere == Elsewhere::Not => explain::at_node(view, ask, node),
            Gate::Open | Gate::Shut(_) | Gate::Partly { .. } => nowhere(view, ask),
        })
    };
    with_last_gone(view, ask, slot, why).flatten()
}

/// Looks at the cluster as if what a slot has were gone.
fn with_last_gone<T>(
    view: &mut View,
    ask: &mut Ask,
    slot: &Slot,
    look: impl FnOnce(&View, &Ask, NodeIx) -> T,
) -> Option<T> {
    let node = slot.current().map(|replica| replica.node)?;
    let gone: Vec<Replica> = slot.replicas.iter().filter(|replica| replica.wanted == Wanted::Run).cloned().collect();
    for replica in &gone {
        view.save_load(replica.node);
        view.set_aside(ask.group, &slot.key, replica);
    }
    ask.counts.remove_from(Some(node));
    let seen = look(view, ask, node);
    ask.counts.add(node);
    for replica in gone.iter().rev() {
        view.restore(ask.group, &slot.key, replica);
    }
    Some(seen)
}

fn fits(view: &View, ask: &Ask, node: NodeIx, elsewhere: Elsewhere) -> bool {
    let open = matches!(gates::check(view, ask, 1), Gate::Open);
    open && (ask.accepts(view, node) || elsewhere == Elsewhere::Too && fits_somewhere(view, ask))
}

fn fits_somewhere(view: &View, ask: &Ask) -> bool {
    !keeps_its_node(&ask.spec) && view.fleet.in_order().any(|node| ask.accepts(view, node))
}
