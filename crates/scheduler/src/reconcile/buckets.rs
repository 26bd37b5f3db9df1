//! The named buckets into which every pass sorts the replicas of a group.
//!
//! ```text
//! ended for good ─▶ ignored
//! node is down   ─▶ disconnecting (may reconnect) ─▶ expiring (its time is over)     else lost
//! may not stay   ─▶ migrating
//! failed, moves  ─▶ reschedule_now | reschedule_later
//! came back      ─▶ reconnecting
//! anything else  ─▶ untainted
//! ```
//!
//! Owns: the names and the order of the conditions; the first that holds decides.
//! Must not touch: what follows from a bucket; [`super::slots`], [`super::generation_cutover`] and [`super::restart`]
//! decide that.
//! Invariant: every desired generation is in exactly one bucket.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    GroupKey, Health, Intent, ReplicaState, RuntimeCode, SlotGeneration, SlotKey, Time, replica::DesiredState,
    service::RestartCondition,
};

use super::{
    generation_cutover, jobs, node_loss,
    reschedule::{self, Next},
    restart,
};
use crate::{
    request::{Counts, PlacementRequest},
    view::{
        View,
        groups::{Replica, Slot},
    },
};

/// How a pass classifies a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bucket {
    /// It stays where it is.
    Untainted,
    /// It has to leave a node that is alive.
    Migrating,
    /// Its node is lost, and it is replaced.
    Lost,
    /// Its node is down, but the replica may reconnect or its replacement is held back.
    Disconnecting,
    /// It reconnected after its node was down.
    Reconnecting,
    /// It has ended for good; nothing is done about it.
    Ignored,
    /// The time its service grants for reconnecting (`lost_after`) is over.
    Expiring,
    /// Its restarts are exhausted and it moves to another node now.
    RescheduleNow,
    /// Its restarts are exhausted and it moves to another node after a delay.
    RescheduleLater,
}

impl Bucket {
    /// The name in JSON and tables.
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

/// Sorts every desired generation of a group into its bucket.
pub fn buckets(view: &mut View, group: &GroupKey, now: Time) -> BTreeMap<Bucket, Vec<SlotGeneration>> {
    view.advance(now);
    view.nodes.refresh();
    let mut sorted: BTreeMap<Bucket, Vec<SlotGeneration>> = BTreeMap::new();
    let Some(&ix) = view.group_ids.get(group) else { return sorted };
    let request = PlacementRequest::new(view, ix, now, Counts::default());
    for slot in view.group(ix).desired_slots() {
        for replica in slot.replicas.iter().filter(|replica| replica.desired == DesiredState::Run) {
            let bucket = of(view, &request, slot, replica, &BTreeSet::new(), now);
            sorted.entry(bucket).or_default().push(slot.key.generation(replica.generation));
        }
    }
    sorted
}

/// The bucket of one generation. `given_up` names the slots that the current turn gives up.
pub(crate) fn of(
    view: &View,
    request: &PlacementRequest,
    slot: &Slot,
    replica: &Replica,
    given_up: &BTreeSet<&SlotKey>,
    now: Time,
) -> Bucket {
    let group = view.group(request.group);
    if jobs::has_ended(group, replica) {
        return Bucket::Ignored;
    }
    let given_up = replica.code == Some(RuntimeCode::RestartExhausted) || given_up.contains(&slot.key);
    if given_up && !group.spec.returns_after_exhaustion() {
        // When its node is removed for good, the record of its failures goes too, so it may move.
        let goes = generation_cutover::is_leaving_with_its_node(view, request, replica);
        return if goes { Bucket::Migrating } else { Bucket::Ignored };
    }
    let node = view.nodes.node(replica.node);
    if node.health == Health::Down || node.intent == Intent::Removed {
        return away(view, request, replica, now);
    }
    // A job finishes where it runs: moving it would run it twice.
    if !request.spec.kind.is_job() && generation_cutover::must_leave(view, request, replica) {
        return Bucket::Migrating;
    }
    if let Some(at) = moves_at(view, request, slot, replica) {
        return if at <= now { Bucket::RescheduleNow } else { Bucket::RescheduleLater };
    }
    let came_back = replica.replaced_by.is_some_and(|replaced_by| slot.newest >= replaced_by)
        || replica.state == ReplicaState::Lost;
    if came_back { Bucket::Reconnecting } else { Bucket::Untainted }
}

/// The bucket of a replica whose node is down or removed.
fn away(view: &View, request: &PlacementRequest, replica: &Replica, now: Time) -> Bucket {
    let waited_for = node_loss::may_reconnect(view, &request.spec, replica, now);
    if waited_for || node_loss::is_replacement_held(view, &request.spec, replica, now) {
        Bucket::Disconnecting
    } else if request.spec.disconnect.lost_after.is_some() {
        Bucket::Expiring
    } else {
        Bucket::Lost
    }
}

/// When a replica with exhausted restarts moves to another node.
fn moves_at(view: &View, request: &PlacementRequest, slot: &Slot, replica: &Replica) -> Option<Time> {
    let ended = matches!(replica.state, ReplicaState::Failed | ReplicaState::Degraded);
    let never = request.spec.restart.condition == RestartCondition::None;
    if !ended || !(never || restart::is_exhausted(&request.spec, replica)) {
        return None;
    }
    match reschedule::next(view.group(request.group), slot, replica) {
        Next::At(at, _) => Some(at),
        Next::Never => None,
    }
}
