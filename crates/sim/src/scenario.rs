//! Scenario files: a cluster, commands to it, and faults.
//!
//! Owns: the file format of the specification's §9, and the validation of a whole file before it runs.
//! Must not touch: the run. A [`Scenario`] is data; the engine decides what its steps mean.
//! Invariant: a run of an accepted file never fails for a reason that the file alone shows.

mod check_steps;
mod config;
mod faults;
mod images;
mod lint;
mod manifest;
mod nodes;
mod pressure;
mod timeline;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use longshore_compose::{
    Diagnostic, Diagnostics, Extensions, Location, Sources,
    yaml::{self, Node as Yaml},
};
use longshore_model::{ClusterConfig, Command, Node, NodeName, Time, rebalance::Share};

pub use faults::Faults;
pub use images::{Check, Image, Pull};

/// Virtual length of a run without `until`.
const DEFAULT_UNTIL: Duration = Duration::from_mins(10);
/// Longest run accepted. A month of heartbeats takes seconds to simulate; a longer one is most likely a wrong unit.
const LONGEST_RUN: Duration = Duration::from_hours(24 * 31);

const KEYS: &[&str] = &["config", "nodes", "images", "deployments", "timeline", "until", "settle", "faults"];

/// A cluster and what happens to it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The cluster's settings.
    pub config: ClusterConfig,
    /// The nodes at the start of the run.
    pub nodes: Vec<Node>,
    /// How images behave.
    pub images: BTreeMap<String, Image>,
    /// The steps in order of time; at one instant in order of the file.
    pub steps: Vec<Step>,
    /// When the run ends.
    pub until: Time,
    /// Time after `until`, with all machines healed, within which the cluster must come to rest; `None` skips that check.
    pub settle: Option<Duration>,
    /// Random faults of messages, agents and leaders; `None` is no faults.
    pub faults: Option<Faults>,
    /// Warnings about the file, which is valid.
    pub warnings: Vec<Diagnostic>,
}

/// One step of the timeline.
#[derive(Clone, Debug)]
pub struct Step {
    /// The virtual time of the step.
    pub at: Time,
    /// Where the file defines it.
    pub location: Location,
    /// What it does.
    pub action: Action,
}

/// What a step does.
#[derive(Clone, Debug)]
pub enum Action {
    /// Sends a command to the control plane.
    Command(Box<Command>),
    /// Switches a machine off. Its containers are gone.
    Fail(NodeName),
    /// Boots a machine with nothing running.
    Return(NodeName),
    /// Cuts a machine off: no message gets through, its containers run on.
    Isolate(NodeName),
    /// Restores the link of a machine that was cut off.
    Heal(NodeName),
    /// A new leader takes over with nothing but the replicated state.
    NewLeader,
    /// A node reports itself unfit for new work.
    Degrade(NodeName),
    /// Sets the load of a machine.
    SetLoad(NodeName, Load),
    /// Writes the moves of a spread rebalance to the timeline without making them.
    Preview,
    /// Injects a fault into a replica, named by its printed id.
    InjectFault(String, InjectedFault),
}

/// The load of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Share of its cores in use; `None` leaves it unchanged.
    pub cpu: Option<Share>,
    /// Share of its memory in use; `None` leaves it unchanged.
    pub memory: Option<Share>,
    /// Whether it changes with the replicas.
    pub mode: LoadMode,
}

/// How a machine's load changes after it was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadMode {
    /// By the footprints of replicas that start and end on it.
    FollowsReplicas,
    /// Not at all.
    Fixed,
}

/// A fault injected into a replica, or the end of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// Its process exits with code 1.
    Crash,
    /// Its health check fails from now on, also after restarts on the same node.
    Unhealthy,
    /// Its health check passes again.
    Heal,
    /// Its process exits with code 0.
    Complete,
}

impl Scenario {
    /// Whether a step sets a load. Without one no machine sends load samples.
    pub(crate) fn sets_load(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.action, Action::SetLoad(..)))
    }

    /// Reads a scenario. Returns every problem of an invalid one.
    pub fn parse(file: &str, text: &str) -> Result<Self, Diagnostics> {
        let mut sources = Sources::default();
        sources.insert(file, text);
        let quoted = |mut problems: Diagnostics| {
            problems.sort();
            problems.quote(&sources);
            problems
        };
        let mut scenario = read(file, text).map_err(quoted)?;
        scenario.warnings = quoted(Diagnostics::from(scenario.warnings)).iter().cloned().collect();
        Ok(scenario)
    }
}

fn read(file: &str, text: &str) -> Result<Scenario, Diagnostics> {
    let root = yaml::parse(file, text)?;
    let mut problems = Diagnostics::new();
    let scenario = read_root(&root, &mut problems);
    match problems.judge(scenario) {
        Ok((mut scenario, warnings)) => {
            check_steps::check_steps(&scenario)?;
            scenario.warnings = warnings;
            Ok(scenario)
        }
        Err(problems) => Err(problems),
    }
}

fn read_root(root: &Yaml, problems: &mut Diagnostics) -> Option<Scenario> {
    let mapping = problems.mapping(root, "a scenario")?;
    problems.known_keys(mapping, "a scenario", KEYS, Extensions::Refused);
    let part = |key: &str| mapping.get(key).filter(|node| !node.is_null());
    let config = part("config").map_or_else(ClusterConfig::default, |node| config::read(node, problems));
    let nodes = part("nodes").map_or_else(Vec::new, |node| nodes::read_all(node, problems));
    if nodes.is_empty() && part("nodes").is_none() {
        problems
            .error(&root.location, "a scenario needs the key `nodes`")
            .hint("add nodes like `nodes: [{ name: a, count: 3, cpu: 4, memory: 8GiB }]`");
    }
    let images = part("images").map_or_else(BTreeMap::new, |node| images::read(node, problems));
    let mut steps = part("deployments").map_or_else(Vec::new, |node| manifest::read_all(node, problems));
    if let Some(node) = part("timeline") {
        steps.extend(timeline::read(node, problems));
    }
    // A stable sort keeps the order of the file at one instant, with `deployments` before everything.
    steps.sort_by_key(|step| step.at);
    images::check_nodes(&images, part("images"), &node_names(&nodes, &steps), problems);
    let until = part("until").map_or(Some(DEFAULT_UNTIL), |node| read_length(node, "`until`", problems))?;
    let settle = part("settle").and_then(|node| read_length(node, "`settle`", problems));
    let faults = part("faults").and_then(|node| faults::read(node, problems));
    let until = Time::default().after(until);
    lint::check(&nodes, &steps, until, problems);
    Some(Scenario { config, nodes, images, steps, until, settle, faults, warnings: Vec::new() })
}

/// The names of all nodes that exist at some time of the run.
fn node_names<'a>(nodes: &'a [Node], steps: &'a [Step]) -> BTreeSet<&'a NodeName> {
    let joining = steps.iter().filter_map(|step| {
        let Action::Command(command) = &step.action else { return None };
        let Command::Join(node) = &**command else { return None };
        Some(&node.name)
    });
    nodes.iter().map(|node| &node.name).chain(joining).collect()
}

fn read_length(node: &Yaml, what: &str, problems: &mut Diagnostics) -> Option<Duration> {
    let length = problems.duration(node, what)?;
    if length > LONGEST_RUN {
        problems
            .error(&node.location, format!("{what} is more than 31 days"))
            .hint("shorten the run; `20m` is twenty minutes");
        return None;
    }
    Some(length)
}

#[cfg(test)]
mod tests;
