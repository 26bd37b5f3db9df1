//! `longshore down`: removes the deployment of a Compose file, as `docker compose down` does.
//!
//! Owns: which deployment is meant, and the refusal of `-v`. Must not touch: volumes, which outlive their deployment.

use std::time::Duration;

use clap::Args;
use longshore_api::{Changed, Client, Deployment, VolumeRow};

use crate::{
    daemon_client::{
        NamespaceArgs,
        wait::{self, Goal},
        with_client,
    },
    exit::Exit,
    manifest::ManifestArgs,
    output::{self, print},
};

const EXAMPLES: &str = "\
Examples:
  longshore down                  the deployment of this folder's compose.yaml
  longshore down -f compose.yaml
  longshore down -p shop          by the name of its deployment

Volumes stay: the next `longshore up` finds its data again.";

/// Remove the deployment of a Compose file, and wait until its replicas have stopped.
///
/// The same as `longshore rm DEPLOYMENT --wait`, for the deployment that `longshore up` would make here.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DownArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    #[command(flatten)]
    scope: NamespaceArgs,
    /// Not supported: volumes are not deleted. Refused with the commands that delete them.
    #[arg(short, long)]
    volumes: bool,
    /// Time limit of waiting, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

pub(crate) fn run(args: DownArgs) -> anyhow::Result<Exit> {
    let DownArgs { manifest, scope, volumes, timeout } = args;
    let deployment = match manifest.deployment(scope.namespace()) {
        Ok(deployment) => deployment,
        Err(error) => {
            print::stderr(&format!("error: {error:#}\n\nhint: name the deployment with `-p`"));
            return Ok(Exit::BadInput);
        }
    };
    with_client(&scope.connection, async |client| {
        if volumes {
            return refuse_volumes(client, &scope, &deployment).await;
        }
        let known = client.deployments().await?;
        if !known.iter().any(|it| it.namespace == scope.namespace() && it.name == deployment) {
            print::stderr(&format!("`{deployment}` is not deployed"));
            return scope.connection.print(&Changed::No, output::changed);
        }
        let changed = client.remove(scope.namespace(), &deployment).await?;
        let is_job =
            |it: &&Deployment| it.namespace == scope.namespace() && it.one_off_of.as_ref() == Some(&deployment);
        for job in known.iter().filter(is_job) {
            client.remove(scope.namespace(), &job.name).await?;
            let goal = Goal { namespace: scope.namespace().to_owned(), deployment: job.name.clone(), revision: 0 };
            wait::until_removed(client, &goal, Duration::from_secs(timeout)).await?;
        }
        let goal = Goal { namespace: scope.namespace().to_owned(), deployment, revision: 0 };
        let exit = wait::until_removed(client, &goal, Duration::from_secs(timeout)).await?.report(&goal);
        scope.connection.print(&changed, output::changed)?;
        Ok(exit)
    })
}

/// Deleting data is left to the operator until the cluster can tell its own volumes from all others on a node.
async fn refuse_volumes(client: &Client, scope: &NamespaceArgs, deployment: &str) -> anyhow::Result<Exit> {
    let volumes = client.volumes().await?;
    let own = |row: &&VolumeRow| row.namespace == scope.namespace() && row.deployment == deployment;
    let own: Vec<String> = volumes.iter().filter(own).map(|row| format!("`{}` on {}", row.name, row.node)).collect();
    let list = if own.is_empty() { "it has none".to_owned() } else { own.join(", ") };
    print::stderr(&format!(
        "error: `down -v` would delete the volumes of `{deployment}` ({list}), and deleting volumes is not supported\n\n\
         hint: run `longshore down`, then delete what you no longer need on its node with the engine's own `docker volume rm`"
    ));
    Ok(Exit::Error)
}
