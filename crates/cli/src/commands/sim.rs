//! `longshore sim`: scenarios, benchmarks and fuzzing on a simulated cluster.
//!
//! Owns: the options of its commands, and their output formats.

mod bench;
mod fuzz;
mod report_view;
mod run;
mod why;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::{
    exit::Exit,
    output::{OutputArgs, OutputFormat},
};

const RUN_EXAMPLES: &str = "\
Examples:
  longshore sim run scenario.yaml
  longshore sim run scenario.yaml --json
  longshore sim run scenario.yaml --why shop-web-0";
const BENCH_EXAMPLES: &str = "\
Examples:
  longshore sim bench --nodes 100 --services 10 --replicas 1000 --memory
  longshore sim bench --nodes 100 --services 10 --replicas 1000 --zones 3 --strategy binpack --json";
const FUZZ_EXAMPLES: &str = "\
Examples:
  longshore sim fuzz --seeds 0..5
  longshore sim fuzz --seeds 7..8 --json";

/// Output format of a simulation.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SimOutputArgs {
    /// Print one JSON object; the same as `-o json`.
    #[arg(long, conflicts_with = "output")]
    json: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl SimOutputArgs {
    /// Renders the result: `view` for people, `json` for programs.
    fn render(
        self,
        json: impl FnOnce() -> anyhow::Result<String>,
        view: impl FnOnce() -> String,
    ) -> anyhow::Result<String> {
        let format = if self.json { OutputFormat::Json } else { self.output.format() };
        Ok(match format {
            OutputFormat::Text => view(),
            OutputFormat::Json => json()?,
            OutputFormat::Yaml => longshore_compose::yaml::emit::emit(&serde_json::from_str::<Value>(&json()?)?),
        })
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a scenario file and show its final state.
    ///
    /// Exit code 2 means that the file is invalid, 3 that a safety rule was broken.
    #[command(after_help = RUN_EXAMPLES)]
    Run {
        /// The scenario file.
        file: PathBuf,
        #[command(flatten)]
        output: SimOutputArgs,
        /// Explain why a replica is on its node at the end, or why it has none: the candidates and how they compare.
        #[arg(long, value_name = "REPLICA")]
        why: Option<String>,
    },
    /// Measure how long the scheduler takes for a generated cluster.
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(bench::BenchArgs),
    /// Run generated clusters, deployments and faults, check every safety rule after every event, and require that each
    /// run converges.
    ///
    /// A failing seed is printed with a minimised scenario file. Exit code 3 means that one failed.
    #[command(after_help = FUZZ_EXAMPLES)]
    Fuzz(fuzz::FuzzArgs),
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Run { file, output, why } => run::run(&file, output, why.as_deref()),
        Command::Bench(args) => bench::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
    }
}
