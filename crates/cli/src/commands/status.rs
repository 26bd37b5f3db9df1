//! `longshore status`: deployments and their replicas.
//!
//! Owns: its options, and when it prints again.

mod tables;

use clap::Args;
use longshore_api::{Client, ClientError, Status};

use self::tables::tables;

use crate::{
    daemon_client::{NamespaceArgs, with_client},
    exit::Exit,
    output::{
        OutputFormat,
        live_region::{LiveRegion, Stream},
        print::{self, Pipe},
    },
};

/// Show deployments and their replicas.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore status\n  longshore status shop -w\n  longshore status -o json")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    scope: NamespaceArgs,
    /// Only this deployment.
    deployment: Option<String>,
    /// Keep updating until Ctrl-C.
    #[arg(short, long)]
    watch: bool,
}

pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<Exit> {
    let connection = &args.scope.connection;
    with_client(connection, async |client| {
        if args.watch { watch(client, args).await } else { connection.print(&status(client, args).await?, tables) }
    })
}

async fn status(client: &Client, args: &StatusArgs) -> Result<Status, ClientError> {
    let only = args.deployment.as_deref();
    let mut status = client.status(args.scope.namespace(), only).await?;
    if let Some(namespace) = args.scope.given().filter(|_| only.is_none()) {
        status.deployments.retain(|deployment| deployment.namespace == namespace);
        status.replicas.retain(|replica| replica.namespace == namespace);
    }
    Ok(status)
}

/// Redraws the tables in place on a terminal; elsewhere, and for programs, prints each status that differs as a whole.
async fn watch(client: &Client, args: &StatusArgs) -> anyhow::Result<Exit> {
    let format = args.scope.connection.format();
    let (mut region, mut last) = (LiveRegion::new(Stream::Stdout), None);
    loop {
        let status = status(client, args).await?;
        let mut text = format.render(&status, tables)?;
        if format == OutputFormat::Yaml {
            // Marks where one document ends and the next begins.
            text.insert_str(0, "---\n");
        }
        if format == OutputFormat::Text && region.redraws() {
            region.draw(&text);
        } else if last.as_ref() != Some(&status) && print::stream(text.as_bytes())? == Pipe::Closed {
            // Ages are no change: the answer is compared, not its text.
            return Ok(Exit::Success);
        }
        last = Some(status);
        if super::next_poll().await.is_break() {
            return Ok(Exit::Success);
        }
    }
}
