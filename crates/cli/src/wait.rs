//! Waiting until a deployment is what was asked for.
//!
//! Owns: when it is, when it never will be, and when nobody but the operator can say.
//! Must not touch: what is asked for. Invariant: a change that was undone is never called done.

use std::{
    fmt,
    time::{Duration, Instant},
};

use clap::Args;
use longshore_api::{Client, ClientError, Deployment, Replica};

use crate::{
    exit::Exit,
    live::{Live, Screen},
    print, progress,
    style::Colour,
};

/// Between two looks. A person sees no difference below, and a daemon feels none.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// How long replicas that failed before have to run until they are believed: what crashes runs for a moment, too.
const PROVEN: Duration = Duration::from_secs(5);

/// Whether to wait, and how long.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Patience {
    /// Wait until it is done, and show how it comes along. Exit code 4: it failed or was undone; 5: it took too long; 6:
    /// it waits for a word of yours, and says which.
    #[arg(long)]
    wait: bool,
    /// How long to wait, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

impl Patience {
    /// How long, where waiting was asked for.
    pub(crate) fn limit(self) -> Option<Duration> {
        self.wait.then(|| Duration::from_secs(self.timeout))
    }
}

/// What is waited for.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    pub(crate) namespace: String,
    pub(crate) deployment: String,
    /// The manifest that shall be in force.
    pub(crate) revision: u64,
}

/// How waiting ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It is as asked.
    Settled,
    /// It will not be, and why.
    Failed(String),
    /// It goes no further until somebody says so.
    Held(Halt),
    /// Time is up; what it looked like then.
    TimedOut(String),
}

/// What something comes to a halt with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// A change, with its canaries.
    Promotion,
    /// A change that was paused.
    Pause,
    /// A node that is emptied, with what cannot move.
    Data(String),
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Promotion => f.write_str("waits to be promoted"),
            Self::Pause => f.write_str("is paused"),
            Self::Data(left) => write!(f, "holds data that cannot move: {left}"),
        }
    }
}

impl Ended {
    /// Says how it ended, for a command that was only to wait for a deployment.
    pub(crate) fn told(self, goal: &Goal) -> Exit {
        let Goal { namespace, deployment, .. } = goal;
        let scope = if namespace == "default" { String::new() } else { format!(" -n {namespace}") };
        let hint = match &self {
            Self::Held(Halt::Promotion) => format!(
                "`longshore promote {deployment}{scope}` lets it go on, `longshore rollback {deployment}{scope}` takes it back"
            ),
            Self::Held(Halt::Pause) => format!("`longshore resume {deployment}{scope}` lets it go on"),
            Self::Held(Halt::Data(_)) | Self::Settled | Self::Failed(_) | Self::TimedOut(_) => format!(
                "`longshore status {deployment}{scope}` shows more, and `longshore why{scope} REPLICA` the reason"
            ),
        };
        self.told_of(deployment, &hint)
    }

    /// The same of anything with a name.
    pub(crate) fn told_of(self, name: &str, hint: &str) -> Exit {
        let (exit, text) = match self {
            Self::Settled => return Exit::Success,
            Self::Failed(why) => (Exit::Failed, format!("error: `{name}` {why}")),
            Self::Held(why) => (Exit::Held, format!("`{name}` {why}")),
            Self::TimedOut(how) => (Exit::TimedOut, format!("error: `{name}` was not done in time: {how}")),
        };
        print::note(&text);
        print::note(&format!("\nhint: {hint}"));
        exit
    }
}

/// Waits, and shows how it comes along.
pub(crate) async fn settle(
    client: &Client,
    goal: &Goal,
    limit: Duration,
    live: &mut Live,
) -> Result<Ended, ClientError> {
    let (until, colour) = (Instant::now() + limit, Colour::of_stderr());
    let mut told = progress::Told::default();
    let mut settled_at = None;
    loop {
        let (deployment, replicas) = look(client, goal).await?;
        match live.screen() {
            Screen::Terminal => live.draw(&progress::draw(&deployment, &replicas, colour)),
            Screen::Plain => told.news(&replicas, colour).iter().for_each(|line| live.tell(line)),
        }
        match given_up(&deployment, &replicas, goal).or_else(|| judge(&deployment, goal)) {
            Some(Ended::Settled) if settled_at.get_or_insert_with(Instant::now).elapsed() < doubt(&replicas) => {}
            Some(ended) => {
                live.keep();
                return Ok(ended);
            }
            None => settled_at = None,
        }
        if Instant::now() > until {
            live.keep();
            return Ok(Ended::TimedOut(in_words(&deployment)));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until a deployment that was removed is gone.
pub(crate) async fn gone(client: &Client, goal: &Goal, limit: Duration, live: &mut Live) -> Result<Ended, ClientError> {
    let until = Instant::now() + limit;
    loop {
        let (deployment, replicas) = match look(client, goal).await {
            Err(ClientError::Refused(envelope)) if envelope.code == "not_found" => {
                live.clear();
                return Ok(Ended::Settled);
            }
            found => found?,
        };
        live.draw(&progress::draw(&deployment, &replicas, Colour::of_stderr()));
        if Instant::now() > until {
            live.keep();
            return Ok(Ended::TimedOut(in_words(&deployment)));
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn look(client: &Client, goal: &Goal) -> Result<(Deployment, Vec<Replica>), ClientError> {
    let deployment = client.deployment(&goal.namespace, &goal.deployment).await?;
    let mut replicas = client.replicas().await?;
    replicas.retain(|replica| replica.namespace == goal.namespace && replica.deployment == goal.deployment);
    Ok((deployment, replicas))
}

fn judge(deployment: &Deployment, goal: &Goal) -> Option<Ended> {
    let ours = deployment.rollout.as_ref().filter(|rollout| rollout.to == goal.revision);
    let rollout = ours.map(|rollout| rollout.state.as_str());
    if rollout == Some("rolled_back") {
        return Some(Ended::Failed(format!("failed and is back at revision {}", deployment.revision)));
    }
    // A failed change is no longer in force while it is taken back.
    if deployment.revision != goal.revision && rollout.is_none() {
        return Some(Ended::Failed(format!("was changed again: revision {} is in force", deployment.revision)));
    }
    match (rollout, deployment.status.as_str()) {
        (Some("paused"), _) => Some(Ended::Held(Halt::Pause)),
        (Some("awaiting_promotion"), _) => Some(Ended::Held(Halt::Promotion)),
        (Some("aborted"), _) => None,
        (_, "active" | "completed") => Some(Ended::Settled),
        (_, "failed") => Some(Ended::Failed(in_words(deployment))),
        _ => None,
    }
}

/// A replica that failed too often stays as it is until somebody says otherwise; while a change is rolled, that is the
/// rollout's to judge.
fn given_up(deployment: &Deployment, replicas: &[Replica], goal: &Goal) -> Option<Ended> {
    let rolls = deployment.rollout.as_ref().is_some_and(|it| matches!(it.state.as_str(), "in_progress" | "aborted"));
    let failed = |it: &&Replica| it.state == "failed" && it.code.as_deref() == Some("restart_exhausted");
    let first = replicas.iter().find(failed).filter(|_| !rolls && deployment.revision == goal.revision)?;
    let standing = progress::standing(first, Colour::Off);
    Some(Ended::Failed(format!("is {}: {} {standing}", deployment.status, first.id)))
}

/// How long everything has to look well: one look more, and longer where something has failed already.
fn doubt(replicas: &[Replica]) -> Duration {
    if replicas.iter().any(|replica| replica.restarts > 0) { PROVEN } else { LOOK }
}

fn in_words(deployment: &Deployment) -> String {
    if deployment.reasons.is_empty() {
        return deployment.status.clone();
    }
    format!("{}: {}", deployment.status, deployment.reasons.join(", "))
}

#[cfg(test)]
mod tests {
    use longshore_api::Rollout;

    use super::*;

    fn deployment(status: &str, revision: u64, rollout: Option<(u64, &str)>) -> Deployment {
        Deployment {
            namespace: "default".to_owned(),
            name: "shop".to_owned(),
            status: status.to_owned(),
            reasons: vec!["exited".to_owned()],
            revision,
            revisions: vec![revision],
            rollout: rollout.map(|(to, state)| Rollout {
                number: 1,
                from: 1,
                to,
                state: state.to_owned(),
                waits_for: None,
            }),
            services: Vec::new(),
        }
    }

    fn verdict(status: &str, revision: u64, rollout: Option<(u64, &str)>) -> Option<Ended> {
        let goal = Goal { namespace: "default".to_owned(), deployment: "shop".to_owned(), revision: 2 };
        judge(&deployment(status, revision, rollout), &goal)
    }

    #[test]
    fn only_the_asked_for_revision_counts_as_done() {
        assert_eq!(verdict("active", 2, Some((2, "completed"))), Some(Ended::Settled));
        assert_eq!(verdict("active", 1, Some((2, "aborted"))), None);
        assert_eq!(verdict("progressing", 2, Some((2, "in_progress"))), None);
        assert_eq!(verdict("degraded", 2, Some((2, "completed"))), None);
    }

    #[test]
    fn a_change_that_was_undone_or_overtaken_has_failed() {
        let back = Ended::Failed("failed and is back at revision 1".to_owned());
        assert_eq!(verdict("active", 1, Some((2, "rolled_back"))), Some(back));
        let overtaken = Ended::Failed("was changed again: revision 3 is in force".to_owned());
        assert_eq!(verdict("active", 3, Some((3, "completed"))), Some(overtaken));
        assert_eq!(verdict("failed", 2, None), Some(Ended::Failed("failed: exited".to_owned())));
    }

    #[test]
    fn a_change_that_waits_for_a_word_is_held() {
        assert_eq!(verdict("progressing", 2, Some((2, "awaiting_promotion"))), Some(Ended::Held(Halt::Promotion)));
        assert_eq!(verdict("progressing", 2, Some((2, "paused"))), Some(Ended::Held(Halt::Pause)));
    }
}
