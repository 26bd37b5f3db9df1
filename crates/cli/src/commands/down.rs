//! `longshore down`: removes the deployment of a Compose file, as `docker compose down` does.
//!
//! Owns: which deployment is meant, and which volumes go with it. Invariant: volumes outlive their deployment unless `-v`
//! was confirmed.

use std::time::Duration;

use clap::Args;
use longshore_api::{Changed, Client, ClientError, Deployment, VolumeRow};
use longshore_model::ApiErrorCode;

use crate::{
    commands::volume,
    daemon_client::{
        NamespaceArgs, print_refusal,
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
  longshore down -v --yes         with its volumes and their data

Volumes stay unless `-v` is given: the next `longshore up` finds its data again.";

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
    /// Delete the deployment's volumes, too, with their data. Volumes that are external or were adopted stay.
    #[arg(short, long)]
    volumes: bool,
    /// Do not ask before deleting volumes.
    #[arg(short, long)]
    yes: bool,
    /// Time limit of waiting, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

pub(crate) fn run(args: DownArgs) -> anyhow::Result<Exit> {
    let DownArgs { manifest, scope, volumes, yes, timeout } = args;
    let deployment = match manifest.deployment(scope.namespace()) {
        Ok(deployment) => deployment,
        Err(error) => {
            print::stderr(&format!("error: {error:#}\n\nhint: name the deployment with `-p`"));
            return Ok(Exit::BadInput);
        }
    };
    with_client(&scope.connection, async |client| {
        let to_delete = if volumes { own_volumes(client, &scope, &deployment).await? } else { Vec::new() };
        if !to_delete.is_empty() && !yes && !volume::confirmed(&to_delete)? {
            return Ok(Exit::Error);
        }
        let known = client.deployments().await?;
        if !known.iter().any(|it| it.namespace == scope.namespace() && it.name == deployment) {
            print::stderr(&format!("`{deployment}` is not deployed"));
            let exit = delete_volumes(client, &to_delete).await?;
            if exit != Exit::Success {
                return Ok(exit);
            }
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
        let deleted = if exit == Exit::Success { delete_volumes(client, &to_delete).await? } else { exit };
        scope.connection.print(&changed, output::changed)?;
        Ok(deleted)
    })
}

/// The volumes that this deployment declared. Those of its services with one replica per node are not among them: they
/// have no one home.
async fn own_volumes(client: &Client, scope: &NamespaceArgs, deployment: &str) -> anyhow::Result<Vec<VolumeRow>> {
    let mut rows = client.volumes().await?;
    rows.retain(|row| row.namespace == scope.namespace() && row.deployment == deployment);
    Ok(rows)
}

/// Deletes volumes. One that another deployment uses, or that was not created here, stays, and why is printed.
async fn delete_volumes(client: &Client, rows: &[VolumeRow]) -> anyhow::Result<Exit> {
    let mut exit = Exit::Success;
    for row in rows {
        match client.remove_volume(&row.namespace, &row.name).await {
            Ok(_) => print::stderr(&format!("volume {} is deleted", row.name)),
            // Data that Longshore did not create stays, as it was promised.
            Err(ClientError::Refused(envelope)) if envelope.code == ApiErrorCode::Forbidden.code() => {
                print::stderr(&envelope.message);
            }
            Err(ClientError::Refused(envelope)) => exit = print_refusal(&envelope, envelope.hint()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(exit)
}
