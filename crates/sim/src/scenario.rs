//! Scenario files: a cluster, what is asked of it, and what goes wrong.
//!
//! Owns: the file format of the specification's §9, and that a file is right before anything runs.
//! Must not touch: the run. A [`Scenario`] is data; the engine decides what its steps mean.
//! Invariant: a file that is accepted cannot fail half-way for a reason that could have been seen in it.

mod faults;
mod images;
mod machine;
mod manifest;
mod oddities;
mod pressure;
mod rehearsal;
mod timeline;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use longshore_compose::{
    Diagnostic, Diagnostics, Extensions, Place, Sources, settings,
    yaml::{self, Node as Yaml},
};
use longshore_model::{ClusterConfig, Command, Node, NodeName, Time, rebalance::Share};

pub use faults::Faults;
pub use images::{Check, Image, Pull};

/// Time a run takes unless the file says otherwise.
const DEFAULT_UNTIL: Duration = Duration::from_mins(10);
/// Longest run accepted. A month of heartbeats takes seconds to simulate; what is longer is a slip of the unit.
const LONGEST_RUN: Duration = Duration::from_hours(24 * 31);

const KEYS: &[&str] = &["config", "nodes", "images", "deployments", "timeline", "until", "settle", "faults"];

/// A cluster and what happens to it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The cluster's settings.
    pub config: ClusterConfig,
    /// The nodes there are at the beginning.
    pub nodes: Vec<Node>,
    /// How images behave.
    pub images: BTreeMap<String, Image>,
    /// What happens, in order of time; at one instant in order of the file.
    pub steps: Vec<Step>,
    /// When the run ends.
    pub until: Time,
    /// How long after that, with all machines mended, the cluster has to come to rest; `None` is that nobody asks.
    pub settle: Option<Duration>,
    /// How unreliable messages, agents and leaders are; `None` is not at all.
    pub faults: Option<Faults>,
    /// What is odd about the file without being wrong.
    pub warnings: Vec<Diagnostic>,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub struct Step {
    /// When.
    pub at: Time,
    /// Where it is written.
    pub place: Place,
    /// What.
    pub action: Action,
}

/// What can happen.
#[derive(Clone, Debug)]
pub enum Action {
    /// Somebody asks something of the cluster.
    Ask(Box<Command>),
    /// A machine goes off, and its containers with it.
    Fail(NodeName),
    /// A machine boots with nothing running.
    Return(NodeName),
    /// A machine is cut off: no message comes or goes, its containers run on.
    Isolate(NodeName),
    /// A machine that was cut off can be talked to again.
    Heal(NodeName),
    /// A new leader takes over, from the replicated state alone.
    NewLeader,
    /// A node reports itself unfit for new work.
    Degrade(NodeName),
    /// A machine is as busy as that.
    Press(NodeName, Load),
    /// Somebody asks which moves it would take to even out the services.
    Preview,
    /// Something happens to a replica, named by its printed id.
    Befall(String, Mishap),
}

/// How busy a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Part of its cores in use; as it was where absent.
    pub cpu: Option<Share>,
    /// Part of its memory in use; as it was where absent.
    pub memory: Option<Share>,
    /// What becomes of it.
    pub course: Course,
}

/// What becomes of a machine's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// It changes as replicas come and go.
    Follows,
    /// It stays, whoever comes or goes.
    Fixed,
}

/// What can happen to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// Its process ends with an error.
    Crash,
    /// Its check fails from now on, restarts on the same node included.
    Unhealthy,
    /// Its check passes again.
    Heal,
    /// Its process ends well.
    Complete,
}

impl Scenario {
    /// Whether anything is said of how busy machines are. Where nothing is, none of them reports it.
    pub(crate) fn speaks_of_pressure(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.action, Action::Press(..)))
    }

    /// Reads a scenario, or says everything that is wrong with it.
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
            rehearsal::rehearse(&scenario)?;
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
    let config = part("config").map_or_else(ClusterConfig::default, |node| settings::read(node, problems));
    let nodes = part("nodes").map_or_else(Vec::new, |node| machine::read_all(node, problems));
    if nodes.is_empty() && part("nodes").is_none() {
        problems
            .error(&root.place, "a scenario needs the key `nodes`")
            .hint("add nodes like `nodes: [{ name: a, count: 3, cpu: 4, memory: 8GiB }]`");
    }
    let images = part("images").map_or_else(BTreeMap::new, |node| images::read(node, problems));
    let mut steps = part("deployments").map_or_else(Vec::new, |node| manifest::read_all(node, problems));
    if let Some(node) = part("timeline") {
        steps.extend(timeline::read(node, problems));
    }
    // Stable, so that one instant keeps the order of the file, with the first deployments before everything.
    steps.sort_by_key(|step| step.at);
    images::check_nodes(&images, part("images"), &node_names(&nodes, &steps), problems);
    let until = part("until").map_or(Some(DEFAULT_UNTIL), |node| read_length(node, "`until`", problems))?;
    let settle = part("settle").and_then(|node| read_length(node, "`settle`", problems));
    let faults = part("faults").and_then(|node| faults::read(node, problems));
    let until = Time::default().after(until);
    oddities::note(&nodes, &steps, until, problems);
    Some(Scenario { config, nodes, images, steps, until, settle, faults, warnings: Vec::new() })
}

/// The names of all nodes that are there at some time.
fn node_names<'a>(nodes: &'a [Node], steps: &'a [Step]) -> BTreeSet<&'a NodeName> {
    let joining = steps.iter().filter_map(|step| {
        let Action::Ask(command) = &step.action else { return None };
        let Command::Join(node) = &**command else { return None };
        Some(&node.name)
    });
    nodes.iter().map(|node| &node.name).chain(joining).collect()
}

fn read_length(node: &Yaml, what: &str, problems: &mut Diagnostics) -> Option<Duration> {
    let length = problems.duration(node, what)?;
    if length > LONGEST_RUN {
        problems
            .error(&node.place, format!("{what} is more than 31 days"))
            .hint("shorten the run; `20m` is twenty minutes");
        return None;
    }
    Some(length)
}

#[cfg(test)]
mod tests;
