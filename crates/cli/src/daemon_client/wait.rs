//! `--wait`: polls until a deployment runs the requested revision, or is removed.
//!
//! Owns: when a change is complete, when it has failed, and when only the operator can continue.
//! Must not touch: the deployment. Invariant: a change that was rolled back is never reported as complete.

use std::{
    fmt,
    time::{Duration, Instant},
};

use clap::Args;
use longshore_api::{
    Client, ClientError, Code, Deployment, DeploymentStatus, Replica, ReplicaState, RolloutState, StatusReason,
};
use longshore_model::ApiErrorCode;

use crate::{
    exit::Exit,
    output::{
        live_region::{LiveRegion, Stream},
        print,
        progress::{self, ChangeReporter},
        style::Colour,
    },
};

/// Time between two polls. People notice no difference below it, and it is no load for a daemon.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long replicas that have failed before must run: a process that crashes also runs for a moment.
const STABLE_AFTER_FAILURE: Duration = Duration::from_secs(5);

/// The options `--wait` and `--timeout`.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WaitArgs {
    /// Wait until the change is complete, and show its progress. Exit code 4: it failed or was rolled back; 5: it timed
    /// out; 6: it needs a command of yours, which is printed.
    #[arg(long)]
    wait: bool,
    /// Time limit of `--wait`, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

impl WaitArgs {
    /// The time limit; `None` without `--wait`.
    pub(crate) fn limit(self) -> Option<Duration> {
        self.wait.then(|| Duration::from_secs(self.timeout))
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

/// How waiting ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    Complete,
    /// It failed; the text says why.
    Failed(String),
    /// Only the operator can continue.
    OperatorNeeded(Blocker),
    /// The time limit passed; the text is the last status.
    TimedOut(String),
}

/// Why only the operator can continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Blocker {
    /// A rollout has updated its canaries.
    Promotion,
    /// A rollout is paused.
    Pause,
    /// A drained node has replicas whose data is there; the text lists them.
    Data(String),
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Promotion => f.write_str("waits for promotion"),
            Self::Pause => f.write_str("is paused"),
            Self::Data(left) => write!(f, "has replicas whose data cannot move: {left}"),
        }
    }
}

impl WaitOutcome {
    /// Prints the outcome of waiting for a deployment, unless it is complete.
    pub(crate) fn report(self, goal: &Goal) -> Exit {
        let Goal { namespace, deployment, .. } = goal;
        let scope = if namespace == "default" { String::new() } else { format!(" -n {namespace}") };
        let hint = match &self {
            Self::OperatorNeeded(Blocker::Promotion) => format!(
                "`longshore promote {deployment}{scope}` continues it, `longshore rollback {deployment}{scope}` rolls it back"
            ),
            Self::OperatorNeeded(Blocker::Pause) => format!("`longshore resume {deployment}{scope}` continues it"),
            Self::OperatorNeeded(Blocker::Data(_)) | Self::Complete | Self::Failed(_) | Self::TimedOut(_) => format!(
                "`longshore status {deployment}{scope}` shows the replicas, `longshore why{scope} REPLICA` explains one"
            ),
        };
        self.report_as(deployment, &hint)
    }

    /// Prints the outcome of waiting for anything with a name, unless it is complete.
    pub(crate) fn report_as(self, name: &str, hint: &str) -> Exit {
        let (exit, text) = match self {
            Self::Complete => return Exit::Success,
            Self::Failed(why) => (Exit::Failed, format!("error: `{name}` {why}")),
            Self::OperatorNeeded(why) => (Exit::OperatorNeeded, format!("`{name}` {why}")),
            Self::TimedOut(status) => (Exit::TimedOut, format!("error: `{name}` timed out: {status}")),
        };
        print::stderr(&text);
        print::stderr(&format!("\nhint: {hint}"));
        exit
    }
}

/// Waits until the deployment runs the revision of `goal`, and shows the progress in `region`.
pub(crate) async fn until_active(
    client: &Client,
    goal: &Goal,
    limit: Duration,
    region: &mut LiveRegion,
) -> Result<WaitOutcome, ClientError> {
    let (deadline, colour) = (Instant::now() + limit, Colour::of_stderr());
    let mut reporter = ChangeReporter::default();
    let mut complete_since = None;
    loop {
        let (deployment, replicas) = poll(client, goal).await?;
        if region.redraws() {
            region.draw(&progress::services(&deployment, &replicas, colour));
        } else {
            reporter.changes(&replicas, colour).iter().for_each(|line| region.print_above(line));
        }
        match ended_in_failure(&deployment, &replicas, goal).or_else(|| outcome(&deployment, &replicas, goal)) {
            Some(WaitOutcome::Complete)
                if complete_since.get_or_insert_with(Instant::now).elapsed() < stable_time(&replicas) => {}
            Some(outcome) => {
                region.keep();
                return Ok(outcome);
            }
            None => complete_since = None,
        }
        if Instant::now() > deadline {
            region.keep();
            return Ok(WaitOutcome::TimedOut(status_and_reasons(&deployment)));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Waits until a removed deployment no longer exists.
pub(crate) async fn until_removed(client: &Client, goal: &Goal, limit: Duration) -> Result<WaitOutcome, ClientError> {
    let (deadline, mut region) = (Instant::now() + limit, LiveRegion::new(Stream::Stderr));
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
            return Ok(WaitOutcome::TimedOut(status_and_reasons(&deployment)));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Waits until none of a deployment's replicas is left that must stop.
pub(crate) async fn until_stopped(client: &Client, goal: &Goal, limit: Duration) -> Result<WaitOutcome, ClientError> {
    let (deadline, mut region) = (Instant::now() + limit, LiveRegion::new(Stream::Stderr));
    loop {
        let (deployment, replicas) = poll(client, goal).await?;
        let stopping = deployment.reasons.contains(&StatusReason::Stopping);
        if deployment.status == DeploymentStatus::Stopped {
            region.clear();
            return Ok(WaitOutcome::Complete);
        }
        if !stopping {
            region.keep();
            return Ok(WaitOutcome::Failed(format!("was started again: it is {}", status_and_reasons(&deployment))));
        }
        region.draw(&progress::services(&deployment, &replicas, Colour::of_stderr()));
        if Instant::now() > deadline {
            region.keep();
            return Ok(WaitOutcome::TimedOut(status_and_reasons(&deployment)));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn poll(client: &Client, goal: &Goal) -> Result<(Deployment, Vec<Replica>), ClientError> {
    let deployment = client.deployment(&goal.namespace, &goal.deployment).await?;
    let mut replicas = client.replicas().await?;
    replicas.retain(|replica| replica.namespace == goal.namespace && replica.deployment == goal.deployment);
    Ok((deployment, replicas))
}

/// `None` while the change is in progress.
fn outcome(deployment: &Deployment, replicas: &[Replica], goal: &Goal) -> Option<WaitOutcome> {
    let rollout = deployment.rollout.as_ref().filter(|rollout| rollout.to == goal.revision);
    let rollout = rollout.map(|rollout| &rollout.state);
    if rollout == Some(&RolloutState::RolledBack) {
        return Some(WaitOutcome::Failed(format!("failed and was rolled back to revision {}", deployment.revision)));
    }
    // During an automatic rollback the requested revision is no longer the active one, and its rollout still exists.
    if deployment.revision != goal.revision && rollout.is_none() {
        return Some(WaitOutcome::Failed(format!("was changed again: revision {} is active", deployment.revision)));
    }
    match rollout {
        Some(RolloutState::Paused) => return Some(WaitOutcome::OperatorNeeded(Blocker::Pause)),
        Some(RolloutState::AwaitingPromotion) => return Some(WaitOutcome::OperatorNeeded(Blocker::Promotion)),
        Some(RolloutState::Aborted) => return None,
        Some(
            RolloutState::InProgress
            | RolloutState::Completed
            | RolloutState::RolledBack
            | RolloutState::Superseded
            | RolloutState::Unknown(_),
        )
        | None => {}
    }
    match &deployment.status {
        DeploymentStatus::Active | DeploymentStatus::Completed | DeploymentStatus::Stopped => {
            Some(WaitOutcome::Complete)
        }
        // What starts again by itself may still succeed.
        DeploymentStatus::Failed if replicas.iter().any(|replica| replica.returns_at_ms.is_some()) => None,
        DeploymentStatus::Failed => Some(WaitOutcome::Failed(status_and_reasons(deployment))),
        DeploymentStatus::Pending
        | DeploymentStatus::Progressing
        | DeploymentStatus::Degraded
        | DeploymentStatus::Unknown(_) => None,
    }
}

/// A replica that failed and is not started again stays so until an operator acts. During a rollout the rollout decides
/// what that means.
fn ended_in_failure(deployment: &Deployment, replicas: &[Replica], goal: &Goal) -> Option<WaitOutcome> {
    let rolling = deployment
        .rollout
        .as_ref()
        .is_some_and(|it| matches!(it.state, RolloutState::InProgress | RolloutState::Aborted));
    let failed = |it: &&Replica| {
        let exhausted = it.code == Some(Code::RestartExhausted) && it.returns_at_ms.is_none();
        it.state == ReplicaState::Failed && (exhausted || it.ended)
    };
    let first = replicas.iter().find(failed).filter(|_| !rolling && deployment.revision == goal.revision)?;
    let state = progress::replica_state(first, Colour::Off);
    Some(WaitOutcome::Failed(format!("is {}: {} {state}", deployment.status, first.id)))
}

/// How long the deployment must stay complete: one more poll, and longer if a replica has failed before.
fn stable_time(replicas: &[Replica]) -> Duration {
    if replicas.iter().any(|replica| replica.restarts > 0) { STABLE_AFTER_FAILURE } else { POLL_INTERVAL }
}

fn status_and_reasons(deployment: &Deployment) -> String {
    if deployment.reasons.is_empty() {
        return deployment.status.to_string();
    }
    let reasons: Vec<&str> = deployment.reasons.iter().map(StatusReason::as_str).collect();
    format!("{}: {}", deployment.status, reasons.join(", "))
}

#[cfg(test)]
mod tests {
    use longshore_api::Rollout;

    use super::*;

    fn deployment(status: &str, revision: u64, rollout: Option<(u64, &str)>) -> Deployment {
        Deployment {
            namespace: "default".to_owned(),
            name: "shop".to_owned(),
            status: status.into(),
            reasons: vec![StatusReason::Code(Code::Exited)],
            revision,
            revisions: vec![revision],
            rollout: rollout.map(|(to, state)| Rollout {
                number: 1,
                from: 1,
                to,
                state: state.into(),
                waits_for: None,
            }),
            services: Vec::new(),
        }
    }

    fn outcome_of(status: &str, revision: u64, rollout: Option<(u64, &str)>) -> Option<WaitOutcome> {
        let goal = Goal { namespace: "default".to_owned(), deployment: "shop".to_owned(), revision: 2 };
        outcome(&deployment(status, revision, rollout), &[], &goal)
    }

    #[test]
    fn only_the_requested_revision_counts_as_complete() {
        assert_eq!(outcome_of("active", 2, Some((2, "completed"))), Some(WaitOutcome::Complete));
        assert_eq!(outcome_of("active", 1, Some((2, "aborted"))), None);
        assert_eq!(outcome_of("progressing", 2, Some((2, "in_progress"))), None);
        assert_eq!(outcome_of("degraded", 2, Some((2, "completed"))), None);
    }

    #[test]
    fn a_change_that_was_rolled_back_or_superseded_has_failed() {
        let rolled_back = WaitOutcome::Failed("failed and was rolled back to revision 1".to_owned());
        assert_eq!(outcome_of("active", 1, Some((2, "rolled_back"))), Some(rolled_back));
        let superseded = WaitOutcome::Failed("was changed again: revision 3 is active".to_owned());
        assert_eq!(outcome_of("active", 3, Some((3, "completed"))), Some(superseded));
        assert_eq!(outcome_of("failed", 2, None), Some(WaitOutcome::Failed("failed: exited".to_owned())));
    }

    #[test]
    fn a_rollout_that_waits_for_promotion_or_is_paused_needs_the_operator() {
        assert_eq!(
            outcome_of("progressing", 2, Some((2, "awaiting_promotion"))),
            Some(WaitOutcome::OperatorNeeded(Blocker::Promotion))
        );
        assert_eq!(
            outcome_of("progressing", 2, Some((2, "paused"))),
            Some(WaitOutcome::OperatorNeeded(Blocker::Pause))
        );
    }
}
