//! Clears previous attempts of a generation before the next one starts.
//!
//! Owns: stopping them, keeping the output of the last, and removing files and markers of attempts that no longer
//! exist.
//! Must not touch: the attempt that the work asks for.
//! Invariant: at most one exited attempt is kept per generation, and none once the generation has stopped.

use std::collections::BTreeSet;

use longshore_model::{Attempt, ReplicaState, Work, agent_protocol::container_name, replica::Details};

use super::{AgentContext, stop_and_remove};
use crate::{
    backoff::Backoff,
    desired_work::DesiredWork,
    runtime::{ExistingReplica, Phase, Runtime, RuntimeError},
    status_report::report,
};

/// Stops every other attempt of the generation and returns the desired one, if it exists. The output of the attempt
/// before stays, because it tells why that attempt was replaced.
pub(super) async fn clear_previous(ctx: &AgentContext, runtime: &dyn Runtime, work: &Work) -> Option<ExistingReplica> {
    let mut backoff = Backoff::for_requests();
    loop {
        match try_clear(ctx, runtime, work).await {
            Ok(desired) => return desired,
            Err(error) => {
                tracing::debug!(replica = %work.key, %error, "previous attempts could not be stopped; will retry");
            }
        }
        tokio::time::sleep(backoff.next_pause()).await;
    }
}

async fn try_clear(
    ctx: &AgentContext,
    runtime: &dyn Runtime,
    work: &Work,
) -> Result<Option<ExistingReplica>, RuntimeError> {
    let attempts = runtime.attempts(&work.key).await?;
    let (mut desired, mut others): (Vec<ExistingReplica>, Vec<ExistingReplica>) =
        attempts.into_iter().partition(|existing| existing.matches(work));
    others.sort_by_key(|existing| existing.attempt);
    let previous = others.pop_if(|newest| newest.attempt < work.attempt);
    for other in others {
        stop_and_remove(ctx, runtime, &other).await?;
    }
    if let Some(previous) = previous {
        stop_and_keep_output(ctx, runtime, work, &previous).await?;
    }
    if let Some(before) = work.attempt.0.checked_sub(1) {
        // Also if its container was removed externally.
        ctx.forget_attempt(&container_name(&work.key, Attempt(before)));
    }
    Ok(desired.pop())
}

async fn stop_and_keep_output(
    ctx: &AgentContext,
    runtime: &dyn Runtime,
    work: &Work,
    previous: &ExistingReplica,
) -> Result<(), RuntimeError> {
    match runtime.inspect(&previous.handle).await.map(|inspection| inspection.phase) {
        Ok(Phase::Running(_)) => report_draining(ctx, work),
        Ok(Phase::Exited(_)) => {}
        // It has no output.
        Ok(Phase::Created | Phase::StartFailed { .. }) => return stop_and_remove(ctx, runtime, previous).await,
        Err(RuntimeError::NotFound) => return Ok(()),
        Err(error) => return Err(error),
    }
    runtime.stop(&previous.handle, &previous.stop).await?;
    runtime.release(&previous.handle);
    ctx.forget_attempt(&container_name(&previous.key, previous.attempt));
    Ok(())
}

/// Reports that the previous attempt is being stopped. The code and details of its last report say why.
fn report_draining(ctx: &AgentContext, work: &Work) {
    let last = ctx.outbox.last_report(&work.key).filter(|last| last.attempt < work.attempt);
    let (code, details) = last.map_or((None, Details::new()), |last| (last.code, last.details));
    ctx.outbox.push(report(work, ReplicaState::Draining, code, details));
}

/// Removes files and markers of attempts that neither exist nor are desired, for example those of a container that was
/// removed externally while no agent ran.
pub(crate) async fn remove_stale_attempt_data(
    ctx: &AgentContext,
    desired: impl Fn() -> DesiredWork,
) -> Result<(), RuntimeError> {
    // Listed first: work that writes files or markers from here on is desired by the time `desired` is called.
    let (with_files, with_markers) = (ctx.files.containers(), ctx.markers.containers());
    let mut needed = BTreeSet::new();
    // A driver that has never answered has created nothing, or only starts; then its work is desired.
    for runtime in ctx.runtimes.values().filter(|runtime| ctx.drivers.has_answered(runtime.driver())) {
        needed.extend(runtime.list().await?.iter().map(|existing| container_name(&existing.key, existing.attempt)));
    }
    needed.extend(desired().work().map(Work::container_name));
    with_files.iter().filter(|name| !needed.contains(*name)).for_each(|name| ctx.files.clear(name));
    with_markers.iter().filter(|name| !needed.contains(*name)).for_each(|name| ctx.markers.clear(name));
    Ok(())
}
