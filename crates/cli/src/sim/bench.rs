//! `longshore sim bench`.
//!
//! Owns: the options, the figures in words, and asking the system for the memory used.

use std::{fmt::Write as _, path::Path};

use anyhow::Context as _;
use clap::{Args, ValueEnum, builder::RangedU64ValueParser};
use longshore_model::Strategy;
use longshore_sim::bench::{
    self, Figures, Memory, Rolling,
    durable::{self, Durable},
};
use serde::Serialize;

use super::Answer;
use crate::{exit::Exit, print};

/// Each node has a /64 of the cluster's /48, and subnet 0 is kept.
const MOST_NODES: u64 = 65_535;
/// Beyond it the figures would say more about the machine's memory than about the scheduler.
const MOST_REPLICAS: u64 = 100_000_000;

/// The made-up cluster.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Nodes, of three sizes.
    #[arg(long, value_name = "N", value_parser = at_most(MOST_NODES))]
    nodes: u32,
    /// Services.
    #[arg(long, value_name = "S", value_parser = at_most(MOST_REPLICAS))]
    services: u32,
    /// Replicas, over all services.
    #[arg(long, value_name = "R", value_parser = at_most(MOST_REPLICAS))]
    replicas: u32,
    /// Zones to spread every service over; with binpack, as even spread targets.
    #[arg(long, value_name = "Z", value_parser = at_most(MOST_NODES))]
    zones: Option<u32>,
    /// Let services ask for memory, so that the cluster is about 80 % full.
    #[arg(long)]
    memory: bool,
    /// How nodes are chosen.
    #[arg(long, value_enum, default_value_t = Choice::Spread)]
    strategy: Choice,
    /// Also roll every service over at once, in the simulator.
    #[arg(long)]
    roll: bool,
    /// Measure so many times; the median counts.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = at_most(1000))]
    repeat: u32,
    #[command(flatten)]
    answer: Answer,
    /// Add the commit through the replicated log, on the disk of the current folder.
    #[arg(long)]
    durable: bool,
    /// Members of the replicated log.
    #[arg(long, value_name = "V", requires = "durable", value_parser = at_most(7))]
    voters: Option<u32>,
}

/// Strategies that need nothing but a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choice {
    Spread,
    Pack,
    Binpack,
    Hash,
}

impl From<Choice> for Strategy {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Spread => Self::Spread,
            Choice::Pack => Self::Pack,
            Choice::Binpack => Self::Binpack,
            Choice::Hash => Self::Hash,
        }
    }
}

fn at_most(most: u64) -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=most)
}

pub(super) fn run(options: &Options) -> anyhow::Result<Exit> {
    let cluster = bench::Options {
        nodes: options.nodes,
        services: options.services,
        replicas: options.replicas,
        zones: options.zones.unwrap_or(0),
        memory: if options.memory { Memory::Counted } else { Memory::Ignored },
        strategy: options.strategy.into(),
        repeat: options.repeat,
        rolling: if options.roll { Rolling::Measured } else { Rolling::LeftOut },
    };
    let mut figures = bench::run(&cluster);
    figures.max_rss_mib = peak_memory_mib();
    // Here and not in /tmp: that may be memory, where a sync costs nothing.
    let commit = || durable::run(&cluster, options.voters.unwrap_or(1), Path::new("."));
    let durable = options.durable.then(commit).transpose().context("the log of the benchmark failed")?;
    let all = All { figures, durable };
    let words = || in_words(&all.figures) + &all.durable.as_ref().map(durably_in_words).unwrap_or_default();
    print::print(&options.answer.text(|| Ok(serde_json::to_string(&all)? + "\n"), words)?)?;
    Ok(Exit::Success)
}

/// Everything in one object.
#[derive(Serialize)]
struct All {
    #[serde(flatten)]
    figures: Figures,
    #[serde(flatten)]
    durable: Option<Durable>,
}

fn durably_in_words(durable: &Durable) -> String {
    let Durable { voters, committed, commit_ms, raw_sync_ms } = durable;
    let by = if *voters == 1 { "one voter".to_owned() } else { format!("{voters} voters") };
    format!(
        "  {:<18}{commit_ms:>14.3} ms ({committed} placements, {by})\n  {:<18}{raw_sync_ms:>14.3} ms\n",
        "committed in", "a bare sync"
    )
}

fn in_words(figures: &Figures) -> String {
    let Figures { nodes, services, replicas, placed, .. } = figures;
    let mut text = format!("{replicas} replicas of {services} services on {nodes} nodes, {placed} placed\n\n");
    let rows = [
        ("decided in", figures.decide_ms, "ms"),
        ("per replica", figures.ns_per_replica, "ns"),
        ("nothing changed", figures.noop_us, "µs"),
        ("one replica more", figures.one_more_us, "µs"),
    ];
    for (what, value, unit) in rows {
        let _ = writeln!(text, "  {what:<18}{value:>14.3} {unit}");
    }
    if let (Some(steps), Some(step), Some(growth)) = (figures.roll_steps, figures.roll_us_per_step, figures.roll_growth)
    {
        let _ =
            writeln!(text, "  {:<18}{step:>14.3} µs ({steps} steps, {growth} times a tenth's)", "a step of rolling");
    }
    text + &format!("  {:<18}{:>14} MiB\n", "memory at most", figures.max_rss_mib)
}

/// The most memory the process ever had, as Linux tells it; 0 where nobody tells.
fn peak_memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    kib.unwrap_or(0).div_ceil(1024)
}
