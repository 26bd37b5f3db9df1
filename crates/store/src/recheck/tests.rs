//! Plans made from a state that has moved on.

use std::{collections::BTreeSet, net::Ipv6Addr, sync::Arc};

use longshore_model::{
    Capacity, Command, DeploymentSpec, Generation, GroupKey, GroupPlan, Health, Intent, NamespaceName, Node,
    NodeNumber, Placement, Plan, PlanItem, Platform, PoolName, Reason, Role, ServiceSpec, SlotIndex, SlotKey, Terms,
    Time, VolumeKey,
    node::{Overlay, UseDegraded},
    replica::{HeldVolume, HostPort},
    service::Protocol,
    volume::Sharing,
};

use super::recheck;
use crate::State;

pub(super) const GIB: u64 = 1 << 30;

pub(super) fn group(service: &str) -> GroupKey {
    GroupKey { namespace: NamespaceName::default_namespace(), deployment: "shop".into(), service: service.into() }
}

pub(super) fn cluster(nodes: &[&str]) -> State {
    let mut state = State::default();
    for name in nodes {
        let node = Node {
            name: (*name).into(),
            number: NodeNumber(0),
            ip: None,
            labels: std::collections::BTreeMap::new(),
            engine_labels: std::collections::BTreeMap::new(),
            role: Role::Worker,
            pool: PoolName::from("default"),
            platform: Platform::new("linux", "amd64"),
            drivers: BTreeSet::new(),
            plugins: BTreeSet::new(),
            capacity: Capacity { memory_bytes: 2 * GIB, ..Capacity::default() },
            reserved: Capacity::default(),
            intent: Intent::Active,
            health: Health::Ready,
            use_degraded: UseDegraded::No,
            overlay: Overlay::Reachable,
            health_since: Time(0),
            confirmed_lost: None,
            drain: None,
            removed_at: None,
        };
        state.apply(Command::Join(Box::new(node))).unwrap();
    }
    let services =
        ["web", "db"].map(|name| (name.into(), Arc::new(ServiceSpec { replicas: 9, ..ServiceSpec::default() })));
    let spec = DeploymentSpec { services: services.into(), ..DeploymentSpec::default() };
    let namespace = NamespaceName::default_namespace();
    state.apply(Command::Apply { namespace, deployment: "shop".into(), spec: Box::new(spec) }).unwrap();
    state
}

fn place(index: u32, node: &str, address: u16) -> PlanItem {
    PlanItem::Place(Placement {
        slot: SlotKey::Index(SlotIndex(index)),
        generation: Generation(1),
        node: node.into(),
        address: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, address),
        new_volumes: Vec::new(),
        devices: longshore_model::device::TakenDevices::default(),
        terms: None,
        moved: None,
    })
}

fn plan(service: &str, terms: Terms, items: Vec<PlanItem>) -> Plan {
    Plan { groups: vec![GroupPlan { group: group(service), terms: Arc::new(terms), items }], ..Plan::default() }
}

/// What is dropped of a plan, after another was carried out first.
fn dropped_after(first: Plan, mut second: Plan) -> Vec<Reason> {
    let mut state = cluster(&["a", "b"]);
    state.apply(Command::Commit(Box::new(first))).unwrap();
    recheck(&state, &mut second).into_iter().map(|item| item.reason).collect()
}

fn memory(bytes: u64) -> Terms {
    Terms { memory_bytes: bytes, ..Terms::default() }
}

#[test]
fn a_plan_that_fits_is_left_as_it_was() {
    let mut plan = plan("web", memory(GIB), vec![place(0, "a", 1), place(1, "a", 2), place(2, "b", 3)]);
    let before = plan.clone();
    assert_eq!(recheck(&cluster(&["a", "b"]), &mut plan), []);
    assert_eq!(plan, before);
}

#[test]
fn memory_taken_meanwhile_and_within_the_plan_itself_both_count() {
    let first = plan("db", memory(GIB), vec![place(0, "a", 1)]);
    let second = plan("web", memory(GIB), vec![place(0, "a", 2), place(1, "a", 3), place(2, "b", 4)]);
    assert_eq!(dropped_after(first, second), [Reason::NoCapacityMemory]);
}

#[test]
fn a_host_port_taken_meanwhile_is_noticed_on_its_node_only() {
    let terms = Terms { host_ports: vec![HostPort { protocol: Protocol::Tcp, port: 80 }], ..Terms::default() };
    let first = plan("db", terms.clone(), vec![place(0, "a", 1)]);
    let second = plan("web", terms, vec![place(0, "a", 2), place(1, "b", 3)]);
    assert_eq!(dropped_after(first, second), [Reason::HostPortInUse]);
}

#[test]
fn an_address_is_given_to_one() {
    let first = plan("db", memory(0), vec![place(0, "a", 1)]);
    let second = plan("web", memory(0), vec![place(0, "b", 1), place(1, "b", 2), place(2, "b", 2)]);
    assert_eq!(dropped_after(first, second), [Reason::IpamExhausted, Reason::IpamExhausted]);
}

#[test]
fn a_volume_has_one_home_and_an_exclusive_one_holder() {
    let key = VolumeKey { namespace: NamespaceName::default_namespace(), name: "shop_data".into() };
    let held = |sharing| Terms { volumes: vec![HeldVolume { key: key.clone(), sharing }], ..Terms::default() };
    let mut first = plan("db", held(Sharing::Deployment), vec![place(0, "a", 1)]);
    if let PlanItem::Place(placement) = &mut first.groups[0].items[0] {
        placement.new_volumes = vec![key.clone()];
    }
    let elsewhere = plan("web", held(Sharing::Deployment), vec![place(0, "b", 2)]);
    assert_eq!(dropped_after(first.clone(), elsewhere), [Reason::VolumeLocalityNoNode]);
    let beside = plan("web", held(Sharing::Deployment), vec![place(0, "a", 2)]);
    assert_eq!(dropped_after(first.clone(), beside), []);
    let alone = plan("web", held(Sharing::Exclusive), vec![place(0, "a", 2)]);
    assert_eq!(dropped_after(first, alone), [Reason::VolumeInUse]);
}

#[test]
fn a_node_that_left_takes_nothing() {
    let mut late = plan("web", memory(0), vec![place(0, "gone", 1)]);
    let dropped = recheck(&cluster(&["a"]), &mut late);
    assert_eq!(dropped.len(), 1);
    assert!(late.is_empty());
}
