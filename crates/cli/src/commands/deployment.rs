//! Commands that change one deployment: `scale`, `restart`, `stop`, `start`, `rollback`, `promote`, `pause`, `resume`, `rm`.
//!
//! Owns: their options, and the request each of them sends.

use std::time::Duration;

use clap::Subcommand;
use longshore_api::{Changed, Client, ClientError};

use crate::{
    daemon_client::{
        NamespaceArgs,
        wait::{self, Goal, WaitArgs, WaitLimit},
        wait_outcome::ServiceCount,
        with_client,
        workload::{self, Workload},
    },
    exit::Exit,
    input::service_count,
    output::{
        EffectWords,
        live_region::{LiveRegion, Stream},
        print,
    },
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Set the number of replicas of a service.
    #[command(
        after_help = "Examples:\n  longshore scale web=5\n  longshore scale shop web=5\n  longshore scale shop web=5 --wait"
    )]
    Scale {
        #[command(flatten)]
        scope: NamespaceArgs,
        #[command(flatten)]
        wait: WaitArgs,
        /// The deployment, if it is not that of this folder, and the service with its number of replicas.
        #[arg(value_name = "[DEPLOYMENT] SERVICE=COUNT", required = true, num_args = 1..=2)]
        words: Vec<String>,
    },
    /// Replace every replica of a service, or of all services of a deployment, step by step. Starts a stopped deployment.
    #[command(
        after_help = "Examples:\n  longshore restart\n  longshore restart web\n  longshore restart shop web --wait"
    )]
    Restart {
        #[command(flatten)]
        scope: NamespaceArgs,
        #[command(flatten)]
        wait: WaitArgs,
        /// The deployment and the service; by default every service of this folder's deployment.
        #[arg(value_name = "[DEPLOYMENT] [SERVICE]", num_args = 0..=2)]
        words: Vec<String>,
    },
    /// Stop every replica of a deployment, and wait until they have stopped. Its revision and volumes stay; nothing
    /// starts again, not even after a reboot, until `start`, `up`, `apply` or `restart`.
    #[command(after_help = "Examples:\n  longshore stop\n  longshore stop shop\n  longshore stop shop --no-wait")]
    Stop {
        #[command(flatten)]
        scope: NamespaceArgs,
        /// Do not wait until the replicas have stopped.
        #[arg(long)]
        no_wait: bool,
        /// Time limit of waiting, in seconds.
        #[arg(long, value_name = "SECONDS", default_value_t = 300)]
        timeout: u64,
        /// The deployment; that of this folder unless given.
        deployment: Option<String>,
    },
    /// Start a stopped deployment with its current revision.
    #[command(after_help = "Examples:\n  longshore start\n  longshore start shop --wait")]
    Start {
        #[command(flatten)]
        scope: NamespaceArgs,
        #[command(flatten)]
        wait: WaitArgs,
        /// The deployment; that of this folder unless given.
        deployment: Option<String>,
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
    /// Pause a rollout: it takes no further step. This holds no process; `longshore stop` stops a deployment.
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
        Command::Scale { scope, wait, words } => scale(&scope, wait, &words),
        Command::Restart { scope, wait, words } => restart(&scope, wait, &words),
        Command::Stop { scope, no_wait, timeout, deployment } => {
            let limit = (!no_wait).then(|| Duration::from_secs(timeout));
            stop(&scope, limit, deployment.as_deref())
        }
        Command::Start { scope, wait, deployment } => start(&scope, wait, deployment.as_deref()),
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

fn scale(scope: &NamespaceArgs, wait: WaitArgs, words: &[String]) -> anyhow::Result<Exit> {
    let (word, count) = match words {
        [count] => (None, count),
        [deployment, count] => (Some(deployment.as_str()), count),
        _ => return Ok(Exit::BadInput),
    };
    let (service, count) = match service_count(count) {
        Ok(count) => count,
        Err(problem) => {
            let hint = "write it like `longshore scale web=3`";
            print::stderr(&format!("error: `{count}` names no service with a count: {problem}\n\nhint: {hint}"));
            return Ok(Exit::BadInput);
        }
    };
    with_client(&scope.connection, async |client| {
        let deployment = match word {
            Some(deployment) => deployment.to_owned(),
            None => meant_by(client, scope, Some(&service)).await?.deployment.name,
        };
        let changed = client.scale(scope.namespace(), &deployment, &service, count).await?;
        let words = |_: u64| EffectWords {
            begun: format!("scaling {deployment}/{service} to {}", replicas(count)),
            done: format!("{deployment}/{service} runs {}", replicas(count)),
        };
        let scaled = Some(ServiceCount { service: service.clone(), count });
        Change { scope, wait: Some(wait), deployment: &deployment, scaled }.conclude(client, changed, words).await
    })
}

fn replicas(count: u32) -> String {
    if count == 1 { "1 replica".to_owned() } else { format!("{count} replicas") }
}

/// Restarts the services one request each: every one of them begins the deployment's rollout anew, with the others in it.
fn restart(scope: &NamespaceArgs, wait: WaitArgs, words: &[String]) -> anyhow::Result<Exit> {
    with_client(&scope.connection, async |client| {
        let (deployment, services) = match words {
            [deployment, service] => (deployment.clone(), vec![service.clone()]),
            words => {
                let found = meant_by(client, scope, words.first().map(String::as_str)).await?;
                (found.deployment.name.clone(), found.services())
            }
        };
        let mut changed = Changed::No;
        for service in &services {
            if client.restart(scope.namespace(), &deployment, service).await? == Changed::Yes {
                changed = Changed::Yes;
            }
        }
        let names: Vec<String> = services.iter().map(|service| format!("{deployment}/{service}")).collect();
        let (names, was) = (names.join(", "), if services.len() == 1 { "was" } else { "were" });
        let words = |_: u64| EffectWords {
            begun: format!("restarting {names}, step by step"),
            done: format!("{names} {was} restarted"),
        };
        let change = Change { scope, wait: Some(wait), deployment: &deployment, scaled: None };
        change.conclude(client, changed, words).await
    })
}

fn stop(scope: &NamespaceArgs, limit: Option<Duration>, word: Option<&str>) -> anyhow::Result<Exit> {
    with_client(&scope.connection, async |client| {
        let deployment = whole_deployment(client, scope, word, "stop").await?;
        let changed = client.stop(scope.namespace(), &deployment).await?;
        let words = EffectWords {
            begun: format!("stopping {deployment}{}", follow(scope, &deployment)),
            done: format!("{deployment} is stopped"),
        };
        let goal = Goal { namespace: scope.namespace().to_owned(), deployment, revision: 0 };
        let waited = match limit {
            Some(limit) => Some(wait::until_stopped(client, &goal, limit).await?.report(&goal)),
            None => None,
        };
        words.print(scope.connection.output(), changed, waited)
    })
}

fn start(scope: &NamespaceArgs, wait: WaitArgs, word: Option<&str>) -> anyhow::Result<Exit> {
    with_client(&scope.connection, async |client| {
        let deployment = whole_deployment(client, scope, word, "start").await?;
        let changed = client.start(scope.namespace(), &deployment).await?;
        let words =
            |_: u64| EffectWords { begun: format!("starting {deployment}"), done: format!("{deployment} is started") };
        let change = Change { scope, wait: Some(wait), deployment: &deployment, scaled: None };
        change.conclude(client, changed, words).await
    })
}

/// The deployment a word means. A service is refused: an intent to stop is of a whole deployment.
async fn whole_deployment(
    client: &Client,
    scope: &NamespaceArgs,
    word: Option<&str>,
    verb: &str,
) -> anyhow::Result<String> {
    let found = meant_by(client, scope, word).await?;
    let Some(service) = found.service else { return Ok(found.deployment.name) };
    let (name, count) = (found.deployment.name, u32::from(verb == "start"));
    anyhow::bail!(
        "`{service}` is a service of `{name}`, and `{verb}` is for a whole deployment\n\nhint: `longshore {verb} {name}`, or \
         `longshore scale {name} {service}={count}` for this service alone"
    )
}

/// The workload a word means; a word that nothing has as its name is taken for a deployment, which the daemon refuses.
async fn meant_by(client: &Client, scope: &NamespaceArgs, word: Option<&str>) -> anyhow::Result<Workload> {
    if let Some((found, _)) = workload::find(client, scope, word).await? {
        return Ok(found);
    }
    let deployment = client.deployment(scope.namespace(), word.unwrap_or_default()).await?;
    Ok(Workload { deployment, service: None, replica: None })
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
    /// Sends it, and with `--wait` waits until it is active.
    fn send(
        self,
        words: impl FnOnce(u64) -> EffectWords,
        request: impl AsyncFnOnce(&Client, &str) -> Result<Changed, ClientError>,
    ) -> anyhow::Result<Exit> {
        with_client(&self.scope.connection, async |client| {
            let changed = request(client, self.scope.namespace()).await?;
            self.conclude(client, changed, words).await
        })
    }

    /// With `--wait` waits until it is active, and prints what has begun or is done. `words` gets the revision that is in
    /// force.
    async fn conclude(
        &self,
        client: &Client,
        changed: Changed,
        words: impl FnOnce(u64) -> EffectWords,
    ) -> anyhow::Result<Exit> {
        let revision = client.deployment(self.scope.namespace(), self.deployment).await?.revision;
        let waited = match self.wait.and_then(WaitArgs::limit) {
            Some(limit) => Some(self.until_active(client, revision, limit).await?),
            None => None,
        };
        let mut words = words(revision);
        if self.wait.is_some() {
            words.begun.push_str(&follow(self.scope, self.deployment));
        }
        words.print(self.scope.connection.output(), changed, waited)
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
