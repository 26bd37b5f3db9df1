//! `longshore sim`: scenarios and benchmarks.
//!
//! Owns: the options of its commands.

mod bench;
mod draw;
mod fuzz;
mod run;
mod why;

use std::path::PathBuf;

use clap::Subcommand;

use crate::exit::Exit;

/// What can be simulated.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a scenario file and show how it ends.
    ///
    /// Exit code 2 means that the file makes no sense, 3 that a safety rule was broken.
    Run {
        /// The scenario.
        file: PathBuf,
        /// Print one JSON object instead of a drawing.
        #[arg(long)]
        json: bool,
        /// Say why a replica is where it is in the end, or why it has no node: the candidates and what was compared.
        #[arg(long, value_name = "REPLICA")]
        why: Option<String>,
    },
    /// Measure how long the scheduler takes to decide about a made-up cluster.
    Bench(bench::Options),
    /// Run made-up clusters, work and trouble, check every safety rule after every event, and demand that all comes to
    /// rest.
    ///
    /// A seed that fails is printed with a scenario file cut down to what matters. Exit code 3 means that one failed.
    Fuzz(fuzz::Options),
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Run { file, json, why } => {
            let format = if json { run::Format::Json } else { run::Format::Drawing };
            run::run(&file, format, why.as_deref())
        }
        Command::Bench(options) => bench::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
    }
}
