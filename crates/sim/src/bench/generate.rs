//! The generated cluster: three sizes of nodes, services with varied requests.
//!
//! Owns: the sequences. They are fixed rather than random, so that measurements stay comparable over time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{
    Attribute, Capacity, ClusterConfig, Driver, Event, GroupKey, NamespaceName, Node, NodeNumber, PlacementSpec,
    RevisionNumber, ServiceSpec, SlotIndex,
    rollout::RolloutPosition,
    service::{Resources, SpreadTarget},
    units::MIB,
};
#[cfg(feature = "durable")]
use longshore_model::{Command, DeploymentSpec};
use longshore_scheduler::View;

use super::{Memory, Options, feed};

/// Sizes of nodes, as multiples of the smallest.
const NODE_SIZES: [u64; 3] = [1, 2, 4];
const SMALLEST_CORES: u64 = 8;
/// CPU requests in thousandths of a core and memory in MiB. Lengths without a common factor make many combinations.
const CPU_MILLIS: [u64; 7] = [100, 250, 50, 500, 200, 1000, 150];
const MEMORY_MIB: [u64; 5] = [128, 512, 256, 64, 1024];
/// Requested share of all memory, in percent.
const FULL_PERCENT: u64 = 80;
const SERVICES_PER_DEPLOYMENT: u32 = 100;

/// A cluster and its services, from which every round starts.
pub(super) struct Cluster {
    nodes: Vec<Arc<Node>>,
    services: Vec<Service>,
}

/// One service.
pub(super) struct Service {
    group: GroupKey,
    spec: Arc<ServiceSpec>,
}

impl Service {
    fn created(&self) -> Event {
        self.changed(1, Arc::clone(&self.spec))
    }

    /// The event that adds `more` replicas to the initial count.
    pub(super) fn scaled_by(&self, more: u32) -> Event {
        let mut spec = ServiceSpec::clone(&self.spec);
        spec.replicas += more;
        self.changed(1 + u64::from(more), Arc::new(spec))
    }

    fn changed(&self, revision: u64, spec: Arc<ServiceSpec>) -> Event {
        // A view only ever raises `next_index`, so zero is right for every revision.
        let (group, revision) = (self.group.clone(), RevisionNumber(revision));
        let (next_index, restart_epoch, rollout_position) = (SlotIndex(0), 0, RolloutPosition::default());
        Event::GroupChanged { group, revision, spec, next_index, restart_epoch, rollout_position }
    }
}

impl Cluster {
    pub(super) fn new(options: &Options) -> Self {
        let services: Vec<Service> = (0..options.services).map(|number| service(options, number)).collect();
        let unit = smallest_memory(options, &services);
        let nodes = (0..options.nodes).map(|number| Arc::new(node(options, number, unit))).collect();
        Self { nodes, services }
    }

    /// A view of the cluster with nothing placed.
    pub(super) fn view(&self) -> View {
        let mut view = View::default();
        feed(&mut view, self.events());
        view
    }

    pub(super) fn events(&self) -> impl Iterator<Item = Event> {
        let nodes = self.nodes.iter().cloned().map(Event::NodeChanged);
        [Event::Configured(ClusterConfig::default())]
            .into_iter()
            .chain(nodes)
            .chain(self.services.iter().map(Service::created))
    }

    /// The commands that create this cluster.
    #[cfg(feature = "durable")]
    pub(super) fn commands(&self) -> Vec<Command> {
        let mut deployments: BTreeMap<_, DeploymentSpec> = BTreeMap::new();
        for Service { group, spec } in &self.services {
            let deployment = deployments.entry(group.deployment.clone()).or_default();
            deployment.services.insert(group.service.clone(), Arc::clone(spec));
        }
        let joins = self.nodes.iter().map(|node| Command::Join(Box::new(Node::clone(node))));
        let applies = deployments.into_iter().map(|(deployment, spec)| Command::Apply {
            namespace: NamespaceName::default_namespace(),
            deployment,
            spec: Box::new(spec),
            rerun: longshore_model::command::Rerun::IfChanged,
        });
        joins.chain(applies).collect()
    }

    pub(super) fn services(&self) -> u32 {
        u32::try_from(self.services.len()).unwrap_or(u32::MAX)
    }

    /// A service by number, modulo the number of services.
    pub(super) fn service(&self, number: u64) -> &Service {
        let at = number % self.services.len() as u64;
        &self.services[usize::try_from(at).unwrap_or(0)]
    }
}

fn cycled<const N: usize>(sequence: [u64; N], number: u32) -> u64 {
    sequence[number as usize % N]
}

fn service(options: &Options, number: u32) -> Service {
    let extra = u32::from(number < options.replicas % options.services);
    let memory = (options.memory == Memory::Counted).then(|| cycled(MEMORY_MIB, number) * MIB);
    let zone = (options.zones > 0).then(|| Attribute::Label("zone".to_owned()));
    // `binpack` has even spread targets where the other strategies have preferences.
    let (preferences, spread_targets) = if options.strategy.is_scored() {
        (Vec::new(), zone.map(evenly).into_iter().collect())
    } else {
        (zone.into_iter().collect(), Vec::new())
    };
    let spec = ServiceSpec {
        replicas: options.replicas / options.services + extra,
        resources: Resources {
            cpu_reservation_millis: Some(cycled(CPU_MILLIS, number)),
            memory_limit_bytes: memory,
            ..Resources::default()
        },
        placement: PlacementSpec {
            strategy: options.strategy,
            preferences,
            spread_targets,
            ..PlacementSpec::default()
        },
        ..ServiceSpec::default()
    };
    let group = GroupKey {
        namespace: NamespaceName::default_namespace(),
        deployment: format!("bench-{:04}", number / SERVICES_PER_DEPLOYMENT).as_str().into(),
        service: format!("s-{:02}", number % SERVICES_PER_DEPLOYMENT).as_str().into(),
    };
    Service { group, spec: Arc::new(spec) }
}

fn evenly(over: Attribute) -> SpreadTarget {
    SpreadTarget { over, weight: 50, percent: BTreeMap::new() }
}

/// Memory of the smallest node, so that the cluster is [`FULL_PERCENT`] full and every single request fits.
fn smallest_memory(options: &Options, services: &[Service]) -> u64 {
    let asked: u64 = services
        .iter()
        .map(|service| u64::from(service.spec.replicas) * service.spec.resources.memory_limit_bytes.unwrap_or(0))
        .sum();
    let weights: u64 = (0..options.nodes).map(|number| cycled(NODE_SIZES, number)).sum();
    let largest = MEMORY_MIB.into_iter().max().unwrap_or(0) * MIB;
    (asked / weights.max(1) * 100 / FULL_PERCENT).max(4 * largest)
}

fn node(options: &Options, number: u32, smallest_memory: u64) -> Node {
    let size = cycled(NODE_SIZES, number);
    let zone = (options.zones > 0).then(|| ("zone".to_owned(), format!("zone-{}", number % options.zones)));
    Node {
        number: NodeNumber(number + 1),
        labels: zone.into_iter().collect(),
        drivers: BTreeSet::from([Driver::Docker]),
        capacity: Capacity {
            cpu_millis: size * SMALLEST_CORES * 1000,
            memory_bytes: size * smallest_memory,
            ..Capacity::default()
        },
        ..Node::new(format!("node-{number:05}").as_str())
    }
}
