//! One generation of a slot, from the moment it is this node's work until it no longer is.
//!
//! Owns: the order of things: end what came before, fetch, make, start, watch; or end.
//! Must not touch: other generations. Each has its own task, and none waits for another but for a permit to start.
//! Invariant: what was begun at a driver is never abandoned half-way: fetching and waiting can be cancelled, making and
//! starting cannot. Every state it passes through is said.
//!
//! ```text
//! Run:   way ──▶ prepare ──▶ launch ──▶ watch ──▶ …    a newer attempt, or Stop, cancels all but launch
//! Stop:  end ──▶ stopped
//! ```

mod end;
mod start;
mod way;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use longshore_model::{Desired, Driver, ReplicaState, Work, replica::Details};
use tokio::sync::{Semaphore, watch};

use crate::{
    drivers::Drivers,
    files::Files,
    link::ControlLink,
    marks::Marks,
    outbox::Outbox,
    runtime::{Handle, Pokes, Runtime, RuntimeError},
    sighting::{self, sighting},
};

pub(crate) use end::end_found;
use start::Launch;
pub(crate) use way::forget_leftovers;

/// Longest time between two looks at a replica nobody hinted at.
const LOOK_AGAIN: Duration = Duration::from_mins(1);
/// Time between two looks while the driver does not answer.
const LOOK_SOON: Duration = Duration::from_secs(1);

/// What all replicas of a node share.
pub(crate) struct Shared {
    pub(crate) link: Arc<dyn ControlLink>,
    pub(crate) runtimes: BTreeMap<Driver, Arc<Runtime>>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) drivers: Drivers,
    pub(crate) pokes: Arc<Pokes>,
    pub(crate) marks: Marks,
    pub(crate) files: Files,
    pub(crate) permits: Semaphore,
    pub(crate) farewell: Duration,
}

impl Shared {
    fn runtime(&self, work: &Work) -> Option<&Runtime> {
        self.runtimes.get(&work.spec.driver).map(AsRef::as_ref)
    }
}

/// Carries out the newest wish about a generation until nobody wishes anything.
pub(crate) async fn run(shared: Arc<Shared>, mut desired: watch::Receiver<Work>) {
    while desired.has_changed().is_ok() {
        let work = desired.borrow_and_update().clone();
        match work.desired {
            Desired::Run => live(&shared, &work, &mut desired).await,
            Desired::Stop { grace } => {
                let ended = async {
                    end::end(&shared, &work, grace).await;
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    () = ended => {}
                    () = superseded(&mut desired, &work) => {}
                }
            }
        }
    }
}

/// Returns once the wish has changed in a way that matters to what is being done.
async fn superseded(desired: &mut watch::Receiver<Work>, work: &Work) {
    let matters = |now: &Work| {
        let life = |work: &Work| (work.assignment.placed_at, work.assignment.terms.spec_hash.clone());
        now.attempt != work.attempt || now.desired != work.desired || life(now) != life(work)
    };
    while desired.changed().await.is_ok() {
        if matters(&desired.borrow()) {
            return;
        }
    }
}

async fn live(shared: &Shared, work: &Work, desired: &mut watch::Receiver<Work>) {
    let Some(runtime) = shared.runtime(work) else {
        let reason = format!("this node has no {} driver", work.spec.driver.as_str());
        shared.outbox.say(sighting::start_failed(work, &reason));
        return superseded(desired, work).await;
    };
    loop {
        let ready = tokio::select! {
            ready = start::prepare(shared, runtime, work) => ready,
            () = superseded(desired, work) => return,
        };
        let launch = start::launch(shared, runtime, work, ready).await;
        let rest = async {
            match launch {
                Launch::Up(handle) => watch(shared, runtime, work, &handle).await,
                Launch::Over => std::future::pending().await,
                Launch::Again(pause) => tokio::time::sleep(pause).await,
            }
        };
        tokio::select! {
            () = rest => {}
            () = superseded(desired, work) => return,
        }
    }
}

/// Says what becomes of it, for ever: an ended one may be looked at by people, and one that vanished is a failure.
async fn watch(shared: &Shared, runtime: &Runtime, work: &Work, handle: &Handle) {
    let sleeper = shared.pokes.sleeper(&work.key);
    loop {
        let Some(look) = shared.drivers.while_here(runtime.driver(), runtime.look(handle)).await else {
            unseen(shared, runtime, work).await;
            continue;
        };
        let pause = match look {
            Ok(seen) => {
                shared.outbox.say(sighting::of(work, &seen));
                LOOK_AGAIN
            }
            Err(RuntimeError::Gone) => {
                // Whatever it could read went with it; the mark stays, so that it is not made again unasked.
                shared.files.clear(&work.container_name());
                shared.outbox.say(sighting::gone(work));
                LOOK_AGAIN
            }
            // Not a word about the replica before its driver is known to be away and not merely busy.
            Err(
                RuntimeError::Away { .. }
                | RuntimeError::Refused(_)
                | RuntimeError::NoSubnet(_)
                | RuntimeError::NotYet(_),
            ) => LOOK_SOON,
        };
        let _ = tokio::time::timeout(pause, sleeper.notified()).await;
    }
}

/// Says that nobody can look at it, and waits until somebody can.
async fn unseen(shared: &Shared, runtime: &Runtime, work: &Work) {
    if let Some(unseen) = sighting::unseen(work, shared.outbox.last(&work.key).as_ref()) {
        shared.outbox.say(unseen);
    }
    shared.drivers.returns(runtime.driver()).await;
}

fn say(shared: &Shared, work: &Work, state: ReplicaState) {
    shared.outbox.say(sighting(work, state, None, Details::new()));
}
