//! The named buckets into which every pass sorts the replicas of a group.
//!
//! ```text
//! ended for good ─▶ ignored
//! node is down   ─▶ disconnecting (not given up yet) ─▶ expiring (its time is over)     else lost
//! may not stay   ─▶ migrating
//! failed, moves  ─▶ reschedule_now | reschedule_later
//! came back      ─▶ reconnecting
//! anything else  ─▶ untainted
//! ```
//!
//! Owns: the names and the order of the questions; the first that is answered with yes decides.
//! Must not touch: what follows from a bucket; [`super::slots`], [`super::handover`] and [`super::restart`] decide that.
//! Invariant: every generation that shall run is in exactly one bucket.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    Generation, GroupKey, Health, Intent, ReplicaState, RuntimeCode, SlotKey, Time, replica::Wanted,
    service::RestartCondition,
};

use super::{
    absence, handover, jobs,
    reschedule::{self, Next},
    restart,
};
use crate::{
    ask::{Ask, Counts},
    view::{
        View,
        groups::{Replica, Slot},
    },
};

/// What a replica is to whoever decides about its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bucket {
    /// It is where it should be.
    Untainted,
    /// It has to leave a node that is alive.
    Migrating,
    /// It is gone with its node.
    Lost,
    /// Its node is out of sight, and it is not given up yet.
    Disconnecting,
    /// It came back from a node that was out of sight.
    Reconnecting,
    /// It has ended for good; nobody does anything about it.
    Ignored,
    /// The time its service gave it to come back is over.
    Expiring,
    /// It used up its restarts and moves now.
    RescheduleNow,
    /// It used up its restarts and moves after a pause.
    RescheduleLater,
}

impl Bucket {
    /// The word in JSON and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Untainted => "untainted",
            Self::Migrating => "migrating",
            Self::Lost => "lost",
            Self::Disconnecting => "disconnecting",
            Self::Reconnecting => "reconnecting",
            Self::Ignored => "ignored",
            Self::Expiring => "expiring",
            Self::RescheduleNow => "reschedule_now",
            Self::RescheduleLater => "reschedule_later",
        }
    }
}

/// Sorts every generation of a group that shall run.
pub fn buckets(view: &mut View, group: &GroupKey, now: Time) -> BTreeMap<Bucket, Vec<(SlotKey, Generation)>> {
    view.advance(now);
    view.fleet.refresh();
    let mut sorted: BTreeMap<Bucket, Vec<(SlotKey, Generation)>> = BTreeMap::new();
    let Some(&ix) = view.group_ids.get(group) else { return sorted };
    let ask = Ask::new(view, ix, now, Counts::default());
    for slot in view.group(ix).wanted_slots() {
        for replica in slot.replicas.iter().filter(|replica| replica.wanted == Wanted::Run) {
            let bucket = of(view, &ask, (slot, replica), &BTreeSet::new(), now);
            sorted.entry(bucket).or_default().push((slot.key.clone(), replica.generation));
        }
    }
    sorted
}

/// The bucket of one generation. Slots whose generation this very turn gives up are named beside.
pub(crate) fn of(
    view: &View,
    ask: &Ask,
    (slot, replica): (&Slot, &Replica),
    given_up: &BTreeSet<&SlotKey>,
    now: Time,
) -> Bucket {
    let group = view.group(ask.group);
    if jobs::is_job(ask.spec.kind) && jobs::has_ended(group, replica) {
        return Bucket::Ignored;
    }
    if replica.code == Some(RuntimeCode::RestartExhausted) || given_up.contains(&slot.key) {
        // With a node that leaves for good the record of its failures leaves too.
        let goes = handover::is_leaving_with_its_node(view, ask, replica);
        return if goes { Bucket::Migrating } else { Bucket::Ignored };
    }
    let node = view.fleet.node(replica.node);
    if node.health == Health::Down || node.intent == Intent::Removed {
        return away(view, ask, replica, now);
    }
    // A job is left to end where it runs: moving it would be to run it twice.
    if !jobs::is_job(ask.spec.kind) && handover::must_leave(view, ask, replica) {
        return Bucket::Migrating;
    }
    if let Some(at) = moves_at(view, ask, slot, replica) {
        return if at <= now { Bucket::RescheduleNow } else { Bucket::RescheduleLater };
    }
    let came_back = replica.rival.is_some_and(|rival| slot.newest >= rival) || replica.state == ReplicaState::Lost;
    if came_back { Bucket::Reconnecting } else { Bucket::Untainted }
}

/// One whose node is down.
fn away(view: &View, ask: &Ask, replica: &Replica, now: Time) -> Bucket {
    let waited_for = absence::is_waited_for(view, &ask.spec, replica, now);
    if waited_for || absence::is_held(view, &ask.spec, replica, now) {
        Bucket::Disconnecting
    } else if ask.spec.disconnect.lost_after.is_some() {
        Bucket::Expiring
    } else {
        Bucket::Lost
    }
}

/// When one that used up its restarts goes to another node.
fn moves_at(view: &View, ask: &Ask, slot: &Slot, replica: &Replica) -> Option<Time> {
    let ended = matches!(replica.state, ReplicaState::Failed | ReplicaState::Degraded);
    let never = ask.spec.restart.condition == RestartCondition::None;
    if !ended || !(never || restart::is_exhausted(&ask.spec, replica)) {
        return None;
    }
    match reschedule::next(view.group(ask.group), slot, replica) {
        Next::At(at, _) => Some(at),
        Next::Never => None,
    }
}
