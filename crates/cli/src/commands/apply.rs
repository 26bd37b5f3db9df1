//! `longshore apply`: creates or updates a deployment from a manifest.
//!
//! Owns: its options. Must not touch: what changes; the daemon decides that.

use clap::Args;
use longshore_api::{AppliedManifest, Changed};

use crate::{
    daemon_client::{
        NamespaceArgs, port_conditions,
        wait::{self, Goal, WaitArgs},
        with_client,
    },
    exit::Exit,
    image_build,
    manifest::{self, EngineArgs, ManifestArgs, ParsedManifest},
    output::{
        live_region::{LiveRegion, Stream},
        print,
    },
};

/// Apply a manifest: start new services, roll out changed ones, stop removed ones.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore apply -f compose.yaml\n  longshore apply -f compose.yaml --wait")]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    #[command(flatten)]
    scope: NamespaceArgs,
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    engine: EngineArgs,
}

pub(crate) fn run(args: ApplyArgs) -> anyhow::Result<Exit> {
    let Some(ParsedManifest { mut request, loaded }) = manifest::parse(args.manifest, args.scope.namespace())? else {
        return Ok(Exit::BadInput);
    };
    args.engine.add_to(&mut request, None);
    let connection = &args.scope.connection;
    with_client(connection, async |client| {
        if !loaded.builds.is_empty() {
            let nodes = client.nodes().await.map_or(1, |nodes| nodes.len());
            for warning in image_build::not_built(&loaded, nodes) {
                print::stderr(&warning);
            }
        }
        let applied = client.apply(&request).await?;
        applied.warnings.iter().for_each(|warning| print::stderr(warning));
        let exit = match args.wait.limit() {
            Some(limit) => {
                let AppliedManifest { namespace, deployment, revision, .. } = applied.clone();
                let goal = Goal { namespace, deployment, revision };
                let mut region = LiveRegion::new(Stream::Stderr);
                wait::until_active(client, &goal, limit, &mut region).await?.report(&goal)
            }
            None => Exit::Success,
        };
        port_conditions::print_warnings(client, &applied.namespace, &applied.deployment).await;
        let word = match applied.changed {
            Changed::Yes => "applied",
            Changed::No => "unchanged",
        };
        connection
            .print(&applied, |applied| format!("{} {word}, revision {}\n", applied.deployment, applied.revision))?;
        Ok(exit)
    })
}
