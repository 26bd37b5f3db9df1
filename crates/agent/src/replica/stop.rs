//! Stopping a generation until nothing of it is left.
//!
//! Owns: the deregistration delay, `pre_stop` hooks, the stop itself, and removing what is left.
//! Invariant: a replica that clients can reach keeps serving for the deregistration delay after its stop was decided.

use std::time::Duration;

use longshore_model::{ReplicaState, ServiceKind, Work, agent_protocol::container_name};

use super::AgentContext;
use crate::{
    backoff::Backoff,
    runtime::{ExistingReplica, HealthStatus, Phase, Runtime, RuntimeError, StopSpec},
};

/// Stops and removes every attempt of a generation, retrying while its driver fails, and reports it stopped.
pub(super) async fn stop(ctx: &AgentContext, work: &Work, grace: Option<Duration>) {
    let Some(runtime) = ctx.runtime(work) else {
        return ctx.report_state(work, ReplicaState::Stopped);
    };
    let mut backoff = Backoff::for_requests();
    loop {
        match stop_attempts(ctx, runtime, work, grace).await {
            Ok(()) => break,
            Err(error) => tracing::warn!(replica = %work.key, %error, "the replica could not be stopped; will retry"),
        }
        tokio::time::sleep(backoff.next_pause()).await;
    }
    ctx.forget_attempt(&work.container_name());
    ctx.report_state(work, ReplicaState::Stopped);
}

async fn stop_attempts(
    ctx: &AgentContext,
    runtime: &dyn Runtime,
    work: &Work,
    grace: Option<Duration>,
) -> Result<(), RuntimeError> {
    for mut existing in runtime.attempts(&work.key).await? {
        ctx.report_state(work, ReplicaState::Draining);
        existing.stop = StopSpec::of(&work.spec.container, grace);
        let inspected = runtime.inspect(&existing.handle).await;
        if let Ok(Phase::Running(health)) = inspected.map(|inspection| inspection.phase) {
            tokio::time::sleep(deregistration_delay(ctx, work, &health, existing.stop.grace)).await;
            for hook in &work.spec.container.pre_stop {
                // A failed hook does not prevent the stop.
                if let Err(error) = runtime.run_hook(&existing.handle, hook).await {
                    tracing::warn!(replica = %work.key, %error, "a pre_stop hook could not be run");
                }
            }
        }
        stop_and_remove(ctx, runtime, &existing).await?;
    }
    Ok(())
}

/// How long the replica keeps serving. The API shows to clients that it will stop from the moment that was decided, so
/// they only need time to read it. Waiting for them to confirm was rejected: a client that is gone would delay every
/// stop.
fn deregistration_delay(ctx: &AgentContext, work: &Work, health: &HealthStatus, grace: Duration) -> Duration {
    let has_clients =
        !work.spec.ports.is_empty() && matches!(work.spec.kind, ServiceKind::Service | ServiceKind::System);
    match health {
        HealthStatus::Unchecked | HealthStatus::Healthy if has_clients => ctx.deregistration_delay.min(grace),
        // No requests are routed to it.
        HealthStatus::Unchecked | HealthStatus::Healthy | HealthStatus::Starting | HealthStatus::Unhealthy { .. } => {
            Duration::ZERO
        }
    }
}

/// Stops and removes one existing attempt with its marker and files.
pub(crate) async fn stop_and_remove(
    ctx: &AgentContext,
    runtime: &dyn Runtime,
    existing: &ExistingReplica,
) -> Result<(), RuntimeError> {
    runtime.stop(&existing.handle, &existing.stop).await?;
    let name = container_name(&existing.key, existing.attempt);
    // Before the removal: a marker without a container means that the container was removed externally.
    ctx.markers.clear(&name);
    runtime.remove(&existing.handle).await?;
    ctx.files.clear(&name);
    Ok(())
}
