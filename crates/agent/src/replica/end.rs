//! From a wish to stop to nothing left.
//!
//! Owns: the moment between the word and the signal, hooks before a stop, the stop itself, and taking away what it leaves.
//! Invariant: a replica that clients can reach serves on until they can know that it will not.

use std::time::Duration;

use longshore_model::{ReplicaState, ServiceKind, Work, work::container_name};

use super::{Shared, say};
use crate::{
    backoff::Backoff,
    runtime::{Ending, Found, Phase, Pulse, Runtime, RuntimeError},
};

/// Ends every attempt of a generation, however often its driver must be asked, and says so.
pub(super) async fn end(shared: &Shared, work: &Work, grace: Option<Duration>) {
    let Some(runtime) = shared.runtime(work) else {
        return say(shared, work, ReplicaState::Stopped);
    };
    let mut backoff = Backoff::for_neighbours();
    loop {
        match attempt(shared, runtime, work, grace).await {
            Ok(()) => break,
            Err(error) => tracing::warn!(replica = %work.key, %error, "a replica could not be ended yet"),
        }
        tokio::time::sleep(backoff.pause()).await;
    }
    shared.marks.clear(&work.container_name());
    shared.files.clear(&work.container_name());
    say(shared, work, ReplicaState::Stopped);
}

async fn attempt(shared: &Shared, runtime: &Runtime, work: &Work, grace: Option<Duration>) -> Result<(), RuntimeError> {
    for mut found in runtime.attempts(&work.key).await? {
        say(shared, work, ReplicaState::Draining);
        found.ending = Ending::of(&work.spec.container, grace);
        let phase = runtime.look(&found.handle).await.map(|seen| seen.phase);
        if let Ok(Phase::Up(pulse)) = &phase {
            tokio::time::sleep(farewell(shared, work, pulse, found.ending.grace)).await;
        }
        for hook in work.spec.container.pre_stop.iter().filter(|_| matches!(phase, Ok(Phase::Up(_)))) {
            // It is asked to end whether the hook liked it or not.
            if let Err(error) = runtime.hook(&found.handle, hook).await {
                tracing::warn!(replica = %work.key, %error, "a pre_stop hook could not be run");
            }
        }
        end_found(shared, runtime, &found).await?;
    }
    Ok(())
}

/// How long it serves on. Clients see in the API that it shall stop from the moment that was decided, so all they need is
/// time to look; waiting for them to confirm was refused, because one that is gone would keep every replica alive.
fn farewell(shared: &Shared, work: &Work, pulse: &Pulse, grace: Duration) -> Duration {
    let is_asked = !work.spec.ports.is_empty() && matches!(work.spec.kind, ServiceKind::Service | ServiceKind::System);
    match pulse {
        Pulse::Unchecked | Pulse::Healthy if is_asked => shared.farewell.min(grace),
        // Nobody is sent to it: it publishes nothing, or does not serve.
        Pulse::Unchecked | Pulse::Healthy | Pulse::Starting | Pulse::Unhealthy { .. } => Duration::ZERO,
    }
}

/// Ends and takes away one thing that exists.
pub(crate) async fn end_found(shared: &Shared, runtime: &Runtime, found: &Found) -> Result<(), RuntimeError> {
    runtime.end(&found.handle, &found.ending).await?;
    let name = container_name(&found.key, found.attempt);
    // Before it is taken away: a mark without a container is a container somebody else took.
    shared.marks.clear(&name);
    runtime.remove(&found.handle).await?;
    shared.files.clear(&name);
    Ok(())
}
