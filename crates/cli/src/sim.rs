//! `longshore sim`: scenarios and benchmarks.
//!
//! Owns: the options of its commands, and in which form they answer.

mod bench;
mod draw;
mod fuzz;
mod run;
mod why;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::{
    exit::Exit,
    remote::{Form, Shown},
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

/// In which form a simulation answers.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Answer {
    /// Print one JSON object; the same as `-o json`.
    #[arg(long, conflicts_with = "output")]
    json: bool,
    #[command(flatten)]
    form: Form,
}

impl Answer {
    /// The answer, which is a drawing for people and the same JSON for everybody else.
    fn text(
        self,
        json: impl FnOnce() -> anyhow::Result<String>,
        draw: impl FnOnce() -> String,
    ) -> anyhow::Result<String> {
        let how = if self.json { Shown::Json } else { self.form.output() };
        Ok(match how {
            Shown::Text => draw(),
            Shown::Json => json()?,
            Shown::Yaml => longshore_compose::yaml::emit::emit(&serde_json::from_str::<Value>(&json()?)?),
        })
    }
}

/// What can be simulated.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a scenario file and show how it ends.
    ///
    /// Exit code 2 means that the file makes no sense, 3 that a safety rule was broken.
    #[command(after_help = RUN_EXAMPLES)]
    Run {
        /// The scenario.
        file: PathBuf,
        #[command(flatten)]
        answer: Answer,
        /// Say why a replica is where it is in the end, or why it has no node: the candidates and what was compared.
        #[arg(long, value_name = "REPLICA")]
        why: Option<String>,
    },
    /// Measure how long the scheduler takes to decide about a made-up cluster.
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(bench::Options),
    /// Run made-up clusters, work and trouble, check every safety rule after every event, and demand that all comes to
    /// rest.
    ///
    /// A seed that fails is printed with a scenario file cut down to what matters. Exit code 3 means that one failed.
    #[command(after_help = FUZZ_EXAMPLES)]
    Fuzz(fuzz::Options),
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Run { file, answer, why } => run::run(&file, answer, why.as_deref()),
        Command::Bench(options) => bench::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
    }
}
