//! Commands that change one deployment: `scale`, `restart`, `stop`, `start`, `rollback`, `promote`, `pause`, `resume`, `rm`.
//!
//! Owns: their options, and the request each of them sends.

use std::time::Duration;

use clap::Subcommand;
use longshore_api::{Changed, Client, ClientError};

use crate::{
    daemon_client::{
        NamespaceArgs,
        wait::{self, Goal, WaitArgs},
        with_client,
        workload::{self, Workload},
    },
    exit::Exit,
    input::service_count,
    output::{
        self,
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
            change(&scope, Some(wait), &deployment, async |client, namespace| {
                client.rollback(namespace, &deployment, to).await
            })
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
        let exit = finished(client, scope, &deployment, wait).await?;
        scope.connection.print(&changed, output::changed)?;
        Ok(exit)
    })
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
        let exit = finished(client, scope, &deployment, wait).await?;
        scope.connection.print(&changed, output::changed)?;
        Ok(exit)
    })
}

fn stop(scope: &NamespaceArgs, limit: Option<Duration>, word: Option<&str>) -> anyhow::Result<Exit> {
    with_client(&scope.connection, async |client| {
        let deployment = whole_deployment(client, scope, word, "stop").await?;
        let changed = client.stop(scope.namespace(), &deployment).await?;
        let goal = Goal { namespace: scope.namespace().to_owned(), deployment, revision: 0 };
        let exit = match limit {
            Some(limit) => wait::until_stopped(client, &goal, limit).await?.report(&goal),
            None => Exit::Success,
        };
        scope.connection.print(&changed, output::changed)?;
        Ok(exit)
    })
}

fn start(scope: &NamespaceArgs, wait: WaitArgs, word: Option<&str>) -> anyhow::Result<Exit> {
    with_client(&scope.connection, async |client| {
        let deployment = whole_deployment(client, scope, word, "start").await?;
        let changed = client.start(scope.namespace(), &deployment).await?;
        let exit = finished(client, scope, &deployment, wait).await?;
        scope.connection.print(&changed, output::changed)?;
        Ok(exit)
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
    let name = found.deployment.name;
    anyhow::bail!(
        "`{service}` is a service of `{name}`, and `{verb}` is for a whole deployment\n\nhint: `longshore {verb} {name}`, or \
         `longshore scale {name} {service}=0` for this service alone"
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

/// With `--wait`, waits until the current revision is active.
async fn finished(client: &Client, scope: &NamespaceArgs, deployment: &str, wait: WaitArgs) -> anyhow::Result<Exit> {
    match wait.limit() {
        Some(limit) => until_active(client, scope, deployment, limit).await,
        None => Ok(Exit::Success),
    }
}

fn control_rollout(
    scope: &NamespaceArgs,
    wait: Option<WaitArgs>,
    deployment: &str,
    action: &str,
) -> anyhow::Result<Exit> {
    change(scope, wait, deployment, async |client, namespace| {
        client.control_rollout(namespace, deployment, action).await
    })
}

/// Sends a change of a deployment, and with `--wait` waits until it is active.
fn change(
    scope: &NamespaceArgs,
    wait: Option<WaitArgs>,
    deployment: &str,
    request: impl AsyncFnOnce(&Client, &str) -> Result<Changed, ClientError>,
) -> anyhow::Result<Exit> {
    let limit = wait.and_then(WaitArgs::limit);
    with_client(&scope.connection, async |client| {
        let changed = request(client, scope.namespace()).await?;
        let exit = match limit {
            Some(limit) => until_active(client, scope, deployment, limit).await?,
            None => Exit::Success,
        };
        scope.connection.print(&changed, output::changed)?;
        Ok(exit)
    })
}

/// Waits until the revision that is current now is active.
async fn until_active(
    client: &Client,
    scope: &NamespaceArgs,
    deployment: &str,
    limit: Duration,
) -> anyhow::Result<Exit> {
    let namespace = scope.namespace().to_owned();
    let revision = client.deployment(&namespace, deployment).await?.revision;
    let goal = Goal { namespace, deployment: deployment.to_owned(), revision };
    let mut region = LiveRegion::new(Stream::Stderr);
    Ok(wait::until_active(client, &goal, limit, &mut region).await?.report(&goal))
}

fn remove(scope: &NamespaceArgs, wait: WaitArgs, deployment: String) -> anyhow::Result<Exit> {
    with_client(&scope.connection, async |client| {
        let changed = client.remove(scope.namespace(), &deployment).await?;
        let goal = Goal { namespace: scope.namespace().to_owned(), deployment, revision: 0 };
        let exit = match wait.limit() {
            Some(limit) => wait::until_removed(client, &goal, limit).await?.report(&goal),
            None => Exit::Success,
        };
        scope.connection.print(&changed, output::changed)?;
        Ok(exit)
    })
}
