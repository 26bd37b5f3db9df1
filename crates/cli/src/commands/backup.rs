//! `longshore backup` and `longshore restore`: the cluster state as one file.
//!
//! Owns: their args. Must not touch: the content of a backup.
//! Invariant: a backup file is readable by its owner only, and an existing file is never overwritten.

use std::{
    fs::OpenOptions,
    io::{self, IsTerminal as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use super::cluster;
use crate::{
    daemon_client::{ConnectionArgs, with_client},
    exit::Exit,
    output::{
        OutputArgs,
        print::{self, Pipe},
    },
    paths::{LocalNode, NodeArgs},
};

/// Write the cluster state to a file.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore backup cluster.backup\n  longshore backup - | gzip > cluster.backup.gz")]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Output file, `-` for standard output; an existing file is not overwritten.
    file: PathBuf,
}

/// The answer of `backup`.
#[derive(Serialize)]
struct WrittenBackup {
    file: String,
    bytes: usize,
}

pub(crate) fn backup(args: &BackupArgs) -> anyhow::Result<Exit> {
    with_client(&args.connection, async |client| {
        if args.file.as_os_str() == "-" {
            return to_stdout(&client.backup().await?);
        }
        let bytes = client.backup().await?;
        let written = write_new(&args.file, &bytes);
        if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
            let file = args.file.display();
            print::stderr(&format!(
                "error: `{file}` exists already\n\nhint: name another file, or remove this one first"
            ));
            return Ok(Exit::Error);
        }
        written.with_context(|| format!("`{}` cannot be written", args.file.display()))?;
        let written = WrittenBackup { file: args.file.display().to_string(), bytes: bytes.len() };
        args.connection.print(&written, |it| format!("wrote {} bytes to {}\n", it.bytes, it.file))
    })
}

fn to_stdout(bytes: &[u8]) -> anyhow::Result<Exit> {
    if io::stdout().is_terminal() {
        print::stderr(
            "error: a backup is binary and is not written to a terminal\n\nhint: name a file, or use a pipe: `longshore backup - | ...`",
        );
        return Ok(Exit::BadInput);
    }
    match print::stream(bytes)? {
        Pipe::Open => Ok(Exit::Success),
        // A truncated backup is useless.
        Pipe::Closed => Ok(Exit::Error),
    }
}

/// Create a cluster of one server from a backup, in an empty data directory.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore restore cluster.backup --advertise 10.0.0.9:7474")]
pub(crate) struct RestoreArgs {
    /// The backup file.
    file: PathBuf,
    /// Address at which other nodes reach this one.
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<String>,
    #[command(flatten)]
    node: NodeArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn restore(args: RestoreArgs) -> anyhow::Result<Exit> {
    let backup = std::fs::read(&args.file).with_context(|| format!("`{}` cannot be read", args.file.display()))?;
    let LocalNode { name, data_dir } = args.node.resolve()?;
    let restored = longshore_server::restore(data_dir, name, args.advertise, &backup);
    cluster::print_recovered(cluster::runtime()?.block_on(restored)?, args.output)
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
