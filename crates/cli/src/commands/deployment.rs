//! Commands that change one deployment: `scale`, `restart`, `rollback`, `promote`, `pause`, `resume`, `rm`.
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
    },
    exit::Exit,
    input::service_count,
    output::{
        self,
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
            change(&scope, Some(wait), &deployment, async |client, namespace| {
                client.scale(namespace, &deployment, &service, count).await
            })
        }
        Command::Restart { scope, wait, deployment, service } => {
            change(&scope, Some(wait), &deployment, async |client, namespace| {
                client.restart(namespace, &deployment, &service).await
            })
        }
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
