//! Commands that change one deployment: `scale`, `restart`, `rollback`, `promote`, `pause`, `resume`, `rm`.
//!
//! Owns: their options, and the request each of them sends.

use clap::Subcommand;
use longshore_api::{Changed, Client, ClientError};

use crate::{
    daemon_client::{
        NamespaceArgs,
        wait::{self, Goal, WaitArgs, WaitLimit},
        wait_outcome::ServiceCount,
        with_client,
    },
    exit::Exit,
    input::service_count,
    output::{
        EffectWords,
        live_region::{LiveRegion, Stream},
    },
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Set the number of replicas of a service.
    #[command(after_help = "Examples:\n  longshore scale shop web=5\n  longshore scale shop web=5 --wait")]
    Scale {
        #[command(flatten)]
        scope: NamespaceArgs,
        #[command(flatten)]
        wait: WaitArgs,
        /// The deployment.
        deployment: String,
        /// The service and its number of replicas.
        #[arg(value_name = "SERVICE=COUNT", value_parser = service_count)]
        service: (String, u32),
    },
    /// Replace every replica of a service, step by step.
    #[command(after_help = "Examples:\n  longshore restart shop web --wait")]
    Restart {
        #[command(flatten)]
        scope: NamespaceArgs,
        #[command(flatten)]
        wait: WaitArgs,
        /// The deployment.
        deployment: String,
        /// The service.
        service: String,
    },
    /// Go back to an earlier revision of a deployment.
    #[command(after_help = "Examples:\n  longshore rollback shop\n  longshore rollback shop --to 3 --wait")]
    Rollback {
        #[command(flatten)]
        scope: NamespaceArgs,
        #[command(flatten)]
        wait: WaitArgs,
        /// The deployment.
        deployment: String,
        /// The revision; the previous one unless given.
        #[arg(long, alias = "revision", value_name = "REVISION")]
        to: Option<u64>,
    },
    /// Continue a rollout after its canaries.
    #[command(after_help = "Examples:\n  longshore promote shop --wait")]
    Promote {
        #[command(flatten)]
        scope: NamespaceArgs,
        #[command(flatten)]
        wait: WaitArgs,
        /// The deployment.
        deployment: String,
    },
    /// Pause a rollout.
    #[command(after_help = "Examples:\n  longshore pause shop")]
    Pause {
        #[command(flatten)]
        scope: NamespaceArgs,
        /// The deployment.
        deployment: String,
    },
    /// Continue a paused rollout.
    #[command(after_help = "Examples:\n  longshore resume shop --wait")]
    Resume {
        #[command(flatten)]
        scope: NamespaceArgs,
        #[command(flatten)]
        wait: WaitArgs,
        /// The deployment.
        deployment: String,
    },
    /// Remove a deployment and stop its replicas.
    #[command(after_help = "Examples:\n  longshore rm shop\n  longshore rm shop --wait")]
    Rm {
        #[command(flatten)]
        scope: NamespaceArgs,
        #[command(flatten)]
        wait: WaitArgs,
        /// The deployment.
        deployment: String,
    },
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Scale { scope, wait, deployment, service: (service, count) } => {
            let words = |_: u64| EffectWords {
                begun: format!("scaling {deployment}/{service} to {}", replicas(count)),
                done: format!("{deployment}/{service} runs {}", replicas(count)),
            };
            let scaled = ServiceCount { service: service.clone(), count };
            let change = Change { scope: &scope, wait: Some(wait), deployment: &deployment, scaled: Some(scaled) };
            change.send(words, async |client, namespace| client.scale(namespace, &deployment, &service, count).await)
        }
        Command::Restart { scope, wait, deployment, service } => {
            let words = |_: u64| EffectWords {
                begun: format!("restarting {deployment}/{service}, step by step"),
                done: format!("{deployment}/{service} was restarted"),
            };
            let change = Change { scope: &scope, wait: Some(wait), deployment: &deployment, scaled: None };
            change.send(words, async |client, namespace| client.restart(namespace, &deployment, &service).await)
        }
        Command::Rollback { scope, wait, deployment, to } => {
            let words = |revision: u64| EffectWords {
                begun: format!("rolling {deployment} back to revision {revision}"),
                done: format!("{deployment} is rolled back to revision {revision}"),
            };
            let change = Change { scope: &scope, wait: Some(wait), deployment: &deployment, scaled: None };
            change.send(words, async |client, namespace| client.rollback(namespace, &deployment, to).await)
        }
        Command::Promote { scope, wait, deployment } => control_rollout(&scope, Some(wait), &deployment, "promote"),
        Command::Pause { scope, deployment } => control_rollout(&scope, None, &deployment, "pause"),
        Command::Resume { scope, wait, deployment } => control_rollout(&scope, Some(wait), &deployment, "resume"),
        Command::Rm { scope, wait, deployment } => remove(&scope, wait, deployment),
    }
}

fn replicas(count: u32) -> String {
    if count == 1 { "1 replica".to_owned() } else { format!("{count} replicas") }
}

fn control_rollout(
    scope: &NamespaceArgs,
    wait: Option<WaitArgs>,
    deployment: &str,
    action: &str,
) -> anyhow::Result<Exit> {
    let words = |revision: u64| EffectWords {
        begun: match action {
            "pause" => format!("the rollout of {deployment} is paused; `longshore resume {deployment}` continues it"),
            _ => format!("the rollout of {deployment} to revision {revision} continues"),
        },
        done: format!("revision {revision} of {deployment} is active"),
    };
    Change { scope, wait, deployment, scaled: None }
        .send(words, async |client, namespace| client.control_rollout(namespace, deployment, action).await)
}

/// A change of a deployment.
struct Change<'a> {
    scope: &'a NamespaceArgs,
    /// `None` for a change that takes effect at once.
    wait: Option<WaitArgs>,
    deployment: &'a str,
    /// The service it scales.
    scaled: Option<ServiceCount>,
}

impl Change<'_> {
    /// Sends it, and with `--wait` waits until it is active. `words` gets the revision that is in force afterwards.
    fn send(
        self,
        words: impl FnOnce(u64) -> EffectWords,
        request: impl AsyncFnOnce(&Client, &str) -> Result<Changed, ClientError>,
    ) -> anyhow::Result<Exit> {
        let connection = &self.scope.connection;
        with_client(connection, async |client| {
            let namespace = self.scope.namespace();
            let changed = request(client, namespace).await?;
            let revision = client.deployment(namespace, self.deployment).await?.revision;
            let waited = match self.wait.and_then(WaitArgs::limit) {
                Some(limit) => Some(self.until_active(client, revision, limit).await?),
                None => None,
            };
            let mut words = words(revision);
            if self.wait.is_some() {
                words.begun.push_str(&follow(self.scope, self.deployment));
            }
            words.print(connection.output(), changed, waited)
        })
    }

    /// Waits until the revision is active, or the scaled service runs.
    async fn until_active(&self, client: &Client, revision: u64, limit: WaitLimit) -> anyhow::Result<Exit> {
        let (namespace, deployment) = (self.scope.namespace().to_owned(), self.deployment.to_owned());
        let goal = Goal { namespace, deployment, revision };
        let mut region = LiveRegion::new(Stream::Stderr);
        let outcome = match &self.scaled {
            Some(scaled) => wait::until_scaled(client, &goal, scaled, limit, &mut region).await?,
            None => wait::until_active(client, &goal, limit, &mut region).await?,
        };
        Ok(outcome.report(&goal))
    }
}

/// How to follow a change that has only begun.
fn follow(scope: &NamespaceArgs, deployment: &str) -> String {
    let namespace = scope.given().map_or_else(String::new, |namespace| format!(" -n {namespace}"));
    format!("; `longshore status {deployment}{namespace} -w` shows its progress")
}

fn remove(scope: &NamespaceArgs, wait: WaitArgs, deployment: String) -> anyhow::Result<Exit> {
    with_client(&scope.connection, async |client| {
        let changed = client.remove(scope.namespace(), &deployment).await?;
        let words = EffectWords {
            begun: format!("stopping {deployment}, which is then removed{}", follow(scope, &deployment)),
            done: format!("{deployment} is removed"),
        };
        let goal = Goal { namespace: scope.namespace().to_owned(), deployment, revision: 0 };
        let waited = match wait.limit() {
            Some(limit) => Some(wait::until_removed(client, &goal, limit).await?.report(&goal)),
            None => None,
        };
        words.print(scope.connection.output(), changed, waited)
    })
}

#[cfg(test)]
mod tests {
    use super::replicas;

    #[test]
    fn one_replica_is_no_plural() {
        assert_eq!([0, 1, 2].map(replicas), ["0 replicas", "1 replica", "2 replicas"]);
    }
}
