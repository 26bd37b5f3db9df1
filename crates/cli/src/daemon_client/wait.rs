//! `--wait`: polls until a deployment runs the requested revision, or is removed.
//!
//! Owns: the options, the polling, and for how long a state must hold before it is believed.
//! Must not touch: the deployment. What one poll means is decided in [`super::wait_outcome`].

use std::time::{Duration, Instant};

use clap::Args;
use longshore_api::{Client, ClientError, Deployment, DeploymentStatus, Replica, StatusReason, Why};
use longshore_model::ApiErrorCode;

use super::wait_outcome::{self, ServiceCount};
pub(crate) use super::wait_outcome::{Blocker, WaitOutcome};
use crate::output::{
    live_region::{LiveRegion, Stream},
    progress::{self, ChangeReporter},
    style::Colour,
};

/// Time between two polls. People notice no difference below it, and it is no load for a daemon.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long replicas that have failed before must run: a process that crashes also runs for a moment.
const STABLE_AFTER_FAILURE: Duration = Duration::from_secs(5);

/// How long no node must be found before that is the answer. A node that has just started, or a replica that is just
/// stopping, makes room within it.
pub(super) const UNPLACEABLE_AFTER: Duration = Duration::from_secs(10);

/// The time limit where none was given.
const DEFAULT_LIMIT: Duration = Duration::from_mins(5);
/// A longer limit is as good as none, and would overflow the clock.
pub(super) const LONGEST_WAIT: Duration = Duration::from_hours(24 * 365);

/// The options `--wait` and `--timeout`.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WaitArgs {
    /// Wait until the change is complete, and show its progress. Exit code 4: it failed, was rolled back or fits on no
    /// node; 5: it timed out; 6: it needs a command of yours, which is printed.
    #[arg(long)]
    wait: bool,
    /// Time limit of `--wait`, in seconds; 300 unless given. Where it is given, replicas that fit on no node are waited
    /// for, too.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

impl WaitArgs {
    /// The time limit; `None` without `--wait`.
    pub(crate) fn limit(self) -> Option<WaitLimit> {
        self.wait.then(|| WaitLimit::of(self.timeout))
    }
}

/// How long is waited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimit {
    pub(crate) time: Duration,
    /// Whether replicas that fit on no node end the waiting, because nobody asked to wait for a node.
    pub(super) ends_if_unplaceable: bool,
}

impl WaitLimit {
    /// The limit that was asked for, in seconds, or the default.
    pub(crate) fn of(timeout: Option<u64>) -> Self {
        let time = timeout.map_or(DEFAULT_LIMIT, Duration::from_secs);
        Self { time, ends_if_unplaceable: timeout.is_none() }
    }
}

impl From<Duration> for WaitLimit {
    fn from(time: Duration) -> Self {
        Self { time, ends_if_unplaceable: false }
    }
}

/// The deployment and revision to wait for.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    pub(crate) namespace: String,
    pub(crate) deployment: String,
    /// The revision that shall be active; ignored when waiting for a removal.
    pub(crate) revision: u64,
}

/// Waits until the deployment runs the revision of `goal`, and shows the progress in `region`.
pub(crate) async fn until_active(
    client: &Client,
    goal: &Goal,
    limit: impl Into<WaitLimit>,
    region: &mut LiveRegion,
) -> Result<WaitOutcome, ClientError> {
    until(client, goal, None, limit.into(), region).await
}

/// Waits until a service runs as many replicas as it was scaled to.
pub(crate) async fn until_scaled(
    client: &Client,
    goal: &Goal,
    count: &ServiceCount,
    limit: WaitLimit,
    region: &mut LiveRegion,
) -> Result<WaitOutcome, ClientError> {
    until(client, goal, Some(count), limit, region).await
}

async fn until(
    client: &Client,
    goal: &Goal,
    count: Option<&ServiceCount>,
    limit: WaitLimit,
    region: &mut LiveRegion,
) -> Result<WaitOutcome, ClientError> {
    let (deadline, colour) = (Instant::now() + limit.time.min(LONGEST_WAIT), Colour::of_stderr());
    let mut reporter = ChangeReporter::default();
    let (mut complete_since, mut unplaceable_since) = (None, None);
    loop {
        let (deployment, replicas) = poll(client, goal).await?;
        if region.redraws() {
            region.draw(&progress::services(&deployment, &replicas, colour));
        } else {
            reporter.changes(&replicas, colour).iter().for_each(|line| region.print_above(line));
        }
        match wait_outcome::judge(&deployment, &replicas, goal, count) {
            Some(WaitOutcome::Complete)
                if complete_since.get_or_insert_with(Instant::now).elapsed() < stable_time(&replicas) => {}
            Some(outcome) => {
                region.keep();
                return Ok(outcome);
            }
            None => complete_since = None,
        }
        match wait_outcome::unplaceable(&deployment, &replicas) {
            Some(replica) if limit.ends_if_unplaceable => {
                if unplaceable_since.get_or_insert_with(Instant::now).elapsed() >= UNPLACEABLE_AFTER {
                    region.keep();
                    return Ok(WaitOutcome::Failed(why_unplaceable(client, goal, replica).await?));
                }
            }
            Some(_) | None => unplaceable_since = None,
        }
        if Instant::now() > deadline {
            region.keep();
            return Ok(WaitOutcome::TimedOut(wait_outcome::status_and_reasons(&deployment)));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The explanation that `longshore why` would give.
async fn why_unplaceable(client: &Client, goal: &Goal, replica: &Replica) -> Result<String, ClientError> {
    let code = replica.code.as_ref().map_or("no_node", longshore_api::Code::as_str);
    let explain = match client.why(&goal.namespace, &replica.id).await {
        Ok(Why::Waits { pending, .. }) => format!("\n{}", pending.explain),
        Ok(Why::Placed { .. } | Why::Service { .. } | Why::Observed { .. }) | Err(ClientError::Refused(_)) => {
            String::new()
        }
        Err(error) => return Err(error),
    };
    Ok(format!(
        "has no node for {}: {code}{explain}\nit stays applied, and starts once a node has room for it",
        replica.id
    ))
}

/// Waits until a removed deployment no longer exists.
pub(crate) async fn until_removed(
    client: &Client,
    goal: &Goal,
    limit: impl Into<WaitLimit>,
) -> Result<WaitOutcome, ClientError> {
    let (deadline, mut region) =
        (Instant::now() + limit.into().time.min(LONGEST_WAIT), LiveRegion::new(Stream::Stderr));
    loop {
        let (deployment, replicas) = match poll(client, goal).await {
            Err(ClientError::Refused(envelope)) if envelope.code == ApiErrorCode::NotFound.code() => {
                region.clear();
                return Ok(WaitOutcome::Complete);
            }
            found => found?,
        };
        region.draw(&progress::services(&deployment, &replicas, Colour::of_stderr()));
        if Instant::now() > deadline {
            region.keep();
            return Ok(WaitOutcome::TimedOut(wait_outcome::status_and_reasons(&deployment)));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Waits until none of a deployment's replicas is left that must stop.
pub(crate) async fn until_stopped(client: &Client, goal: &Goal, limit: Duration) -> Result<WaitOutcome, ClientError> {
    let (deadline, mut region) = (Instant::now() + limit.min(LONGEST_WAIT), LiveRegion::new(Stream::Stderr));
    loop {
        let (deployment, replicas) = poll(client, goal).await?;
        let stopping = deployment.reasons.contains(&StatusReason::Stopping);
        if deployment.status == DeploymentStatus::Stopped {
            region.clear();
            return Ok(WaitOutcome::Complete);
        }
        if !stopping {
            region.keep();
            return Ok(WaitOutcome::Failed(format!(
                "was started again: it is {}",
                wait_outcome::status_and_reasons(&deployment)
            )));
        }
        region.draw(&progress::services(&deployment, &replicas, Colour::of_stderr()));
        if Instant::now() > deadline {
            region.keep();
            return Ok(WaitOutcome::TimedOut(wait_outcome::status_and_reasons(&deployment)));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn poll(client: &Client, goal: &Goal) -> Result<(Deployment, Vec<Replica>), ClientError> {
    let mut status = client.status(&goal.namespace, Some(&goal.deployment)).await?;
    // The daemon answers with the one deployment that was asked for, or refuses.
    let deployment = match status.deployments.pop() {
        Some(deployment) => deployment,
        None => client.deployment(&goal.namespace, &goal.deployment).await?,
    };
    Ok((deployment, status.replicas))
}

/// How long the deployment must stay complete: one more poll, and longer if a replica has failed before.
fn stable_time(replicas: &[Replica]) -> Duration {
    if replicas.iter().any(|replica| replica.restarts > 0) { STABLE_AFTER_FAILURE } else { POLL_INTERVAL }
}
