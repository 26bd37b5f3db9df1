//! Plans that were made from an older state.

use std::{net::Ipv6Addr, sync::Arc};

use longshore_model::{
    Capacity, Command, DeploymentSpec, Generation, GroupKey, GroupPlan, NamespaceName, Node, Placement, Plan, PlanItem,
    Reason, Reservation, ServiceSpec, SlotIndex, SlotKey, VolumeKey,
    replica::{HeldVolume, HostPort},
    service::Protocol,
    volume::Sharing,
};

use super::drop_stale_placements;
use crate::State;

pub(super) const GIB: u64 = 1 << 30;

pub(super) fn group(service: &str) -> GroupKey {
    GroupKey { namespace: NamespaceName::default_namespace(), deployment: "shop".into(), service: service.into() }
}

pub(super) fn cluster(nodes: &[&str]) -> State {
    let mut state = State::default();
    for name in nodes {
        let capacity = Capacity { memory_bytes: 2 * GIB, ..Capacity::default() };
        let node = Node { capacity, ..crate::tests::node(name) };
        state.apply(Command::Join(Box::new(node))).unwrap();
    }
    let services =
        ["web", "db"].map(|name| (name.into(), Arc::new(ServiceSpec { replicas: 9, ..ServiceSpec::default() })));
    let spec = DeploymentSpec { services: services.into(), ..DeploymentSpec::default() };
    let namespace = NamespaceName::default_namespace();
    state
        .apply(Command::Apply {
            namespace,
            deployment: "shop".into(),
            spec: Box::new(spec),
            rerun: longshore_model::command::Rerun::IfChanged,
        })
        .unwrap();
    state
}

fn place(index: u32, node: &str, address: u16) -> PlanItem {
    PlanItem::Place(Placement {
        key: SlotKey::Index(SlotIndex(index)).generation(Generation(1)),
        node: node.into(),
        address: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, address),
        new_volumes: Vec::new(),
        devices: longshore_model::device::TakenDevices::default(),
        reservation: None,
        moved: None,
    })
}

fn plan(service: &str, reservation: Reservation, items: Vec<PlanItem>) -> Plan {
    Plan {
        groups: vec![GroupPlan { group: group(service), reservation: Arc::new(reservation), items }],
        ..Plan::default()
    }
}

/// The reasons of the placements dropped from `second` after `first` was committed.
fn dropped_after(first: Plan, mut second: Plan) -> Vec<Reason> {
    let mut state = cluster(&["a", "b"]);
    state.apply(Command::Commit(Box::new(first))).unwrap();
    drop_stale_placements(&state, &mut second).into_iter().map(|item| item.reason).collect()
}

fn memory(bytes: u64) -> Reservation {
    Reservation { memory_bytes: bytes, ..Reservation::default() }
}

#[test]
fn a_plan_that_fits_is_unchanged() {
    let mut plan = plan("web", memory(GIB), vec![place(0, "a", 1), place(1, "a", 2), place(2, "b", 3)]);
    let before = plan.clone();
    assert_eq!(drop_stale_placements(&cluster(&["a", "b"]), &mut plan), []);
    assert_eq!(plan, before);
}

#[test]
fn memory_used_since_and_by_the_plan_itself_both_count() {
    let first = plan("db", memory(GIB), vec![place(0, "a", 1)]);
    let second = plan("web", memory(GIB), vec![place(0, "a", 2), place(1, "a", 3), place(2, "b", 4)]);
    assert_eq!(dropped_after(first, second), [Reason::NoCapacityMemory]);
}

#[test]
fn a_host_port_in_use_blocks_only_its_node() {
    let reservation =
        Reservation { host_ports: vec![HostPort { protocol: Protocol::Tcp, port: 80 }], ..Reservation::default() };
    let first = plan("db", reservation.clone(), vec![place(0, "a", 1)]);
    let second = plan("web", reservation, vec![place(0, "a", 2), place(1, "b", 3)]);
    assert_eq!(dropped_after(first, second), [Reason::HostPortInUse]);
}

#[test]
fn an_address_has_one_user() {
    let first = plan("db", memory(0), vec![place(0, "a", 1)]);
    let second = plan("web", memory(0), vec![place(0, "b", 1), place(1, "b", 2), place(2, "b", 2)]);
    assert_eq!(dropped_after(first, second), [Reason::IpamExhausted, Reason::IpamExhausted]);
}

#[test]
fn a_volume_has_one_home_node_and_an_exclusive_volume_one_user() {
    let key = VolumeKey { namespace: NamespaceName::default_namespace(), name: "shop_data".into() };
    let held =
        |sharing| Reservation { volumes: vec![HeldVolume { key: key.clone(), sharing }], ..Reservation::default() };
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
fn a_placement_on_a_removed_node_is_dropped() {
    let mut late = plan("web", memory(0), vec![place(0, "gone", 1)]);
    let dropped = drop_stale_placements(&cluster(&["a"]), &mut late);
    assert_eq!(dropped.len(), 1);
    assert!(late.is_empty());
}
