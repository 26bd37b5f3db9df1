//! Which generations of a slot are kept while several are desired.
//!
//! ```text
//! older one ─▶ its node is down:   kept while it may reconnect, else stopped
//!           ─▶ it reconnected:     the service's `reconcile` policy chooses between it and its replacement, or the
//!                                  interim generation where the replacement is about to be replaced itself
//!           ─▶ it is not running:  stopped
//!           ─▶ it is running:      kept until the newer one has been running for the monitor time
//! ```
//!
//! This is the one rule for every move: whether a generation is drained, lost, invalid or outdated, it is stopped only
//! when a newer one is ready.
//!
//! Owns: that rule, and the times at which its answer changes. Must not touch: where the newer one is placed.

use std::{collections::BTreeSet, time::Duration};

use longshore_model::{
    AfterDrain, Generation, Health, Intent, PlanItem, ReplicaState, RuntimeCode, ServiceKind, ServiceSpec, Time,
    replica::DesiredState, service::Reconcile,
};

use super::{
    GroupPass, node_loss,
    readiness::{Readiness, is_seen_running, readiness},
    rollout, slots,
};
use crate::{
    feasibility,
    request::{PlacementRequest, replica_fingerprint},
    view::{
        View,
        groups::{Replica, Slot},
    },
};

/// What happens to an older generation and the newer one.
enum Cutover {
    /// The older one is kept for now; at most until the time, if there is one.
    KeepOlder(Option<Time>),
    /// The older one is stopped.
    StopOlder,
    /// The older one is kept, and the newer one is stopped.
    StopNewer,
}

/// Stops superseded generations, and requests another turn when that could change.
pub(super) fn stop_superseded(pass: &mut GroupPass<'_>, request: &PlacementRequest) {
    let group = pass.view.group(request.group);
    let calm = pass.view.nodes.down_or_draining.is_empty();
    let monitor = rollout::monitor(pass.view, group);
    let (mut stops, mut wakes) = (Vec::new(), Vec::new());
    for slot in group.desired_slots() {
        if calm && slot.replicas.len() < 2 {
            continue;
        }
        let spec = rollout::spec_of(pass.view, request, slot);
        let stop = |generation: Generation| PlanItem::Stop(slot.key.generation(generation));
        for replica in slot.replicas.iter().filter(|replica| replica.desired == DesiredState::Run) {
            // Which of the two specs it follows may change in the meantime; one turn too many does no harm.
            let specs = group.rollout_position.previous.iter().map(|previous| &previous.spec).chain([&group.spec]);
            wakes.extend(specs.filter_map(|spec| node_loss::next_change(pass.view, spec, replica, pass.now)));
        }
        if let Some(job) = slot.current().filter(|job| is_past_drain_deadline(pass.view, spec, job, pass.now)) {
            stops.push(stop(job.generation));
        }
        let context = Context { view: pass.view, request, spec, monitor, now: pass.now };
        let (going, at) = context.superseded(slot);
        stops.extend(going.into_iter().map(stop));
        wakes.extend(at);
    }
    pass.items.extend(stops);
    for at in wakes {
        pass.wake(at);
    }
}

/// What decides between the generations of one slot.
struct Context<'a> {
    view: &'a View,
    request: &'a PlacementRequest,
    /// The spec the slot follows.
    spec: &'a ServiceSpec,
    monitor: Duration,
    now: Time,
}

impl Context<'_> {
    /// The generations of a slot to stop, and when that answer may change.
    fn superseded(&self, slot: &Slot) -> (Vec<Generation>, Option<Time>) {
        let (view, request) = (self.view, self.request);
        let mut running: Vec<&Replica> =
            slot.replicas.iter().filter(|replica| replica.desired == DesiredState::Run).collect();
        let Some(newest) = running.pop() else { return (Vec::new(), None) };
        let (mut going, mut wake) = (BTreeSet::new(), None);
        for older in running.iter().copied() {
            // The older generation is what is wanted again: the rollout goes back to it.
            if slots::is_outdated(request, newest) && !slots::is_outdated(request, older) && is_up(view, older) {
                continue;
            }
            let interim = running.iter().rev().find(|it| is_interim(view, older, it));
            let cutover = match interim {
                Some(it) if is_equivalent(view, request, older, it) => {
                    by_reconcile_policy(self.spec, older, it, self.readiness(it))
                }
                Some(it) => keep_until_ready(self.readiness(it)),
                None => self.cutover(older, newest),
            };
            match (cutover, interim) {
                (Cutover::KeepOlder(None), _) => {}
                (Cutover::KeepOlder(Some(at)), _) => wake = Some(wake.map_or(at, |earlier: Time| earlier.min(at))),
                (Cutover::StopOlder, _) => _ = going.insert(older.generation),
                (Cutover::StopNewer, Some(it)) => _ = going.insert(it.generation),
                (Cutover::StopNewer, None) => {
                    let newer = slot.replicas.iter().filter(|other| other.generation > older.generation);
                    return (
                        newer.filter(|it| it.desired == DesiredState::Run).map(|it| it.generation).collect(),
                        None,
                    );
                }
            }
        }
        (going.into_iter().collect(), wake)
    }

    fn cutover(&self, older: &Replica, newest: &Replica) -> Cutover {
        let Self { view, request, spec, now, .. } = *self;
        if node_loss::may_reconnect(view, spec, older, now) {
            return Cutover::KeepOlder(None);
        }
        if view.nodes.node(older.node).health != Health::Down {
            // Its node is back but has not reported this replica yet; its state is about to be known.
            if older.state == ReplicaState::Lost {
                return Cutover::KeepOlder(None);
            }
            if is_equivalent(view, request, older, newest) {
                let newest_is_down = view.nodes.node(newest.node).health == Health::Down;
                if newest_is_down && is_or_may_be_up(older) {
                    return Cutover::StopNewer;
                }
                if older.replaced_by == Some(newest.generation) {
                    return by_reconcile_policy(spec, older, newest, self.readiness(newest));
                }
            }
        }
        if serves_nobody(view, spec, older, now) {
            return Cutover::StopOlder;
        }
        keep_until_ready(self.readiness(newest))
    }

    fn readiness(&self, replica: &Replica) -> Readiness {
        readiness(self.view, replica, self.monitor, self.now)
    }
}

/// Whether `other` serves in place of `back`, which reconnected, while the slot is about to change: one of the two is
/// enough for that.
fn is_interim(view: &View, back: &Replica, other: &Replica) -> bool {
    let came_back_to = |other: &Replica| back.replaced_by.is_some_and(|replaced_by| other.generation <= replaced_by);
    is_up(view, back) && came_back_to(other) && other.generation > back.generation && is_seen_running(view, other)
}

fn is_up(view: &View, replica: &Replica) -> bool {
    replica.state == ReplicaState::Running && !view.nodes.is_down(replica.node)
}

/// Whether a reconnected generation is as good as its replacement: with the same reservation, on a node it may stay
/// on.
fn is_equivalent(view: &View, request: &PlacementRequest, older: &Replica, newest: &Replica) -> bool {
    let same =
        replica_fingerprint::matches_reservation(&older.reservation, &newest.reservation, &request.restarts_after);
    same && matches!(view.nodes.node(older.node).intent, Intent::Active | Intent::Paused)
}

/// Whether a generation is running or may be running soon.
fn is_or_may_be_up(replica: &Replica) -> bool {
    use ReplicaState::{Pending, Pulling, Running, Starting};
    matches!(replica.state, Pending | Pulling | Starting | Running)
}

/// Chooses between a reconnected generation and its replacement by the service's `reconcile` policy.
fn by_reconcile_policy(spec: &ServiceSpec, older: &Replica, newest: &Replica, readiness: Readiness) -> Cutover {
    match older.state {
        // What completed while its node was unreachable is done.
        ReplicaState::Completed if older.reservation.kind.is_job() || spec.restart.may_complete() => {
            return Cutover::StopNewer;
        }
        ReplicaState::Running => {}
        // It was restarted and may be about to run.
        ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Starting
            if spec.disconnect.reconcile == Reconcile::KeepOriginal =>
        {
            return Cutover::KeepOlder(None);
        }
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Degraded
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Failed
        | ReplicaState::Completed
        | ReplicaState::Lost => return Cutover::StopOlder,
    }
    let replacement_runs = newest.state == ReplicaState::Running;
    let given_up = newest.code == Some(RuntimeCode::RestartExhausted);
    let original_wins = match spec.disconnect.reconcile {
        Reconcile::KeepOriginal => true,
        // A replacement that was given up is not worth keeping.
        Reconcile::KeepReplacement => given_up,
        Reconcile::BestScore => !replacement_runs,
        Reconcile::LongestRunning => !replacement_runs || older.since < newest.since,
    };
    if original_wins { Cutover::StopNewer } else { keep_until_ready(readiness) }
}

/// Keeps an older generation until the newer one is ready.
fn keep_until_ready(readiness: Readiness) -> Cutover {
    match readiness {
        Readiness::Ready => Cutover::StopOlder,
        Readiness::ReadyAt(at) => Cutover::KeepOlder(Some(at)),
        Readiness::NotReady => Cutover::KeepOlder(None),
    }
}

/// Whether a generation can be stopped before its successor runs: it is not running, or its node is down and it is not
/// expected to reconnect.
pub(super) fn serves_nobody(view: &View, spec: &ServiceSpec, replica: &Replica, now: Time) -> bool {
    let down = view.nodes.node(replica.node).health == Health::Down;
    let runs = replica.state == ReplicaState::Running && !down;
    !runs && !node_loss::may_reconnect(view, spec, replica, now)
}

/// Whether an older generation of the slot is still running.
pub(super) fn older_serves(view: &View, slot: &Slot, replica: &Replica) -> bool {
    slot.replicas.iter().any(|older| {
        let serves = older.desired == DesiredState::Run && older.state == ReplicaState::Running;
        serves && older.generation < replica.generation && view.nodes.node(older.node).health != Health::Down
    })
}

/// Whether a job is still running on a draining node after the drain's deadline.
fn is_past_drain_deadline(view: &View, spec: &ServiceSpec, job: &Replica, now: Time) -> bool {
    let node = view.nodes.node(job.node);
    let over = node.drain.as_ref().and_then(|drain| drain.deadline).is_some_and(|deadline| deadline <= now);
    let ended = matches!(job.state, ReplicaState::Completed | ReplicaState::Failed | ReplicaState::Lost);
    spec.kind == ServiceKind::Batch && node.intent == Intent::Draining && over && !ended
}

/// Whether a replica's node is being removed from the cluster and the replica is not bound to it.
pub(super) fn is_leaving_with_its_node(view: &View, request: &PlacementRequest, replica: &Replica) -> bool {
    let drain = view.nodes.node(replica.node).drain.as_ref();
    drain.is_some_and(|drain| drain.then == AfterDrain::Remove) && !request.spec.is_stateful()
}

/// Whether a replica has to leave a node that is alive: the node is draining or no longer feasible. A stateful replica
/// stays, and so does a job until it has finished.
pub(super) fn must_leave(view: &View, request: &PlacementRequest, replica: &Replica) -> bool {
    if request.spec.is_stateful() {
        return false;
    }
    let drained = view.nodes.node(replica.node).intent == Intent::Draining && request.spec.kind != ServiceKind::Batch;
    drained || !feasibility::may_stay(request, view, replica.node)
}
