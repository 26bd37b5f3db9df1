//! Random nodes, and the small sets of names that all generators use.
//!
//! Owns: the names. The sets are small on purpose: the properties need collisions.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use longshore_model::{
    Attribute, Capacity, Constraint, ConstraintRole, Driver, Node, NodeName, Operator, Platform, PoolName, ServiceSpec,
    node::DeviceGroup,
    service::{DeviceConstraint, DeviceRequest},
    units::{GIB, MIB},
};
use proptest::{
    collection::vec,
    option,
    prelude::*,
    sample::{select, subsequence},
};

/// The number of node names.
pub(super) const NODES: u8 = 9;

/// A large value whose `Debug` shows only the lines that differ from the plainest value, so a failing case fits a
/// screen.
#[derive(Clone)]
pub(super) struct Terse<T>(pub(super) T);

/// Types with a plainest value.
pub(super) trait Plain: fmt::Debug {
    fn plainest() -> Self;
}

impl Plain for Box<Node> {
    fn plainest() -> Self {
        Self::new(plain_node())
    }
}

impl Plain for Arc<ServiceSpec> {
    fn plainest() -> Self {
        Self::default()
    }
}

impl<T: Plain> fmt::Debug for Terse<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = format!("{:#?}", T::plainest());
        let plain: BTreeSet<&str> = plain.lines().collect();
        let mine = format!("{:#?}", self.0);
        let news = mine.lines().filter(|line| !plain.contains(line)).map(str::trim);
        write!(f, "<{}>", news.collect::<Vec<_>>().join(" "))
    }
}

pub(super) fn node_name(number: u8) -> NodeName {
    NodeName::from(format!("n{number}").as_str())
}

/// A node with one core and 4 GiB of memory.
pub(super) fn plain_node() -> Node {
    Node {
        drivers: BTreeSet::from([Driver::Docker]),
        capacity: Capacity { cpu_millis: 1000, memory_bytes: 4 * GIB, ..Capacity::default() },
        ..Node::new(node_name(0))
    }
}

/// A healthy node with everything else random. Most nodes are large: on small ones nothing would ever be placed.
pub(super) fn node() -> impl Strategy<Value = Node> {
    let labels = (label("zone", &["a", "b", "c"]), label("rack", &["1", "2"]), label("disk", &["ssd", "SSD", "hdd"]));
    let kind =
        (select(vec!["amd64", "x86_64", "arm64"]), drivers(), any::<bool>(), any::<bool>(), prop::bool::weighted(0.1));
    let room = (
        select(vec![0_u64, 1000, 4000, 4000, 16_000]),
        select(vec![0_u64, 256, 512, 1024, 4096, 4096, 16_384]),
        select(vec![0_u64, 0, 128]),
        option::weighted(0.3, select(vec![0_u64, 4, 9, 40])),
        0_u64..3,
        option::weighted(0.3, 0_u64..8),
        subsequence(device_groups(), 0..3),
    );
    (labels, kind, room).prop_map(|((zone, rack, disk), (arch, drivers, plugin, manager, other_pool), room)| {
        let (cpu_millis, memory_mib, reserved_mib, disk_gib, gpus, addresses, device_groups) = room;
        Node {
            labels: [zone, rack].into_iter().flatten().collect(),
            engine_labels: disk.into_iter().collect(),
            role: if manager { ConstraintRole::Manager } else { ConstraintRole::Worker },
            pool: PoolName::from(if other_pool { "batch" } else { "default" }),
            platform: Platform::new("linux", arch),
            drivers,
            plugins: plugin.then(|| "volume/nfs:latest".to_owned()).into_iter().collect(),
            capacity: Capacity {
                cpu_millis,
                memory_bytes: memory_mib * MIB,
                disk_bytes: disk_gib.map(|disk| disk * GIB),
                devices: BTreeMap::from([("gpu".to_owned(), gpus)]),
                device_groups,
                addresses,
            },
            reserved: Capacity { memory_bytes: reserved_mib * MIB, ..Capacity::default() },
            ..plain_node()
        }
    })
}

/// Device groups a node may have.
fn device_groups() -> Vec<DeviceGroup> {
    let group = |vendor: &str, name: &str, count: u64, memory: &str| DeviceGroup {
        vendor: vendor.to_owned(),
        kind: "card".to_owned(),
        name: name.to_owned(),
        count,
        attributes: BTreeMap::from([("memory".to_owned(), memory.to_owned())]),
    };
    vec![group("acme", "large", 1, "40"), group("acme", "small", 3, "16"), group("zeta", "large", 2, "40")]
}

/// Device requests, each served by one or more of those groups.
pub(super) fn device_request() -> impl Strategy<Value = DeviceRequest> {
    let ids =
        vec![(None, None), (None, None), (Some("acme"), None), (Some("acme"), Some("small")), (Some("zeta"), None)];
    let large =
        DeviceConstraint { attribute: "memory".to_owned(), operator: Operator::GreaterOrEqual, value: "40".to_owned() };
    (select(ids), 1_u64..3, option::weighted(0.3, Just(large))).prop_map(|((vendor, name), count, constraint)| {
        DeviceRequest {
            vendor: vendor.map(str::to_owned),
            kind: "card".to_owned(),
            name: name.map(str::to_owned),
            count,
            constraints: constraint.into_iter().collect(),
            affinities: Vec::new(),
        }
    })
}

fn label(name: &'static str, values: &'static [&'static str]) -> impl Strategy<Value = Option<(String, String)>> {
    option::weighted(0.8, select(values)).prop_map(move |value| value.map(|value| (name.to_owned(), value.to_owned())))
}

fn drivers() -> impl Strategy<Value = BTreeSet<Driver>> {
    let sets = vec![
        vec![Driver::Docker],
        vec![Driver::Docker],
        vec![Driver::Docker, Driver::Microvm],
        vec![Driver::Docker, Driver::Exec],
        vec![Driver::Exec],
    ];
    select(sets).prop_map(BTreeSet::from_iter)
}

/// A constraint on a node.
pub(super) fn constraint() -> impl Strategy<Value = Constraint> {
    let label = |name: &str| Attribute::Label(name.to_owned());
    let one = |attribute: Attribute, operator: Operator, value: &str| Constraint {
        attribute,
        operator,
        value: value.to_owned(),
    };
    select(vec![
        one(label("zone"), Operator::Equal, "A"),
        one(label("zone"), Operator::NotEqual, "a"),
        one(label("zone"), Operator::In, "a, b"),
        one(label("rack"), Operator::IsSet, ""),
        one(label("rack"), Operator::IsNotSet, ""),
        one(Attribute::EngineLabel("disk".to_owned()), Operator::Equal, "ssd"),
        one(Attribute::Role, Operator::Equal, "worker"),
        one(Attribute::Arch, Operator::Equal, "amd64"),
        one(Attribute::Hostname, Operator::Equal, "N1"),
        one(Attribute::Hostname, Operator::NotEqual, "n2"),
        one(Attribute::Id, Operator::In, "n1,n3,n5"),
    ])
}

/// Levels of a spread tree, one of them a label that no node has.
pub(super) fn preferences() -> impl Strategy<Value = Vec<Attribute>> {
    let levels = vec![
        Attribute::Label("zone".to_owned()),
        Attribute::Label("zone".to_owned()),
        Attribute::Label("rack".to_owned()),
        Attribute::Label("nowhere".to_owned()),
        Attribute::EngineLabel("disk".to_owned()),
        Attribute::Role,
        Attribute::Hostname,
    ];
    vec(select(levels), 0..4)
}
