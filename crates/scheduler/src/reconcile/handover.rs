//! Which generations of a slot stay, where it has several that shall run.
//!
//! ```text
//! older one ─▶ its node is down:   stays while its service waits for it, else goes
//!           ─▶ it came back:       the service's word decides between it and its replacement, and, where that is about
//!                                  to be replaced itself, between it and whoever serves meanwhile
//!           ─▶ it serves nobody:   goes
//!           ─▶ it serves:          stays until the newer one has run well for the monitor time
//! ```
//!
//! This is the one rule for every move: drained, lost, invalid or updated, an old generation goes only when a newer one
//! has proven itself.
//!
//! Owns: that rule, and the instants at which its answer changes. Must not touch: where the newer one goes.

use std::{collections::BTreeSet, time::Duration};

use longshore_model::{
    AfterDrain, Generation, Health, Intent, PlanItem, ReplicaState, RuntimeCode, ServiceKind, ServiceSpec, Time,
    replica::Wanted, service::Reconcile,
};

use super::{
    Pass, absence,
    proof::{Proof, is_seen_running, proof},
    rollout, slots,
};
use crate::{
    ask::{Ask, making},
    feasibility,
    view::{
        View,
        groups::{Replica, Slot},
    },
};

/// What is to become of an older generation.
enum Fate {
    /// It stays for now, and perhaps only until then.
    Stays(Option<Time>),
    /// It goes.
    Goes,
    /// It stays, and the newer one goes.
    Wins,
}

/// Stops what is no longer needed, and asks to be woken when that could change.
pub(super) fn settle(pass: &mut Pass<'_>, ask: &Ask) {
    let known = pass.view.group(ask.group);
    let calm = pass.view.fleet.unsettled.is_empty();
    let monitor = rollout::monitor(pass.view, known);
    let (mut stops, mut wakes) = (Vec::new(), Vec::new());
    for slot in known.wanted_slots() {
        if calm && slot.replicas.len() < 2 {
            continue;
        }
        let spec = rollout::spec_of(pass.view, ask, slot);
        let stop = |generation: Generation| PlanItem::Stop { slot: slot.key.clone(), generation };
        for replica in slot.replicas.iter().filter(|replica| replica.wanted == Wanted::Run) {
            // Which of the two it follows may change meanwhile; to look once too often is no harm.
            let specs = known.rolling.held.iter().map(|held| &held.spec).chain([&known.spec]);
            wakes.extend(specs.filter_map(|spec| absence::next_change(pass.view, spec, replica, pass.now)));
        }
        if let Some(job) = slot.current().filter(|job| is_out_of_time(pass.view, spec, job, pass.now)) {
            stops.push(stop(job.generation));
        }
        let (loser, at) = losers(pass.view, (ask, spec), slot, monitor, pass.now);
        stops.extend(loser.into_iter().map(stop));
        wakes.extend(at);
    }
    pass.items.extend(stops);
    for at in wakes {
        pass.wake(at);
    }
}

/// The generations of a slot that go, and when to look again.
fn losers(
    view: &View,
    (ask, spec): (&Ask, &ServiceSpec),
    slot: &Slot,
    monitor: Duration,
    now: Time,
) -> (Vec<Generation>, Option<Time>) {
    let mut running: Vec<&Replica> = slot.replicas.iter().filter(|replica| replica.wanted == Wanted::Run).collect();
    let Some(newest) = running.pop() else { return (Vec::new(), None) };
    let (mut going, mut wake) = (BTreeSet::new(), None);
    for older in running.iter().copied() {
        // What is wanted again was made before what is wanted no more: the rollout goes back to it.
        if slots::is_outdated(ask, newest) && !slots::is_outdated(ask, older) && is_up(view, older) {
            continue;
        }
        let stand_in = running.iter().rev().find(|it| is_stand_in(view, older, it));
        let fate = match stand_in {
            Some(it) if is_equal(view, ask, older, it) => between(spec, older, (it, proof(view, it, monitor, now))),
            Some(it) => until(proof(view, it, monitor, now)),
            None => fate(view, (ask, spec), older, (newest, monitor), now),
        };
        match (fate, stand_in) {
            (Fate::Stays(None), _) => {}
            (Fate::Stays(Some(at)), _) => wake = Some(wake.map_or(at, |earlier: Time| earlier.min(at))),
            (Fate::Goes, _) => _ = going.insert(older.generation),
            (Fate::Wins, Some(it)) => _ = going.insert(it.generation),
            (Fate::Wins, None) => {
                let newer = slot.replicas.iter().filter(|other| other.generation > older.generation);
                return (newer.filter(|it| it.wanted == Wanted::Run).map(|it| it.generation).collect(), None);
            }
        }
    }
    (going.into_iter().collect(), wake)
}

/// Whether a generation does the work of one that came back, while the slot is about to change: one of the two is enough for
/// that.
fn is_stand_in(view: &View, back: &Replica, other: &Replica) -> bool {
    let came_back_to = |other: &Replica| back.rival.is_some_and(|rival| other.generation <= rival);
    is_up(view, back) && came_back_to(other) && other.generation > back.generation && is_seen_running(view, other)
}

fn fate(
    view: &View,
    (ask, spec): (&Ask, &ServiceSpec),
    older: &Replica,
    (newest, monitor): (&Replica, Duration),
    now: Time,
) -> Fate {
    if absence::is_waited_for(view, spec, older, now) {
        return Fate::Stays(None);
    }
    if view.fleet.node(older.node).health != Health::Down {
        // Its node is back and it has not been heard of yet: what it does is about to be known.
        if older.state == ReplicaState::Lost {
            return Fate::Stays(None);
        }
        if is_equal(view, ask, older, newest) {
            let astray = view.fleet.node(newest.node).health == Health::Down;
            if astray && is_or_may_be_up(older) {
                return Fate::Wins;
            }
            if older.rival == Some(newest.generation) {
                return between(spec, older, (newest, proof(view, newest, monitor, now)));
            }
        }
    }
    if serves_nobody(view, spec, older, now) {
        return Fate::Goes;
    }
    until(proof(view, newest, monitor, now))
}

fn is_up(view: &View, replica: &Replica) -> bool {
    replica.state == ReplicaState::Running && !view.fleet.is_down(replica.node)
}

/// Whether a generation that came back is as good a choice as its replacement: of the same making, on a node it may keep.
fn is_equal(view: &View, ask: &Ask, older: &Replica, newest: &Replica) -> bool {
    let same = making::is_made_of(&older.terms, &newest.terms, &ask.restarts_after);
    same && matches!(view.fleet.node(older.node).intent, Intent::Active | Intent::Paused)
}

/// Whether a generation runs, or nothing is known against its running soon.
fn is_or_may_be_up(replica: &Replica) -> bool {
    use ReplicaState::{Pending, Pulling, Running, Starting};
    matches!(replica.state, Pending | Pulling | Starting | Running)
}

/// The service's word on a generation that came back and the one that replaced it.
fn between(spec: &ServiceSpec, older: &Replica, (newest, proof): (&Replica, Proof)) -> Fate {
    match older.state {
        // A job that ended well while nobody looked is done.
        ReplicaState::Completed if matches!(older.terms.kind, ServiceKind::Batch | ServiceKind::Sysbatch) => {
            return Fate::Wins;
        }
        ReplicaState::Running => {}
        // It was booted again and may be about to run.
        ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Starting
            if spec.disconnect.reconcile == Reconcile::KeepOriginal =>
        {
            return Fate::Stays(None);
        }
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Degraded
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Failed
        | ReplicaState::Completed
        | ReplicaState::Lost => return Fate::Goes,
    }
    let replacement_runs = newest.state == ReplicaState::Running;
    let given_up = newest.code == Some(RuntimeCode::RestartExhausted);
    let original_wins = match spec.disconnect.reconcile {
        Reconcile::KeepOriginal => true,
        // There is nothing to keep of one that was given up.
        Reconcile::KeepReplacement => given_up,
        Reconcile::BestScore => !replacement_runs,
        Reconcile::LongestRunning => !replacement_runs || older.since < newest.since,
    };
    if original_wins { Fate::Wins } else { until(proof) }
}

/// An older generation stays until the newer one has proved itself.
fn until(proof: Proof) -> Fate {
    match proof {
        Proof::Given => Fate::Goes,
        Proof::At(at) => Fate::Stays(Some(at)),
        Proof::Missing => Fate::Stays(None),
    }
}

/// Whether nothing is lost by stopping a generation before its successor runs: it does not run, or its node is down and
/// nobody waits for it.
pub(super) fn serves_nobody(view: &View, spec: &ServiceSpec, replica: &Replica, now: Time) -> bool {
    let down = view.fleet.node(replica.node).health == Health::Down;
    let runs = replica.state == ReplicaState::Running && !down;
    !runs && !absence::is_waited_for(view, spec, replica, now)
}

/// Whether another generation of the slot, older than this one, still serves.
pub(super) fn older_serves(view: &View, slot: &Slot, replica: &Replica) -> bool {
    slot.replicas.iter().any(|older| {
        let serves = older.wanted == Wanted::Run && older.state == ReplicaState::Running;
        serves && older.generation < replica.generation && view.fleet.node(older.node).health != Health::Down
    })
}

/// Whether a job runs on a node that is drained and had its time to finish.
fn is_out_of_time(view: &View, spec: &ServiceSpec, job: &Replica, now: Time) -> bool {
    let node = view.fleet.node(job.node);
    let over = node.drain.as_ref().and_then(|drain| drain.deadline).is_some_and(|deadline| deadline <= now);
    let ended = matches!(job.state, ReplicaState::Completed | ReplicaState::Failed | ReplicaState::Lost);
    spec.kind == ServiceKind::Batch && node.intent == Intent::Draining && over && !ended
}

/// Whether a replica's node is about to leave the cluster for good, and it need not leave with it.
pub(super) fn is_leaving_with_its_node(view: &View, ask: &Ask, replica: &Replica) -> bool {
    let drain = view.fleet.node(replica.node).drain.as_ref();
    drain.is_some_and(|drain| drain.then == AfterDrain::Remove) && !ask.spec.is_stateful()
}

/// Whether a replica has to leave its node although the node is alive: it is drained, or no longer of the right kind.
/// What has data there stays, and so does a job until it has finished.
pub(super) fn must_leave(view: &View, ask: &Ask, replica: &Replica) -> bool {
    if ask.spec.is_stateful() {
        return false;
    }
    let drained = view.fleet.node(replica.node).intent == Intent::Draining && ask.spec.kind != ServiceKind::Batch;
    drained || !feasibility::may_stay(ask, view, replica.node)
}
