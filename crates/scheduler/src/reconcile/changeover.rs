//! A service with a count becomes global, or the other way round. Its replicas get other names, so that no slot becomes
//! another; what was there serves until as many of the new are:
//!
//! ```text
//! new ones are opened at once ─▶ each that has proved itself lets one of the old go
//! the old must go first, or there was no room for 30 s ─▶ `parallelism` of the old go ahead
//! ```
//!
//! Owns: which slots of the other naming stay for now. Must not touch: slots of the right name; they are opened, placed and
//! judged like any that a rollout adds. Invariant: while a rollout is live no more than `parallelism` are short of what is
//! wanted, or of what there was, and none where the new go first; what serves nobody is not kept.

use std::{collections::BTreeSet, sync::Arc};

use longshore_model::{
    Placement, PlanItem, Rollout, RuntimeCode, ServiceSpec, SlotKey, Time,
    rollout::StepOutcome,
    service::{FailureAction, UpdatePolicy},
};

use super::{
    Pass,
    rollout::{self, Part},
    steps,
};
use crate::{
    ask::{Ask, making},
    view::{
        View,
        groups::{Group, Replica, Slot},
    },
};

/// Whether a slot is named as the service no longer names its replicas.
pub(crate) fn is_misnamed(spec: &ServiceSpec, slot: &SlotKey) -> bool {
    match slot {
        SlotKey::Node(_) => !spec.kind.is_per_node(),
        SlotKey::Index(_) => spec.kind.is_per_node(),
    }
}

/// The slots of the other naming that go now, of a service that shall have so many, where some of its own go in any case.
pub(super) fn going(
    view: &View,
    known: &Group,
    (wanted, leaving): (usize, &BTreeSet<SlotKey>),
    now: Time,
) -> BTreeSet<SlotKey> {
    let misnamed = known.wanted_slots().filter(|slot| is_misnamed(&known.spec, &slot.key));
    let (mut useful, useless): (Vec<&Slot>, Vec<&Slot>) = misnamed.partition(|slot| is_of_use(slot));
    let kept = kept(view, known, (wanted, leaving), now);
    let going = useful.len().saturating_sub(kept);
    // Where nothing has come yet something may be waiting for the room.
    useful.sort_by_cached_key(|slot| (has_successor(known, slot), slot.key.clone()));
    useful.into_iter().take(going).chain(useless).map(|slot| slot.key.clone()).collect()
}

/// Whether a slot does a service's work. A job is not rolled: nobody waits for a run of it.
fn is_of_use(slot: &Slot) -> bool {
    steps::serves(slot) && slot.current().is_some_and(|replica| !replica.terms.kind.is_job())
}

/// Whether a slot of the right name has a generation on the node of one of the other naming.
fn has_successor(known: &Group, slot: &Slot) -> bool {
    let node = slot.current().map(|replica| replica.node);
    let mut named = known.wanted_slots().filter(|other| !is_misnamed(&known.spec, &other.key));
    named.any(|other| other.current().map(|replica| replica.node) == node)
}

/// How many of the other naming are still needed.
fn kept(view: &View, known: &Group, (wanted, leaving): (usize, &BTreeSet<SlotKey>), now: Time) -> usize {
    let Some(rollout) = view.rollout_of(&known.key).filter(|_| !known.spec.kind.is_job()) else { return 0 };
    wanted.saturating_sub(there(view, known, rollout, leaving, now))
}

/// How many of the right name have come, and stay.
fn there(view: &View, known: &Group, rollout: &Arc<Rollout>, leaving: &BTreeSet<SlotKey>, now: Time) -> usize {
    let policy = rollout::policy(&known.spec, Some(rollout));
    let tolerated = !is_broken(known, rollout, policy, now);
    let is_there = |slot: &&Slot| match steps::outcome_in(rollout, slot) {
        Some(StepOutcome::Done) => true,
        // What failed for good is waited for by nobody, unless all goes back for it.
        Some(StepOutcome::Failed(_)) => tolerated,
        Some(StepOutcome::UnderWay) if steps::is_added(slot) => false,
        // It came with an earlier rollout, and may be changing.
        Some(StepOutcome::UnderWay) | None => steps::serves(slot) || is_given_up(view, known, slot),
    };
    let named = known.wanted_slots().filter(|slot| !is_misnamed(&known.spec, &slot.key));
    named.filter(|slot| !leaving.contains(&slot.key)).filter(is_there).count()
}

/// Whether a slot was given up before: nobody waits for it, unless it is to be changed and so gets another chance.
fn is_given_up(view: &View, known: &Group, slot: &Slot) -> bool {
    let given_up = |replica: &Replica| replica.code == Some(RuntimeCode::RestartExhausted);
    slot.current().is_some_and(|it| given_up(it) && making::is_made_as_wanted(view, known, &it.terms))
}

/// Whether more of the new failed than are tolerated, so that the rollout is about to stop or to go back.
fn is_broken(known: &Group, rollout: &Rollout, policy: &UpdatePolicy, now: Time) -> bool {
    let outcomes = known.wanted_slots().filter_map(|slot| steps::outcome_in(rollout, slot));
    let misnamed = known.wanted_slots().filter(|slot| is_misnamed(&known.spec, &slot.key)).count();
    let total = outcomes.count() + misnamed;
    let failed = |slot: &&Slot| matches!(steps::outcome_in(rollout, slot), Some(StepOutcome::Failed(_)));
    let failed: Vec<&Slot> = known.wanted_slots().filter(failed).collect();
    let is_news = |slot: &&Slot| slot.step.is_some_and(|step| step.at > rollout.since || step.at == now);
    let news = failed.iter().any(is_news) || !rollout::may_step(rollout);
    news && policy.failure_action != FailureAction::Continue && rollout::too_many(policy, failed.len(), total)
}

/// Lets some of the old go ahead, where new ones wait and the old must go first, or room for both was waited for in vain. One
/// whose successor would not fit all the same stays: nobody is helped by its end. Otherwise notes since when there is no room.
pub(super) fn go_ahead(pass: &mut Pass<'_>, ask: &mut Ask, closed: &mut BTreeSet<SlotKey>) {
    let Some(part) = Part::of(pass.view, ask).filter(Part::may_step) else { return };
    let known = pass.view.group(ask.group);
    let is_kept = |slot: &&Slot| is_misnamed(&ask.spec, &slot.key) && !closed.contains(&slot.key);
    let mut kept: Vec<Slot> = known.wanted_slots().filter(is_kept).cloned().collect();
    if pass.left.is_empty() || kept.is_empty() || rollout::is_broken(pass, ask, &part, closed) {
        return;
    }
    if !steps::old_goes_first(ask, &part) && !steps::has_waited_for_room(known, pass.now) {
        return steps::note_no_room(pass, ask);
    }
    kept.sort_by_cached_key(|slot| (has_successor(known, slot), slot.key.clone()));
    let come = there(pass.view, known, &part.rollout, closed, pass.now);
    let short = wanted(pass, ask, closed).saturating_sub(come + kept.len());
    let most = match part.policy.parallelism {
        0 => usize::MAX,
        limit => (limit as usize).saturating_sub(short),
    };
    let mut ahead = Vec::new();
    // Where each has its own node, nobody waits for the room beside one that has come.
    let is_waited_for = |slot: &Slot| !ask.spec.kind.is_per_node() || !has_successor(known, slot);
    let kept: Vec<Slot> = kept.into_iter().filter(is_waited_for).collect();
    for slot in kept {
        if ahead.len() < most && steps::makes_room(pass.view, ask, &slot) {
            ahead.push(slot.key);
        }
    }
    pass.left.put_before(&mut pass.items, ahead.iter().cloned().map(PlanItem::Close));
    closed.extend(ahead);
}

/// How many there shall be: those there are, and those this turn opens.
fn wanted(pass: &Pass<'_>, ask: &Ask, closed: &BTreeSet<SlotKey>) -> usize {
    let known = pass.view.group(ask.group);
    let is_open = |slot: &&Slot| !is_misnamed(&ask.spec, &slot.key) && !closed.contains(&slot.key);
    let opened = pass.items.iter().filter_map(|item| match item {
        PlanItem::Open(slot) | PlanItem::Place(Placement { slot, .. }) => Some(slot),
        _ => None,
    });
    let opened: BTreeSet<&SlotKey> = opened.filter(|slot| known.slot_at(slot).is_err()).collect();
    known.wanted_slots().filter(is_open).count() + opened.len()
}
