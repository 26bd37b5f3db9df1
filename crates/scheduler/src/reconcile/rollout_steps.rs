//! Steps of a rollout: which slots step next, and how: start-first where both generations fit, else stop-first.
//!
//! Owns: canaries, order and its fallback. Must not touch: whether a step has succeeded, and how many may begin at once;
//! that is [`super::step_pace`].
//! Invariant: at most `parallelism` slots are short because of a rollout, and none with start-first order; a running
//! replica is stopped only if its successor would fit.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use longshore_model::{
    Explanation, PlanItem, ReplicaState, Rollout, RuntimeCode, ServiceSpec, SlotKey, Time,
    replica::DesiredState,
    rollout::{StepKind, StepOutcome},
    service::UpdateOrder,
};

use super::{
    GroupPass, global, jobs, place_batch,
    rollout::{self, GroupRollout},
    scale, slots,
    step_pace::StepPace,
    step_retry::Retries,
    superseded_canary,
};
use crate::{
    explain,
    feasibility::gates::{self, Gate, dependencies},
    placement,
    request::PlacementRequest,
    view::{
        NodeIx, View,
        groups::{Group, Replica, Slot},
        node_table::takes_work,
    },
};

/// How long a rollout waits for room for two generations of a slot, once, before it falls back to stop-first.
const NO_ROOM_WAIT: Duration = Duration::from_secs(30);

/// Whether two generations of a slot must not be alive together: they would conflict over a port or a volume, or do
/// the same work twice.
pub(super) fn blocks_successor(spec: &ServiceSpec) -> bool {
    if spec.kind.is_job() {
        return true;
    }
    spec.update.order == Some(UpdateOrder::StopFirst) || spec.excludes_second_generation()
}

/// Begins the steps of as many outdated slots as may be under way at once, by index. Returns those whose step is due and
/// could not begin.
pub(super) fn take_steps(
    pass: &mut GroupPass<'_>,
    request: &mut PlacementRequest,
    outdated: &[SlotKey],
    leaving: &BTreeSet<SlotKey>,
    closed: &BTreeSet<SlotKey>,
) -> Vec<SlotKey> {
    let part = GroupRollout::of(pass.view, request).filter(GroupRollout::may_step);
    let Some(part) = part else { return Vec::new() };
    // What too many failures mean for the rollout is decided at the end of the pass.
    if rollout::has_too_many_failures(pass, request, &part, closed) {
        return Vec::new();
    }
    // Dependencies change first. A rollback does not wait for them.
    if !part.is_rolling_back() && dependencies::unmet(pass.view, &request.key, &request.spec).is_some() {
        pass.view.waiting.insert(request.group);
        let is_hopeless = !dependencies::may_still_be_met(pass.view, &request.key, &request.spec);
        let group = pass.view.group(request.group);
        // One that is still on its way up is not due.
        let is_due = |key: &&SlotKey| group.slot_at(key).is_ok_and(|at| !is_coming(&group.slots[at]));
        return outdated.iter().find(is_due).filter(|_| is_hopeless).into_iter().cloned().collect();
    }
    let ahead = pass.view.group(request.group).desired_slots().filter(|slot| !closed.contains(&slot.key));
    let ahead: Vec<SlotKey> =
        ahead.filter(|slot| stepped_in_earlier_rollout(&part, request, slot)).map(|slot| slot.key.clone()).collect();
    let due = due(pass, request, &part, outdated, leaving, closed);
    for slot in &due {
        step(pass, request, &part, slot);
    }
    pass.items.extend(ahead.iter().map(|slot| part.step(slot, StepOutcome::UnderWay)));
    due
}

/// Whether a slot was changed as a canary by an earlier rollout to the same spec, and its step in this one has not
/// begun. It counts as a canary of this rollout: otherwise each change of the count while canaries are held would
/// change one more.
fn stepped_in_earlier_rollout(part: &GroupRollout, request: &PlacementRequest, slot: &Slot) -> bool {
    let is_there = slot.current().is_some_and(|replica| !slots::is_outdated(request, replica));
    part.canary.is_some() && part.outcome(slot).is_none() && is_there && !is_added(slot)
}

/// The slots that step now.
fn due(
    pass: &mut GroupPass<'_>,
    request: &PlacementRequest,
    part: &GroupRollout,
    outdated: &[SlotKey],
    leaving: &BTreeSet<SlotKey>,
    closed: &BTreeSet<SlotKey>,
) -> Vec<SlotKey> {
    let group = pass.view.group(request.group);
    let staying: Vec<&Slot> = group.desired_slots().filter(|slot| !closed.contains(&slot.key)).collect();
    let has_gone = |slot: &Slot| {
        part.outcome(slot).is_some() && !is_added(slot) || stepped_in_earlier_rollout(part, request, slot)
    };
    let begun = staying.iter().filter(|slot| has_gone(slot)).count();
    let mut canaries = part.canary.map_or(usize::MAX, |count| (count as usize).saturating_sub(begun));
    let mut due: BTreeMap<SlotKey, StepTurn> = BTreeMap::new();
    let mut outdated: Vec<&Slot> =
        outdated.iter().filter_map(|key| group.slot_at(key).ok().map(|at| &group.slots[at])).collect();
    // A canary of a superseded rollout is the first to become one of this.
    outdated.sort_by_key(|slot| !slot.current().is_some_and(|it| superseded_canary::is_superseded(pass, request, it)));
    for slot in outdated {
        let has_begun = part.outcome(slot).is_some();
        let Some(turn) = turn(pass, request, part, leaving, slot).filter(|_| has_begun || canaries > 0) else {
            continue;
        };
        canaries = canaries.saturating_sub(usize::from(!has_begun));
        due.insert(slot.key.clone(), turn);
    }
    // Immediate steps are under way from now on; those in order are limited by them too.
    let turn_of = |slot: &Slot| due.get(&slot.key).copied();
    let pace = StepPace { pass, request, part, staying: &staying }
        .pace(|slot| turn_of(slot) == Some(StepTurn::Immediate), |slot| turn_of(slot) == Some(StepTurn::InOrder));
    let in_order = due.iter().filter(|(_, turn)| **turn == StepTurn::InOrder);
    let waiting: BTreeSet<SlotKey> = in_order.skip(pace.free).map(|(slot, _)| slot.clone()).collect();
    if let Some(at) = pace.paused_until.filter(|_| !waiting.is_empty()) {
        pass.wake(at);
    }
    due.into_keys().filter(|slot| !waiting.contains(slot)).collect()
}

/// When a slot steps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StepTurn {
    /// At once, outside the limit: nothing is lost by it.
    Immediate,
    /// When fewer than `parallelism` slots are under way.
    InOrder,
}

/// When an outdated slot steps; `None` while another change of it is under way.
fn turn(
    pass: &GroupPass<'_>,
    request: &PlacementRequest,
    part: &GroupRollout,
    leaving: &BTreeSet<SlotKey>,
    slot: &Slot,
) -> Option<StepTurn> {
    let replica = slot.current()?;
    // A stateful replica stays on its node: stopped while the node takes no new work, it could not start again.
    if request.spec.is_stateful() && !takes_work(pass.view.nodes.node(replica.node)) {
        return None;
    }
    // With stop-first order a running slot waits for its turn whatever else holds: neither a drain nor a change
    // without progress is a reason for more slots to be short.
    let would_be_missed =
        serves(slot) && (stops_first(request, part) || has_waited_for_room(pass.view.group(request.group), pass.now));
    let hurries = part.outcome(slot).is_some()
        || leaving.contains(&slot.key)
        || skips_the_queue(pass, part, request, slot, replica);
    match (hurries, would_be_missed) {
        (true, false) => Some(StepTurn::Immediate),
        (true, true) => Some(StepTurn::InOrder),
        (false, _) => {
            // A completed replica is not running, but is as good a canary as any.
            let stands = serves(slot) || replica.state == ReplicaState::Completed;
            (stands && !counts_as_under_way(pass, part, &Retries::new(pass, request, part), slot))
                .then_some(StepTurn::InOrder)
        }
    }
}

/// Whether a slot steps at once, outside the limit: it is not running, or is in a change that makes no progress. While
/// canaries are held this holds only for a slot that has failed.
fn skips_the_queue(
    pass: &GroupPass<'_>,
    part: &GroupRollout,
    request: &PlacementRequest,
    slot: &Slot,
    replica: &Replica,
) -> bool {
    let troubled = replica.failures > 0
        || matches!(replica.state, ReplicaState::Failed | ReplicaState::Degraded)
        || replica.code.is_some_and(|code| code != RuntimeCode::Pulling);
    let previous = pass.view.group(request.group).rollout_position.previous.as_ref();
    // A slot that only moves, with the previous spec, may finish its move.
    let moves = previous.is_some_and(|previous| previous.spec.made(&replica.reservation));
    let idle = !serves(slot);
    let unsettled = !is_settled(pass, pass.view.group(request.group), slot);
    idle && (troubled || part.canary.is_none()) || unsettled && (troubled || slot.replicas.len() > 1 && !moves)
}

/// The outcome of a slot's step in a rollout; `None` before it begins.
pub(super) fn outcome_in(rollout: &Rollout, slot: &Slot) -> Option<StepOutcome> {
    slot.step.filter(|step| step.rollout == rollout.number).map(|step| step.outcome)
}

pub(super) fn is_added(slot: &Slot) -> bool {
    slot.step.is_some_and(|step| step.kind == StepKind::Added)
}

/// Whether the current generation of a slot has yet to start.
fn is_coming(slot: &Slot) -> bool {
    use ReplicaState::{Pending, Pulling, Starting};
    slot.current().is_some_and(|replica| matches!(replica.state, Pending | Pulling | Starting))
}

/// Whether any desired generation of a slot is running.
pub(super) fn serves(slot: &Slot) -> bool {
    slot.replicas.iter().any(|replica| replica.desired == DesiredState::Run && replica.state == ReplicaState::Running)
}

/// Whether a slot counts towards `parallelism`. One that the rollout added takes nothing from what was there, and one
/// that failed for good is not waited for, unless it was stopped for another attempt.
pub(super) fn counts_as_under_way(
    pass: &GroupPass<'_>,
    part: &GroupRollout,
    retries: &Retries<'_>,
    slot: &Slot,
) -> bool {
    let said = |outcome: StepOutcome| {
        let item = part.step(&slot.key, outcome);
        pass.items.contains(&item)
    };
    let begun = part.outcome(slot);
    if begun.is_some() && is_added(slot) {
        return false;
    }
    if matches!(begun, Some(StepOutcome::Failed(_))) {
        return retries.is_under_way(slot);
    }
    let under_way = begun == Some(StepOutcome::UnderWay) && !said(StepOutcome::Done);
    under_way || !is_settled(pass, retries.group(), slot)
}

/// Whether a slot has one generation and no change is under way. One that failed for good counts as settled.
fn is_settled(pass: &GroupPass<'_>, group: &Group, slot: &Slot) -> bool {
    let restarted = pass.items.iter().any(|item| matches!(item, PlanItem::Restart { key, .. } if key.slot == slot.key));
    let given_up = pass.items.iter().filter_map(slots::given_up).any(|other| *other == slot.key);
    let settled = |replica: &Replica| match replica.state {
        ReplicaState::Running | ReplicaState::Completed => true,
        ReplicaState::Failed => {
            given_up || replica.code == Some(RuntimeCode::RestartExhausted) || jobs::has_ended(group, replica)
        }
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
    // A generation on a node that is down is not waited for either.
    let alone = others.filter(|replica| !pass.view.nodes.is_down(replica.node)).count() == 0;
    !restarted && alone && slot.current().is_some_and(settled)
}

/// Begins the step of one slot, if possible.
fn step(pass: &mut GroupPass<'_>, request: &mut PlacementRequest, part: &GroupRollout, key: &SlotKey) {
    let group = pass.view.group(request.group);
    let Ok(at) = group.slot_at(key) else { return };
    let slot = group.slots[at].clone();
    let Some(node) = slot.current().map(|replica| replica.node) else { return };
    if stops_first(request, part) {
        if would_fit(pass.view, request, &slot, SearchNodes::All) {
            stop_first(pass, part, &slot);
        } else {
            pass.view.waiting.insert(request.group);
        }
        return;
    }
    if start_first(pass, request, part, &slot, node) {
        return;
    }
    // Capacity may be freed without an event of this group.
    pass.view.waiting.insert(request.group);
    // The group's other steps give back room when they are done: that is no lack of room for the rollout.
    if serves(&slot) && is_another_under_way(pass, request, part, &slot) {
        return;
    }
    if has_waited_for_room(pass.view.group(request.group), pass.now) || !serves(&slot) {
        if would_fit(pass.view, request, &slot, SearchNodes::OwnOnly) {
            stop_first(pass, part, &slot);
        }
        return;
    }
    note_no_room(pass, request);
}

/// Whether the step of another slot is under way, with a generation that is placed.
fn is_another_under_way(pass: &GroupPass<'_>, request: &PlacementRequest, part: &GroupRollout, slot: &Slot) -> bool {
    let others = pass.view.group(request.group).desired_slots().filter(|other| other.key != slot.key);
    let mut others = others.filter(|other| !is_added(other) && other.current().is_some());
    others.any(|other| part.outcome_after(other, &pass.items) == Some(StepOutcome::UnderWay))
}

/// Records that there is no room for both generations, and requests a turn when the wait is over.
pub(super) fn note_no_room(pass: &mut GroupPass<'_>, request: &PlacementRequest) {
    let since = pass.view.group(request.group).rollout_position.no_room_since;
    if since.is_none() && !pass.items.iter().any(|item| matches!(item, PlanItem::NoRoom { .. })) {
        pass.items.push(PlanItem::NoRoom { since: pass.now });
    }
    let over = since.unwrap_or(pass.now).after(NO_ROOM_WAIT);
    if over > pass.now {
        pass.wake(over);
    }
}

/// Whether this rollout has waited long enough for room for two generations.
pub(super) fn has_waited_for_room(group: &Group, now: Time) -> bool {
    group.rollout_position.no_room_since.is_some_and(|since| since.after(NO_ROOM_WAIT) <= now)
}

/// Whether the old generation is stopped before the next is placed, whatever room there is.
pub(super) fn stops_first(request: &PlacementRequest, part: &GroupRollout) -> bool {
    part.policy.order == Some(UpdateOrder::StopFirst) || blocks_successor(&request.spec)
}

/// Whether a slot can change on its own node only: it is stateful or global.
fn keeps_its_node(spec: &ServiceSpec) -> bool {
    spec.is_stateful() || spec.kind.is_per_node()
}

/// Places the next generation beside the last: on the same node, else on another, unless the slot is bound to its
/// node.
fn start_first(
    pass: &mut GroupPass<'_>,
    request: &mut PlacementRequest,
    part: &GroupRollout,
    slot: &Slot,
    node: NodeIx,
) -> bool {
    super::assume_stops(pass.view, request.group, &pass.items);
    if !matches!(gates::check(pass.view, request, 1), Gate::Open) {
        return false;
    }
    request.counts.remove_from(Some(node));
    let placed = match placement::place_at(pass.view, request, slots::next_generation(slot), node) {
        Ok(placed) => Some(placed),
        Err(_) if keeps_its_node(&request.spec) => None,
        Err(pending) => place_batch::place_batch(pass.view, request, vec![pending]).placed.pop(),
    };
    let Some(placed) = placed else {
        request.counts.add(node);
        return false;
    };
    if pass.view.nodes.node(node).name != placed.node {
        // Until the new one is ready the old one may be the one that is kept.
        request.counts.add_overlap(node);
    }
    pass.items.push(PlanItem::Place(placed));
    pass.items.push(part.step(&slot.key, StepOutcome::UnderWay));
    true
}

/// Stops the slot's generations; the next one is placed once they have stopped.
fn stop_first(pass: &mut GroupPass<'_>, part: &GroupRollout, slot: &Slot) {
    let wanted = slot.replicas.iter().filter(|replica| replica.desired == DesiredState::Run);
    let stops = wanted.map(|replica| PlanItem::Stop(slot.key.generation(replica.generation)));
    pass.items.retain(|item| match item {
        PlanItem::Restart { key, .. } | PlanItem::GiveUp { key, .. } => key.slot != slot.key,
        _ => true,
    });
    pass.items.extend(stops);
    pass.items.push(part.step(&slot.key, StepOutcome::UnderWay));
}

/// Slots whose step is due and that no node takes with the new spec, each with the reason. Reservations for other
/// slots may be left in the view.
pub(crate) fn blocked_steps(
    view: &mut View,
    request: &mut PlacementRequest,
    now: Time,
) -> Vec<(Vec<SlotKey>, Explanation)> {
    let Some(part) = GroupRollout::of(view, request).filter(GroupRollout::may_step) else { return Vec::new() };
    let closed = scale::surplus(view, view.group(request.group), now);
    let mut pass = GroupPass::new(view, now);
    let (outdated, leaving) = if request.spec.kind.is_per_node() {
        (global::outdated(&pass, request, &closed), BTreeSet::new())
    } else {
        let needs = slots::needs(&mut pass, request, &closed);
        (needs.outdated, needs.leaving)
    };
    if outdated.is_empty() || rollout::has_too_many_failures(&pass, request, &part, &closed) {
        return Vec::new();
    }
    let due = due(&mut pass, request, &part, &outdated, &leaving, &closed);
    let unmet = dependencies::unmet(pass.view, &request.key, &request.spec).filter(|_| !part.is_rolling_back());
    if let Some(refusal) = unmet {
        return vec![(due, explain::gated(pass.view, refusal))];
    }
    // One that leaves its node anyway is explained like any slot that has to move.
    let due = due.into_iter().filter(|slot| !leaving.contains(slot));
    due.filter_map(|slot| Some((vec![slot.clone()], why_blocked(&mut pass, request, &part, &slot)?))).collect()
}

/// Why a slot cannot step now; `None` where it can.
fn why_blocked(
    pass: &mut GroupPass<'_>,
    request: &mut PlacementRequest,
    part: &GroupRollout,
    key: &SlotKey,
) -> Option<Explanation> {
    let group = pass.view.group(request.group);
    let slot = group.slots[group.slot_at(key).ok()?].clone();
    let node = slot.current()?.node;
    if stops_first(request, part) {
        return why_no_fit_without_current(pass.view, request, &slot, SearchNodes::All);
    }
    if start_first(pass, request, part, &slot, node) {
        return None;
    }
    let since = pass.view.group(request.group).rollout_position.no_room_since;
    if since.is_some_and(|since| since.after(NO_ROOM_WAIT) <= pass.now) || !serves(&slot) {
        return why_no_fit_without_current(pass.view, request, &slot, SearchNodes::OwnOnly);
    }
    request.counts.remove_from(Some(node));
    let why = nowhere(pass.view, request);
    request.counts.add(node);
    Some(why)
}

fn nowhere(view: &View, request: &PlacementRequest) -> Explanation {
    match gates::check(view, request, 1) {
        Gate::Shut(refusal) | Gate::Partly { refusal, .. } => explain::gated(view, refusal),
        Gate::Open => explain::nowhere(view, request),
    }
}

/// On which nodes a fit is searched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SearchNodes {
    All,
    OwnOnly,
}

/// Whether the next generation of a slot would fit if its current ones were removed.
fn would_fit(view: &mut View, request: &mut PlacementRequest, slot: &Slot, search: SearchNodes) -> bool {
    with_current_removed(view, request, slot, |view, request, node| fits(view, request, node, search)).unwrap_or(false)
}

/// Whether a pending replica would fit if a slot's generations were removed: on that slot's node for a global service,
/// else on any node.
pub(super) fn makes_room(view: &mut View, request: &mut PlacementRequest, slot: &Slot) -> bool {
    would_fit(view, request, slot, SearchNodes::All)
}

/// Why the next generation of a slot would not fit even if its current ones were removed.
fn why_no_fit_without_current(
    view: &mut View,
    request: &mut PlacementRequest,
    slot: &Slot,
    search: SearchNodes,
) -> Option<Explanation> {
    let why = |view: &View, request: &PlacementRequest, node: NodeIx| {
        (!fits(view, request, node, search)).then(|| match gates::check(view, request, 1) {
            Gate::Open if search == SearchNodes::OwnOnly => explain::at_node(view, request, node),
            Gate::Open | Gate::Shut(_) | Gate::Partly { .. } => nowhere(view, request),
        })
    };
    with_current_removed(view, request, slot, why).flatten()
}

/// Calls `look` on the cluster with a slot's desired generations removed.
fn with_current_removed<T>(
    view: &mut View,
    request: &mut PlacementRequest,
    slot: &Slot,
    look: impl FnOnce(&View, &PlacementRequest, NodeIx) -> T,
) -> Option<T> {
    let node = slot.current().map(|replica| replica.node)?;
    let gone: Vec<Replica> =
        slot.replicas.iter().filter(|replica| replica.desired == DesiredState::Run).cloned().collect();
    for replica in &gone {
        view.save_load(replica.node);
        view.set_aside(request.group, &slot.key, replica);
    }
    request.counts.remove_from(Some(node));
    let seen = look(view, request, node);
    request.counts.add(node);
    for replica in gone.iter().rev() {
        view.restore(request.group, &slot.key, replica);
    }
    Some(seen)
}

fn fits(view: &View, request: &PlacementRequest, node: NodeIx, search: SearchNodes) -> bool {
    let open = matches!(gates::check(view, request, 1), Gate::Open);
    open && (request.accepts(view, node) || search == SearchNodes::All && fits_somewhere(view, request))
}

/// Whether one more replica of a service with a count would be placed now.
pub(super) fn fits_now(view: &View, request: &PlacementRequest) -> bool {
    matches!(gates::check(view, request, 1), Gate::Open) && fits_somewhere(view, request)
}

fn fits_somewhere(view: &View, request: &PlacementRequest) -> bool {
    !keeps_its_node(&request.spec) && view.nodes.by_name_order().any(|node| request.accepts(view, node))
}
