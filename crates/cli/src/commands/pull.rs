//! `longshore pull`: asks registries for newer images of a deployment, and rolls what changed.
//!
//! Owns: which deployment is meant. Must not touch: what an image reference means; the daemon resolves it.

use clap::Args;
use longshore_api::{AppliedManifest, Changed};

use crate::{
    daemon_client::{
        NamespaceArgs,
        wait::{self, Goal, WaitArgs},
        with_client,
    },
    exit::Exit,
    manifest::{self, ManifestArgs},
    output::{
        live_region::{LiveRegion, Stream},
        print,
    },
};

/// Ask the registries for newer images of a deployment, and roll the services whose image changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longshore pull                  the deployment of this directory's compose.yaml
  longshore pull shop --wait

Services with `pull_policy: never` or `build` are left alone. What a tag means is fixed at every `apply`; a service whose \
image did not change keeps running.")]
pub(crate) struct PullArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    #[command(flatten)]
    scope: NamespaceArgs,
    #[command(flatten)]
    wait: WaitArgs,
    /// The deployment; that of the manifest unless given.
    deployment: Option<String>,
}

pub(crate) fn run(args: PullArgs) -> anyhow::Result<Exit> {
    let deployment = match args.deployment {
        Some(deployment) => deployment,
        None => match manifest::parse(args.manifest, args.scope.namespace())? {
            Some(parsed) => parsed.loaded.deployment.to_string(),
            None => return Ok(Exit::BadInput),
        },
    };
    let connection = &args.scope.connection;
    with_client(connection, async |client| {
        let pulled = client.pull(args.scope.namespace(), &deployment).await?;
        pulled.warnings.iter().for_each(|warning| print::stderr(warning));
        let exit = match args.wait.limit() {
            Some(limit) => {
                let AppliedManifest { namespace, deployment, revision, .. } = pulled.clone();
                let goal = Goal { namespace, deployment, revision };
                let mut region = LiveRegion::new(Stream::Stderr);
                wait::until_active(client, &goal, limit, &mut region).await?.report(&goal)
            }
            None => Exit::Success,
        };
        let what = match pulled.changed {
            Changed::Yes => "has newer images",
            // Each warning names an image whose registry did not answer.
            Changed::No if !pulled.warnings.is_empty() => "keeps the images it has",
            Changed::No => "has the newest images",
        };
        connection.print(&pulled, |pulled| format!("{} {what}, revision {}\n", pulled.deployment, pulled.revision))?;
        Ok(exit)
    })
}
