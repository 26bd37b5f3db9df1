//! One generation of a slot, from the moment it becomes this node's work until it no longer is.
//!
//! Owns: the order of steps: clear previous attempts, prepare, launch, monitor; or stop.
//! Must not touch: other generations. Each has its own task, and tasks only share the permits to start.
//! Invariant: creating and starting at a driver is never cancelled half-way; preparing and waiting can be. Every state
//! the replica passes through is reported.
//!
//! ```text
//! Run:   clear_previous ──▶ prepare ──▶ launch ──▶ monitor ──▶ …    a newer attempt, or Stop, cancels all but launch
//! Stop:  stop ──▶ stopped
//! ```

mod clear_previous;
mod policy_check;
mod start;
mod stop;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use longshore_model::{Desired, Driver, ReplicaState, Work, replica::Details};
use tokio::sync::{Semaphore, watch};

use crate::{
    control_link::ControlLink,
    created_markers::CreatedMarkers,
    driver_availability::DriverAvailability,
    last_lines,
    outbox::Outbox,
    runtime::{Handle, Inspection, Phase, Runtime, RuntimeError},
    secret_files::SecretFiles,
    status_report::{self, report},
    wakeups::Wakeups,
};

pub(crate) use clear_previous::remove_stale_attempt_data;
use start::Launch;
pub(crate) use stop::stop_and_remove;

/// Longest time between two inspections without a wake-up.
const INSPECT_INTERVAL: Duration = Duration::from_mins(1);
/// Time between two inspections while the driver does not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// What all tasks of an agent share.
pub(crate) struct AgentContext {
    pub(crate) link: Arc<dyn ControlLink>,
    pub(crate) runtimes: BTreeMap<Driver, Arc<dyn Runtime>>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) drivers: DriverAvailability,
    pub(crate) wakeups: Arc<Wakeups>,
    pub(crate) markers: CreatedMarkers,
    pub(crate) files: SecretFiles,
    pub(crate) start_permits: Semaphore,
    pub(crate) deregistration_delay: Duration,
    /// Whether this process has received a snapshot of its work.
    pub(crate) synced: watch::Sender<bool>,
}

impl AgentContext {
    fn runtime(&self, work: &Work) -> Option<&dyn Runtime> {
        self.runtimes.get(&work.spec.driver).map(AsRef::as_ref)
    }

    fn report_state(&self, work: &Work, state: ReplicaState) {
        self.outbox.push(report(work, state, None, Details::new()));
    }

    /// Removes what was kept on this node for an attempt that no longer exists.
    fn forget_attempt(&self, container: &str) {
        self.markers.clear(container);
        self.files.clear(container);
    }
}

/// Carries out the newest work of a generation until its sender is dropped.
pub(crate) async fn run(ctx: Arc<AgentContext>, mut newest: watch::Receiver<Work>) {
    while newest.has_changed().is_ok() {
        let work = newest.borrow_and_update().clone();
        match work.desired {
            Desired::Run => keep_running(&ctx, &work, &mut newest).await,
            Desired::Stop { grace } => {
                let stopped = async {
                    stop::stop(&ctx, &work, grace).await;
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    () = stopped => {}
                    () = superseded(&mut newest, &work) => {}
                }
            }
        }
    }
}

/// Returns once newer work has another attempt, incarnation, spec or desired state, or the sender is dropped.
async fn superseded(newest: &mut watch::Receiver<Work>, work: &Work) {
    let differs = |newer: &Work| {
        let incarnation = |work: &Work| (work.assignment.placed_at, work.assignment.reservation.spec_hash.clone());
        newer.attempt != work.attempt || newer.desired != work.desired || incarnation(newer) != incarnation(work)
    };
    while newest.changed().await.is_ok() {
        if differs(&newest.borrow()) {
            return;
        }
    }
}

async fn keep_running(ctx: &AgentContext, work: &Work, newest: &mut watch::Receiver<Work>) {
    let Some(runtime) = ctx.runtime(work) else {
        let reason = format!("this node has no {} driver", work.spec.driver.as_str());
        ctx.outbox.push(status_report::start_delayed(work, &reason));
        return superseded(newest, work).await;
    };
    loop {
        let prepared = tokio::select! {
            prepared = start::prepare(ctx, runtime, work) => prepared,
            () = superseded(newest, work) => return,
        };
        let launch = start::launch(ctx, runtime, work, prepared).await;
        let rest = async {
            match launch {
                Launch::Started(handle) => monitor(ctx, runtime, work, &handle).await,
                Launch::Failed => std::future::pending().await,
                Launch::RetryAfter(pause) => tokio::time::sleep(pause).await,
            }
        };
        tokio::select! {
            () = rest => {}
            () = superseded(newest, work) => return,
        }
    }
}

/// Inspects the replica and reports its state, also after its exit: an exited replica that is removed externally is
/// reported as a failure. Returns once it is to be resumed.
async fn monitor(ctx: &AgentContext, runtime: &dyn Runtime, work: &Work, handle: &Handle) {
    let notifier = ctx.wakeups.notifier(&work.key);
    loop {
        let Some(inspected) = ctx.drivers.while_available(runtime.driver(), runtime.inspect(handle)).await else {
            wait_for_driver(ctx, runtime, work).await;
            continue;
        };
        let pause = match inspected {
            Ok(inspection) if is_to_resume(ctx, work, &inspection) => return,
            Ok(inspection) => {
                if matches!(inspection.phase, Phase::Exited(_)) {
                    ctx.markers.set_ended(&work.container_name());
                }
                let report = status_report::from_inspection(work, &inspection);
                let last = ctx.outbox.last_report(&work.key);
                ctx.outbox.push(last_lines::attach(report, last.as_ref(), runtime, handle).await);
                INSPECT_INTERVAL
            }
            Err(RuntimeError::NotFound) => {
                // Its files are removed with it; the marker stays, so that the attempt is not created a second time.
                ctx.files.clear(&work.container_name());
                ctx.outbox.push(status_report::removed_externally(work));
                INSPECT_INTERVAL
            }
            // Nothing is reported until the driver is known to be unavailable and not just busy.
            Err(
                RuntimeError::Unavailable { .. }
                | RuntimeError::Refused(_)
                | RuntimeError::NoSubnet(_)
                | RuntimeError::DependencyNotReady(_),
            ) => RETRY_INTERVAL,
        };
        let _ = tokio::time::timeout(pause, notifier.notified()).await;
    }
}

/// Whether an attempt ended with its engine or machine and not by itself, so that the same attempt is started again. It
/// is not a failure, and the control plane has no part in it.
fn is_to_resume(ctx: &AgentContext, work: &Work, inspection: &Inspection) -> bool {
    let Phase::Exited(exit) = &inspection.phase else { return false };
    // A one-off job is not run a second time: nobody is at its terminal any more.
    exit.ended_with_host
        && work.spec.one_off.is_none()
        && !exit.oom_killed
        && !ctx.markers.has_ended(&work.container_name())
}

/// Reports that the replica cannot be inspected, and waits until its driver answers again.
async fn wait_for_driver(ctx: &AgentContext, runtime: &dyn Runtime, work: &Work) {
    if let Some(report) = status_report::engine_unreachable(work, ctx.outbox.last_report(&work.key).as_ref()) {
        ctx.outbox.push(report);
    }
    ctx.drivers.wait_until_available(runtime.driver()).await;
}
