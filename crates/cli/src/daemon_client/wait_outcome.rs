//! What one poll of a deployment means for a command that waits for it.
//!
//! Owns: when a change is complete, when it has failed and why, when only the operator can continue, and what is printed
//! then.
//! Must not touch: the daemon. Invariant: a change that was rolled back is never reported as complete.

use std::fmt;

use longshore_api::{Code, Deployment, DeploymentStatus, Replica, ReplicaState, RolloutState, StatusReason};

use super::wait::Goal;
use crate::{
    exit::Exit,
    output::{print, progress, style::Colour},
};

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
    /// A rollout is paused, by an operator or by a failure, which the text tells.
    Pause(Option<String>),
    /// A drained node has replicas whose data is there; the text lists them.
    Data(String),
    /// A drained node has replicas that fit nowhere else; the text lists them.
    NoOtherNode(String),
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Promotion => f.write_str("waits for promotion"),
            Self::Pause(None) => f.write_str("is paused"),
            Self::Pause(Some(failure)) => write!(f, "is paused: {failure}"),
            Self::Data(left) => write!(f, "has replicas whose data cannot move: {left}"),
            Self::NoOtherNode(left) => write!(f, "has replicas that fit on no other node: {left}"),
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
            Self::OperatorNeeded(Blocker::Pause(_)) => format!("`longshore resume {deployment}{scope}` continues it"),
            Self::OperatorNeeded(Blocker::Data(_) | Blocker::NoOtherNode(_))
            | Self::Complete
            | Self::Failed(_)
            | Self::TimedOut(_) => format!(
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

/// The number of replicas that a service was scaled to.
#[derive(Clone, Debug)]
pub(crate) struct ServiceCount {
    pub(crate) service: String,
    pub(crate) count: u32,
}

/// `None` while the change is in progress. With `count`, a service that runs so many replicas is complete: a rollout also
/// waits until they have run for a while.
pub(super) fn judge(
    deployment: &Deployment,
    replicas: &[Replica],
    goal: &Goal,
    count: Option<&ServiceCount>,
) -> Option<WaitOutcome> {
    ended_in_failure(deployment, replicas, goal)
        .or_else(|| count.filter(|count| runs(deployment, replicas, count)).map(|_| WaitOutcome::Complete))
        .or_else(|| outcome(deployment, replicas, goal))
}

/// Whether a service has exactly `count` replicas and all of them run.
fn runs(deployment: &Deployment, replicas: &[Replica], scaled: &ServiceCount) -> bool {
    let rolled_back = deployment.rollout.as_ref().is_some_and(|rollout| rollout.state == RolloutState::Aborted);
    let service = deployment.services.iter().find(|service| service.name == scaled.service);
    let counted = service.is_some_and(|it| (it.desired, it.running) == (scaled.count, scaled.count));
    let settled = |it: &Replica| matches!(it.state, ReplicaState::Running | ReplicaState::Completed);
    !rolled_back && counted && replicas.iter().filter(|it| it.service == scaled.service).all(settled)
}

fn outcome(deployment: &Deployment, replicas: &[Replica], goal: &Goal) -> Option<WaitOutcome> {
    let rollout = deployment.rollout.as_ref().filter(|rollout| rollout.to == goal.revision);
    let failure = rollout.and_then(progress::rollout_failure);
    let rollout = rollout.map(|rollout| &rollout.state);
    if rollout == Some(&RolloutState::RolledBack) {
        return Some(WaitOutcome::Failed(rolled_back(failure.as_deref(), deployment.revision)));
    }
    // During an automatic rollback the requested revision is no longer the active one, and its rollout still exists.
    if deployment.revision != goal.revision && rollout.is_none() {
        return Some(WaitOutcome::Failed(format!("was changed again: revision {} is active", deployment.revision)));
    }
    match rollout {
        Some(RolloutState::Paused) => return Some(WaitOutcome::OperatorNeeded(Blocker::Pause(failure))),
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
        DeploymentStatus::Failed => {
            let failed = replicas.iter().find(|it| it.state == ReplicaState::Failed);
            let why =
                failed.map_or_else(|| status_and_reasons(deployment), |failed| failed_replica(deployment, failed));
            Some(WaitOutcome::Failed(why))
        }
        DeploymentStatus::Pending
        | DeploymentStatus::Progressing
        | DeploymentStatus::Degraded
        | DeploymentStatus::Unknown(_) => None,
    }
}

/// What failed, why, and what is in force now.
fn rolled_back(failure: Option<&str>, revision: u64) -> String {
    let why = failure.map_or_else(String::new, |failure| format!(": {failure}"));
    format!("failed and was rolled back{why}\nrevision {revision} is in force again")
}

/// A replica that failed and is not started again stays so until an operator acts. During a rollout the rollout decides
/// what that means.
fn ended_in_failure(deployment: &Deployment, replicas: &[Replica], goal: &Goal) -> Option<WaitOutcome> {
    let rollout = deployment.rollout.as_ref();
    let rolling = rollout.is_some_and(|it| matches!(it.state, RolloutState::InProgress | RolloutState::Aborted));
    // A rollout that waits for a service that ran once and failed would wait for ever.
    let waits_for_dependency = rollout
        .and_then(|it| it.waits_for.as_ref())
        .is_some_and(|awaited| awaited.code == StatusReason::Code(Code::DependencyNotReady));
    let failed = |it: &&Replica| {
        let exhausted = it.code == Some(Code::RestartExhausted) && it.returns_at_ms.is_none();
        let is_final = if rolling { it.ended && waits_for_dependency } else { exhausted || it.ended };
        it.state == ReplicaState::Failed && is_final
    };
    let first = replicas.iter().find(failed).filter(|_| deployment.revision == goal.revision)?;
    Some(WaitOutcome::Failed(failed_replica(deployment, first)))
}

/// The status, the replica that failed, and the last lines it wrote.
fn failed_replica(deployment: &Deployment, replica: &Replica) -> String {
    let state = progress::replica_state(replica, Colour::Off);
    let lines = progress::last_lines(&replica.id, &replica.details);
    let why = format!("is {}: {} {state}\n{lines}", deployment.status, replica.id);
    why.trim_end().to_owned()
}

/// The first replica without a node, if nothing that is under way could change that. During a rollout it is the one that
/// the rollout waits for.
pub(super) fn unplaceable<'a>(deployment: &Deployment, replicas: &'a [Replica]) -> Option<&'a Replica> {
    let rollout = deployment.rollout.as_ref();
    let stands = |it: &Replica| match rollout.map(|rollout| &rollout.state) {
        Some(RolloutState::Aborted) => false,
        Some(RolloutState::InProgress) => {
            rollout.and_then(|rollout| rollout.waits_for.as_ref()).is_some_and(|awaited| awaited.replica == it.id)
        }
        Some(_) | None => true,
    };
    let waits = |it: &Replica| it.node.is_none() && it.code.as_ref().is_some_and(|code| !resolves_itself(code));
    let settled = |it: &Replica| matches!(it.state, ReplicaState::Running | ReplicaState::Completed) || waits(it);
    let first = replicas.iter().find(|it| waits(it) && stands(it))?;
    replicas.iter().all(settled).then_some(first)
}

/// Whether a replica without a node waits for another replica, and not for a node.
fn resolves_itself(code: &Code) -> bool {
    matches!(code, Code::DependencyNotReady | Code::VolumeInUse)
}

pub(super) fn status_and_reasons(deployment: &Deployment) -> String {
    if deployment.reasons.is_empty() {
        return deployment.status.to_string();
    }
    let reasons: Vec<&str> = deployment.reasons.iter().map(StatusReason::as_str).collect();
    format!("{}: {}", deployment.status, reasons.join(", "))
}

#[cfg(test)]
mod tests;
