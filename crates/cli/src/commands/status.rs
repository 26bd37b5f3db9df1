//! `longshore status`: deployments and their replicas.
//!
//! Owns: its options and its tables.

use std::fmt::Write as _;

use clap::Args;
use longshore_api::{Client, ClientError, Code, Status, StatusReason};

use crate::{
    daemon_client::{NamespaceArgs, with_client},
    exit::Exit,
    output::{
        OutputFormat,
        live_region::{LiveRegion, Stream},
        print::{self, Pipe},
        qualified,
        style::{Colour, Tone},
        table,
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
    let (mut region, mut last) = (LiveRegion::new(Stream::Stdout), String::new());
    loop {
        let mut text = format.render(&status(client, args).await?, tables)?;
        if format == OutputFormat::Yaml {
            // Marks where one document ends and the next begins.
            text.insert_str(0, "---\n");
        }
        if format == OutputFormat::Text && region.redraws() {
            region.draw(&text);
        } else if text != last && print::stream(text.as_bytes())? == Pipe::Closed {
            return Ok(Exit::Success);
        }
        last = text;
        if super::next_poll().await.is_break() {
            return Ok(Exit::Success);
        }
    }
}

fn tables(status: &Status) -> String {
    if status.deployments.is_empty() {
        return "nothing is deployed\n".to_owned();
    }
    let colour = Colour::of_stdout();
    let deployments = status.deployments.iter().map(|it| {
        // What has completed is not missing.
        let (running, desired) = it.services.iter().fold((0, 0), |sum, service| {
            (sum.0 + service.running, sum.1 + service.desired.saturating_sub(service.completed))
        });
        let (revision, running) = (it.revision.to_string(), format!("{running}/{desired}"));
        let word = colour.paint(Tone::of_deployment(&it.status), it.status.as_str());
        let reasons: Vec<&str> = it.reasons.iter().map(StatusReason::as_str).collect();
        vec![qualified(&it.namespace, &it.name), word, revision, running, reasons.join(", ")]
    });
    let heading = ["DEPLOYMENT", "STATUS", "REVISION", "RUNNING", "REASONS"];
    let mut out = table::draw(&heading, &deployments.collect::<Vec<_>>());
    let replicas = status.replicas.iter().map(|it| {
        let state = colour.paint(Tone::of_replica(&it.state), it.state.as_str());
        let code = it.code.as_ref().map_or("", Code::as_str).to_owned();
        vec![it.id.clone(), state, it.node.clone().unwrap_or_default(), it.restarts.to_string(), code]
    });
    let replicas: Vec<Vec<String>> = replicas.collect();
    if !replicas.is_empty() {
        out.push('\n');
        out.push_str(&table::draw(&["REPLICA", "STATE", "NODE", "RESTARTS", "CODE"], &replicas));
    }
    for it in &status.conditions {
        let _ = write!(out, "\n{}: {} on {}: {}\n", colour.paint(Tone::Bad, "warning"), it.code, it.node, it.message);
    }
    out
}
