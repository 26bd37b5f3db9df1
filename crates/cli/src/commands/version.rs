//! `longshore version`: the version of this binary.
//!
//! Owns: its output.

use clap::Args;
use serde::Serialize;

use crate::{exit::Exit, output::OutputArgs};

/// Print the version of this binary.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore version\n  longshore version -o json")]
pub(crate) struct VersionArgs {
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct Version {
    version: &'static str,
    os: &'static str,
    arch: &'static str,
}

pub(crate) fn run(args: &VersionArgs) -> anyhow::Result<Exit> {
    let version =
        Version { version: env!("CARGO_PKG_VERSION"), os: std::env::consts::OS, arch: std::env::consts::ARCH };
    args.output.print(&version, |it| format!("longshore {} ({}/{})\n", it.version, it.os, it.arch))
}
