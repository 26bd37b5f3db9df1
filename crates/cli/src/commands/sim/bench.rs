//! `longshore sim bench`: measures the scheduler on a generated cluster.
//!
//! Owns: the options, the text of the results, and reading the peak memory of the process.

use std::{fmt::Write as _, path::Path};

use anyhow::Context as _;
use clap::{Args, ValueEnum, builder::RangedU64ValueParser};
use longshore_model::Strategy;
use longshore_sim::bench::{
    self, BenchResult, Memory, RolloutBench,
    durable::{self, DurableResult},
};
use serde::Serialize;

use super::SimOutputArgs;
use crate::{exit::Exit, output::print};

/// Each node has a /64 of the cluster's /48, and subnet 0 is reserved.
const MAX_NODES: u64 = 65_535;
/// Above it the results would depend on the machine's memory more than on the scheduler.
const MAX_REPLICAS: u64 = 100_000_000;

/// The generated cluster.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Number of nodes, of three sizes.
    #[arg(long, value_name = "N", value_parser = at_most(MAX_NODES))]
    nodes: u32,
    /// Number of services.
    #[arg(long, value_name = "S", value_parser = at_most(MAX_REPLICAS))]
    services: u32,
    /// Number of replicas of all services together.
    #[arg(long, value_name = "R", value_parser = at_most(MAX_REPLICAS))]
    replicas: u32,
    /// Number of zones to spread every service over; with binpack, as even spread targets.
    #[arg(long, value_name = "Z", value_parser = at_most(MAX_NODES))]
    zones: Option<u32>,
    /// Give services memory limits, so that the cluster is about 80 % full.
    #[arg(long)]
    memory: bool,
    /// Placement strategy.
    #[arg(long, value_enum, default_value_t = StrategyArg::Spread)]
    strategy: StrategyArg,
    /// Also measure a rollout of every service at once, in the simulator.
    #[arg(long)]
    roll: bool,
    /// Number of measurements; the median counts.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = at_most(1000))]
    repeat: u32,
    #[command(flatten)]
    output: SimOutputArgs,
    /// Also measure the commit through the replicated log, on the disk of the current directory.
    #[arg(long)]
    durable: bool,
    /// Number of voters of the replicated log.
    #[arg(long, value_name = "V", requires = "durable", value_parser = at_most(7))]
    voters: Option<u32>,
}

/// Strategies that need no host names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StrategyArg {
    Spread,
    /// The node with the fewest replicas; `pack` is its JACO name.
    #[value(name = "least_loaded", alias = "pack")]
    LeastLoaded,
    Binpack,
    Hash,
}

impl From<StrategyArg> for Strategy {
    fn from(strategy: StrategyArg) -> Self {
        match strategy {
            StrategyArg::Spread => Self::Spread,
            StrategyArg::LeastLoaded => Self::LeastLoaded,
            StrategyArg::Binpack => Self::Binpack,
            StrategyArg::Hash => Self::Hash,
        }
    }
}

fn at_most(limit: u64) -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=limit)
}

pub(super) fn run(args: &BenchArgs) -> anyhow::Result<Exit> {
    let cluster = bench::Options {
        nodes: args.nodes,
        services: args.services,
        replicas: args.replicas,
        zones: args.zones.unwrap_or(0),
        memory: if args.memory { Memory::Counted } else { Memory::Ignored },
        strategy: args.strategy.into(),
        repeat: args.repeat,
        rollout: if args.roll { RolloutBench::Run } else { RolloutBench::Skip },
    };
    let mut figures = bench::run(&cluster);
    figures.max_rss_mib = peak_memory_mib();
    // Not in /tmp, which may be a tmpfs, where a sync costs nothing.
    let commit = || durable::run(&cluster, args.voters.unwrap_or(1), Path::new("."));
    let durable = args.durable.then(commit).transpose().context("the replicated log of the benchmark failed")?;
    let results = Results { figures, durable };
    let text = || decision_text(&results.figures) + &results.durable.as_ref().map(commit_text).unwrap_or_default();
    print::stdout(&args.output.render(|| Ok(serde_json::to_string(&results)? + "\n"), text)?)?;
    Ok(Exit::Success)
}

/// All results as one JSON object.
#[derive(Serialize)]
struct Results {
    #[serde(flatten)]
    figures: BenchResult,
    #[serde(flatten)]
    durable: Option<DurableResult>,
}

fn commit_text(durable: &DurableResult) -> String {
    let DurableResult { voters, committed, commit_ms, raw_sync_ms } = durable;
    let by = if *voters == 1 { "one voter".to_owned() } else { format!("{voters} voters") };
    format!(
        "  {:<18}{commit_ms:>14.3} ms ({committed} placements, {by})\n  {:<18}{raw_sync_ms:>14.3} ms\n",
        "committed in", "a bare sync"
    )
}

fn decision_text(figures: &BenchResult) -> String {
    let BenchResult { nodes, services, replicas, placed, .. } = figures;
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

/// Peak resident memory of the process, as Linux reports it; 0 if it is unknown.
fn peak_memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    kib.unwrap_or(0).div_ceil(1024)
}
