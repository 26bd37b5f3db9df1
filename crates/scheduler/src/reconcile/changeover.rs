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

use std::collections::BTreeSet;

use longshore_model::{
    Rollout, ServiceSpec, SlotKey, Time,
    rollout::StepOutcome,
    service::{FailureAction, UpdateOrder, UpdatePolicy},
};

use super::{
    Pass,
    rollout::{self, Part},
    steps,
};
use crate::{
    ask::Ask,
    view::{
        View,
        groups::{Group, Slot},
    },
};

/// Whether a slot is named as the service no longer names its replicas.
pub(crate) fn is_misnamed(spec: &ServiceSpec, slot: &SlotKey) -> bool {
    match slot {
        SlotKey::Node(_) => !spec.kind.is_per_node(),
        SlotKey::Index(_) => spec.kind.is_per_node(),
    }
}

/// The slots of the other naming that go now, of a service that shall have so many.
pub(super) fn going(view: &View, known: &Group, wanted: usize, now: Time) -> BTreeSet<SlotKey> {
    let misnamed = known.wanted_slots().filter(|slot| is_misnamed(&known.spec, &slot.key));
    let (mut useful, useless): (Vec<&Slot>, Vec<&Slot>) = misnamed.partition(|slot| is_of_use(slot));
    let kept = kept(view, known, wanted, now);
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
fn kept(view: &View, known: &Group, wanted: usize, now: Time) -> usize {
    let Some(rollout) = view.rollout_of(&known.key).filter(|_| !known.spec.kind.is_job()) else { return 0 };
    let policy = rollout::policy(&known.spec, Some(rollout));
    let tolerated = !is_broken(known, rollout, policy, now);
    let is_there = |slot: &&Slot| match steps::outcome_in(rollout, slot) {
        Some(StepOutcome::Done) => true,
        // What failed for good is waited for by nobody, unless all goes back for it.
        Some(StepOutcome::Failed(_)) => tolerated,
        Some(StepOutcome::UnderWay) if steps::is_added(slot) => false,
        // It came with an earlier rollout, and may be changing.
        Some(StepOutcome::UnderWay) | None => steps::serves(slot),
    };
    let named = known.wanted_slots().filter(|slot| !is_misnamed(&known.spec, &slot.key));
    let there = named.filter(is_there).count();
    let ahead = if rollout::may_step(rollout) { ahead(known, policy, now) } else { 0 };
    wanted.saturating_sub(there).saturating_sub(ahead)
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

/// How many go before their successors come.
fn ahead(known: &Group, policy: &UpdatePolicy, now: Time) -> usize {
    let old_goes_first = policy.order == Some(UpdateOrder::StopFirst) || steps::blocks_successor(&known.spec);
    match policy.parallelism {
        _ if !old_goes_first && !steps::has_waited_for_room(known, now) => 0,
        0 => usize::MAX,
        limit => limit as usize,
    }
}

/// Notes that there is no room for the new beside the old, and asks to be woken when that was waited for long enough.
pub(super) fn wait_for_room(pass: &mut Pass<'_>, ask: &Ask, closed: &BTreeSet<SlotKey>) {
    let known = pass.view.group(ask.group);
    let is_kept = |slot: &Slot| is_misnamed(&ask.spec, &slot.key) && !closed.contains(&slot.key);
    let waits = !pass.left.is_empty() && known.wanted_slots().any(is_kept);
    if waits && Part::of(pass.view, ask).is_some_and(|part| part.may_step()) {
        steps::note_no_room(pass, ask);
    }
}
