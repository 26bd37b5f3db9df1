//! What is rendered for a small cluster, as golden files, and that differences lead from one table to the next.

use std::collections::BTreeSet;

use longshore_model::{AddressPlan, Attempt, Cursor, Generation, GroupKey, NodeName, StateIndex};

use super::*;
use crate::{
    MeshIdentity, NetworkFeed, NetworkNode, NetworkReplica, NetworkService, NetworkSettings, NetworkState, Scope,
    ScopeName,
};

const CLUSTER: &str = "c0ffee00-1111-4222-8333-444455556666";

fn plan() -> AddressPlan {
    AddressPlan { prefix: "fd4c:6f6e:6773::".parse().unwrap(), pool: "10.128.0.0/10".parse().unwrap() }
}

fn machine(nodes: &[&str]) -> Machine {
    let local_nodes: BTreeSet<NodeName> = nodes.iter().map(|node| NodeName::from(*node)).collect();
    Machine { name: nodes[0].into(), local_nodes, underlay_mtu: 1500 }
}

fn node(name: &str, block: u32) -> NetworkNode {
    let mesh = Some(MeshIdentity { public_key: format!("key of {name}"), port: 51820 });
    NetworkNode { name: name.into(), block: Some(block), ip: None, mesh, is_up: true }
}

fn scope(name: &str) -> Scope {
    let name = ScopeName(format!("default/{name}"));
    Scope { name, internal: false, ipv6: false, aliases: BTreeSet::new() }
}

fn internal_scope(name: &str) -> Scope {
    Scope { internal: true, ..scope(name) }
}

/// A service with replicas given as node, block and host number.
fn service(name: &str, vip: u32, scopes: &[Scope], replicas: &[(&str, u32, u64)]) -> NetworkService {
    let group = GroupKey { namespace: "default".into(), deployment: "shop".into(), service: name.into() };
    let replica = |(number, (node, block, host)): (usize, &(&str, u32, u64))| NetworkReplica {
        id: format!("shop-{name}-{number}"),
        generation: Generation(1),
        attempt: Attempt(0),
        node: (*node).into(),
        address: plan().replica_ipv6(*block, *host),
        serves: true,
    };
    let replicas = replicas.iter().enumerate().map(replica).collect();
    NetworkService { vip: Some(vip), scopes: scopes.to_vec(), replicas, ..NetworkService::new(group) }
}

fn state(services: Vec<NetworkService>) -> NetworkState {
    let mut state = NetworkState::default();
    state.apply(NetworkFeed::Snapshot {
        cursor: Cursor { incarnation: 0, index: StateIndex(1) },
        services,
        nodes: vec![node("a", 1), node("b", 2), node("c", 3)],
        settings: Some(NetworkSettings {
            cluster: CLUSTER.to_owned(),
            addresses: plan(),
            mesh: MeshMode::Auto,
            mesh_port: 51820,
        }),
    });
    state
}

/// Two services that share a scope, one of them also in an internal one, and a service of another deployment.
fn shop() -> Vec<NetworkService> {
    vec![
        service("web", 1, &[scope("shop/front")], &[("a", 1, 1), ("b", 2, 1)]),
        service("api", 2, &[scope("shop/front"), internal_scope("shop/back")], &[("a", 1, 2)]),
        service("db", 3, &[internal_scope("shop/back")], &[("b", 2, 2)]),
        service("other", 4, &[scope("other/default")], &[("c", 3, 1)]),
    ]
}

#[test]
fn a_table_has_the_scopes_with_a_member_on_this_machine() {
    let rendered = render(&state(shop()), &machine(&["a"])).unwrap();
    insta::assert_snapshot!("table_of_a", rendered.ruleset.whole());
    let on_c = render(&state(shop()), &machine(&["c"])).unwrap();
    insta::assert_snapshot!("table_of_c", on_c.ruleset.whole());
}

#[test]
fn devices_routes_and_parameters_of_a_machine() {
    let rendered = render(&state(shop()), &machine(&["a"])).unwrap();
    insta::assert_debug_snapshot!("devices_of_a", (&rendered.names, &rendered.bridges, &rendered.routes));
    let parameters: Vec<String> =
        rendered.parameters.iter().map(|Parameter { path, value }| format!("{path} = {value}")).collect();
    insta::assert_snapshot!("parameters_of_a", parameters.join("\n"));
}

#[test]
fn nodes_of_one_machine_have_a_bridge_each_and_no_route_between_them() {
    let rendered = render(&state(shop()), &machine(&["a", "b"])).unwrap();
    let names: BTreeSet<&String> = rendered.bridges.iter().map(|bridge| &bridge.name).collect();
    assert_eq!(names.len(), 2);
    let over_mesh =
        |route: &&Route| matches!(&route.kind, RouteKind::Device { device, .. } if *device == rendered.names.mesh);
    let over_mesh: Vec<String> =
        rendered.routes.iter().filter(over_mesh).map(|route| route.destination.to_string()).collect();
    assert_eq!(over_mesh, ["10.128.12.0/22", "fd4c:6f6e:6773::3/128", "fd4c:6f6e:6773:3::/64"]);
}

#[test]
fn names_fit_and_differ_by_cluster_and_node() {
    let first = bridge_name(CLUSTER, &"a".into());
    assert!(first.len() <= 15 && first.starts_with("lsb"), "{first}");
    assert_ne!(first, bridge_name("another", &"a".into()));
    assert_ne!(first, bridge_name(CLUSTER, &"b".into()));
    assert_eq!(device_names(CLUSTER, &"a".into()).mesh.len(), 11);
}

#[test]
fn one_changed_replica_is_a_few_elements() {
    let before = render(&state(shop()), &machine(&["a"])).unwrap().ruleset;
    let mut services = shop();
    services[0] = service("web", 1, &[scope("shop/front")], &[("a", 1, 1), ("c", 3, 7)]);
    services[2].replicas[0].serves = false;
    let after = render(&state(services), &machine(&["a"])).unwrap().ruleset;
    insta::assert_snapshot!("delta_of_one_replica", after.delta(&before).unwrap());
    assert_eq!(after.delta(&after).as_deref(), Some(""));
}

#[test]
fn a_service_that_comes_or_goes_brings_its_sets_and_chains() {
    let few = render(&state(shop()[..1].to_vec()), &machine(&["a"])).unwrap().ruleset;
    let all = render(&state(shop()), &machine(&["a"])).unwrap().ruleset;
    insta::assert_snapshot!("delta_of_added_services", all.delta(&few).unwrap());
    insta::assert_snapshot!("delta_of_removed_services", few.delta(&all).unwrap());
}

#[test]
fn a_machine_without_a_block_takes_no_part() {
    assert_eq!(render(&state(shop()), &machine(&["z"])), None);
    assert_eq!(render(&NetworkState::default(), &machine(&["a"])), None);
}

#[test]
fn the_mtu_leaves_room_for_the_mesh() {
    assert_eq!([mtu(MeshMode::Auto, 1500), mtu(MeshMode::Off, 1500), mtu(MeshMode::Vxlan, 1300)], [1420, 1500, 1280]);
}
