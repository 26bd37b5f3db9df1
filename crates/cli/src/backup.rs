//! `longshore backup` and `restore`: everything the cluster knows, in one file and out of it.
//!
//! Owns: their options. Must not touch: what is in a backup.
//! Invariant: a backup that is written to a file is readable by its owner alone, and overwrites nothing.

use std::{
    fs::OpenOptions,
    io::{self, IsTerminal as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use crate::{
    cluster,
    exit::Exit,
    place::Seat,
    print::{self, Reader},
    remote::{self, Connection, Form},
};

/// Write everything the cluster knows to a file.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore backup cluster.backup\n  longshore backup - | gzip > cluster.backup.gz")]
pub(crate) struct Backup {
    #[command(flatten)]
    connection: Connection,
    /// Where to, `-` for standard output; a file that exists is not overwritten.
    file: PathBuf,
}

/// A backup that was written.
#[derive(Serialize)]
struct Written {
    file: String,
    bytes: usize,
}

pub(crate) fn backup(options: &Backup) -> anyhow::Result<Exit> {
    remote::ask(&options.connection, async |client| {
        if options.file.as_os_str() == "-" {
            return to_stdout(&client.backup().await?);
        }
        let bytes = client.backup().await?;
        let written = write_new(&options.file, &bytes);
        if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
            let file = options.file.display();
            print::note(&format!(
                "error: `{file}` exists already\n\nhint: name another file, or remove this one first"
            ));
            return Ok(Exit::Trouble);
        }
        written.with_context(|| format!("`{}` cannot be written", options.file.display()))?;
        let written = Written { file: options.file.display().to_string(), bytes: bytes.len() };
        remote::show(&options.connection, &written, |it| format!("wrote {} bytes to {}\n", it.bytes, it.file))
    })
}

fn to_stdout(bytes: &[u8]) -> anyhow::Result<Exit> {
    if io::stdout().is_terminal() {
        print::note(
            "error: a backup is nothing to look at\n\nhint: name a file, or send it on: `longshore backup - | ...`",
        );
        return Ok(Exit::BadInput);
    }
    match print::offer(bytes)? {
        Reader::There => Ok(Exit::Success),
        // Half of a backup is none.
        Reader::Gone => Ok(Exit::Trouble),
    }
}

/// Make a cluster of one from a backup, in an empty folder.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore restore cluster.backup --advertise 10.0.0.9:7474")]
pub(crate) struct Restore {
    /// The backup.
    file: PathBuf,
    /// Where this node is reached by the others.
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<String>,
    #[command(flatten)]
    seat: Seat,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn restore(options: Restore) -> anyhow::Result<Exit> {
    let backup =
        std::fs::read(&options.file).with_context(|| format!("`{}` cannot be read", options.file.display()))?;
    let (folder, node) = options.seat.taken()?;
    let restored = longshore_server::restore(folder, node, options.advertise, &backup);
    cluster::begun(cluster::runtime()?.block_on(restored)?, options.form)
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
