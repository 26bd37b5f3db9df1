//! Devices by type, vendor, model and attributes. The cases are from Nomad's checker and allocator, except two: single
//! devices have no id here, and a group counts only healthy devices.

use std::collections::BTreeMap;

use longshore_model::{
    ClusterConfig, Command, DeploymentSpec, NamespaceName, Operator, ServiceName, ServiceSpec,
    device::TakenDevices,
    node::DeviceGroup,
    service::{DeviceAffinity, DeviceConstraint, DeviceRequest, Resources},
};
use proptest::{collection::vec, prelude::*};

use super::{World, key, node};
use crate::{View, proptest_config::cases};

impl World {
    fn with_devices(nodes: &[(&str, Vec<DeviceGroup>)]) -> Self {
        let mut world = Self::default();
        for (name, groups) in nodes {
            let mut node = node(name, "");
            node.capacity.device_groups.clone_from(groups);
            world.run(Command::Join(Box::new(node)));
        }
        world
    }

    /// Applies a manifest: each service with its replicas, priority and device requests.
    fn request(&mut self, services: &[(&str, u32, u8, Vec<DeviceRequest>)]) {
        let service = |(name, replicas, priority, requests): &(&str, u32, u8, Vec<DeviceRequest>)| {
            let resources = Resources { device_requests: requests.clone(), ..Resources::default() };
            let spec = ServiceSpec { replicas: *replicas, priority: *priority, resources, ..ServiceSpec::default() };
            (ServiceName::from(*name), spec.into())
        };
        let spec = DeploymentSpec { services: services.iter().map(service).collect(), ..DeploymentSpec::default() };
        let (namespace, deployment) = (NamespaceName::default_namespace(), "shop".into());
        self.run(Command::Apply {
            namespace,
            deployment,
            spec: Box::new(spec),
            rerun: longshore_model::command::Rerun::IfChanged,
        });
    }

    /// The devices of the service's replicas, in slot order.
    fn taken(&self, service: &str) -> Vec<TakenDevices> {
        let slots = self.state.group(&key(service)).into_iter().flat_map(|group| group.slots.values());
        slots.flat_map(|slot| &slot.replicas).map(|replica| replica.assignment.devices.clone()).collect()
    }
}

fn group(id: &str, count: u64, attributes: &[(&str, &str)]) -> DeviceGroup {
    let mut parts = id.split('/').map(str::to_owned);
    let mut part = || parts.next().unwrap_or_default();
    let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    DeviceGroup { vendor: part(), kind: part(), name: part(), count, attributes }
}

fn request(id: &str, count: u64, constraints: &[(&str, Operator, &str)]) -> DeviceRequest {
    let parts: Vec<String> = id.split('/').map(str::to_owned).collect();
    let (vendor, kind, name) = match parts.as_slice() {
        [kind] => (None, kind, None),
        [vendor, kind, rest @ ..] => (Some(vendor.clone()), kind, rest.first().cloned()),
        [] => unreachable!("splitting gives at least one part"),
    };
    let constraint = |(attribute, operator, value): &(&str, Operator, &str)| DeviceConstraint {
        attribute: (*attribute).to_owned(),
        operator: *operator,
        value: (*value).to_owned(),
    };
    let (constraints, affinities) = (constraints.iter().map(constraint).collect(), Vec::new());
    DeviceRequest { vendor, kind: kind.clone(), name, count, constraints, affinities }
}

/// The same request with affinities for device attributes.
fn with_affinities(request: DeviceRequest, likes: &[(&str, Operator, &str, i32)]) -> DeviceRequest {
    let affinity = |(attribute, operator, value, weight): &(&str, Operator, &str, i32)| DeviceAffinity {
        matches: DeviceConstraint {
            attribute: (*attribute).to_owned(),
            operator: *operator,
            value: (*value).to_owned(),
        },
        weight: *weight,
    };
    DeviceRequest { affinities: likes.iter().map(affinity).collect(), ..request }
}

fn a100() -> DeviceGroup {
    group("nvidia/gpu/a100", 2, &[("memory", "40"), ("cuda", "12.2")])
}

fn t4() -> DeviceGroup {
    group("nvidia/gpu/t4", 4, &[("memory", "16"), ("cuda", "11.8")])
}

fn fpga() -> DeviceGroup {
    group("intel/fpga/f100", 1, &[])
}

/// Places one replica with these requests on a node with these groups; returns its devices, or why it waits.
fn outcome(groups: &[DeviceGroup], requests: &[DeviceRequest]) -> String {
    let mut world = World::with_devices(&[("n", groups.to_vec())]);
    world.request(&[("web", 1, 50, requests.to_vec())]);
    match world.taken("web").first() {
        Some(taken) => taken.iter().map(|(id, count)| format!("{count} {id}")).collect::<Vec<_>>().join(", "),
        None => world.waiting("web").join("; "),
    }
}

#[test]
fn a_request_names_a_type_a_vendor_or_a_model() {
    let all = [a100(), t4(), fpga()];
    for (asked, expected) in [
        (request("gpu", 1, &[]), "1 nvidia/gpu/a100"),
        (request("fpga", 1, &[]), "1 intel/fpga/f100"),
        (request("nvidia/gpu", 1, &[]), "1 nvidia/gpu/a100"),
        (request("nvidia/gpu/t4", 1, &[]), "1 nvidia/gpu/t4"),
        (request("NVIDIA/gpu/T4", 1, &[]), "1 nvidia/gpu/t4"),
        (request("tpu", 1, &[]), "1 wait: no_capacity_device; needs 1 tpu, best has 0 free on n"),
        (request("intel/gpu", 1, &[]), "1 wait: no_capacity_device; needs 1 intel/gpu, best has 0 free on n"),
        (
            request("nvidia/gpu/h100", 1, &[]),
            "1 wait: no_capacity_device; needs 1 nvidia/gpu/h100, best has 0 free on n",
        ),
    ] {
        assert_eq!(outcome(&all, std::slice::from_ref(&asked)), expected, "{asked}");
    }
    assert_eq!(
        outcome(&[], &[request("gpu", 1, &[])]),
        "1 wait: no_capacity_device; needs 1 gpu, best has 0 free on n"
    );
}

#[test]
fn one_group_must_have_enough_devices() {
    let all = [a100(), t4()];
    assert_eq!(outcome(&all, &[request("gpu", 2, &[])]), "2 nvidia/gpu/a100");
    assert_eq!(outcome(&all, &[request("gpu", 3, &[])]), "3 nvidia/gpu/t4");
    let too_many = "1 wait: no_capacity_device; needs 5 gpu, best has 4 free on n";
    assert_eq!(outcome(&all, &[request("gpu", 5, &[])]), too_many);
    let too_many = "1 wait: no_capacity_device; needs 3 nvidia/gpu/a100, best has 2 free on n";
    assert_eq!(outcome(&all, &[request("nvidia/gpu/a100", 3, &[])]), too_many);
}

#[test]
fn constraints_select_groups_with_every_kind_of_operator() {
    let all = [a100(), t4()];
    for (constraint, expected) in [
        (("memory", Operator::GreaterOrEqual, "40"), "1 nvidia/gpu/a100"),
        (("memory", Operator::Less, "20"), "1 nvidia/gpu/t4"),
        (("cuda", Operator::Version, ">= 11.0, < 12.0"), "1 nvidia/gpu/t4"),
        (("name", Operator::Equal, "T4"), "1 nvidia/gpu/t4"),
        (("name", Operator::Regexp, "^t"), "1 nvidia/gpu/t4"),
        (("name", Operator::In, "h100, t4"), "1 nvidia/gpu/t4"),
        (("vendor", Operator::Equal, "nvidia"), "1 nvidia/gpu/a100"),
        (("mig", Operator::IsNotSet, ""), "1 nvidia/gpu/a100"),
        (("mig", Operator::NotEqual, "on"), "1 nvidia/gpu/a100"),
        (("mig", Operator::IsSet, ""), "1 wait: no_capacity_device; n has no gpu with mig is_set, needs 1"),
        (("memory", Operator::Greater, "40"), "1 wait: no_capacity_device; n has no gpu with memory > 40, needs 1"),
    ] {
        assert_eq!(outcome(&all, &[request("gpu", 1, &[constraint])]), expected, "{constraint:?}");
    }
}

#[test]
fn attributes_with_units_compare_across_units() {
    let large = group("nvidia/gpu/a100", 2, &[("memory", "40 GiB"), ("clock", "1.4 GHz")]);
    let small = group("nvidia/gpu/t4", 4, &[("memory", "16384 MiB"), ("clock", "1590 MHz")]);
    for (constraint, expected) in [
        (("memory", Operator::Greater, "16 GiB"), "1 nvidia/gpu/a100"),
        (("memory", Operator::Less, "40 GiB"), "1 nvidia/gpu/t4"),
        (("memory", Operator::Equal, "16 GiB"), "1 nvidia/gpu/t4"),
        (("memory", Operator::NotEqual, "40960 MiB"), "1 nvidia/gpu/t4"),
        (("clock", Operator::GreaterOrEqual, "1.5 GHz"), "1 nvidia/gpu/t4"),
        (("memory", Operator::Greater, "1"), "1 wait: no_capacity_device; n has no gpu with memory > 1, needs 1"),
    ] {
        let all = [large.clone(), small.clone()];
        assert_eq!(outcome(&all, &[request("gpu", 1, &[constraint])]), expected, "{constraint:?}");
    }
}

#[test]
fn the_matching_group_with_the_highest_affinity_is_taken() {
    let all = [a100(), t4()];
    let any = || request("gpu", 1, &[]);
    assert_eq!(outcome(&all, &[with_affinities(any(), &[("memory", Operator::Less, "20", 50)])]), "1 nvidia/gpu/t4");
    assert_eq!(outcome(&all, &[with_affinities(any(), &[("memory", Operator::Less, "20", -50)])]), "1 nvidia/gpu/a100");
    assert_eq!(outcome(&all, &[with_affinities(any(), &[("memory", Operator::Less, "4", 50)])]), "1 nvidia/gpu/a100");
    let most = with_affinities(request("gpu", 3, &[]), &[("memory", Operator::Greater, "20", 100)]);
    assert_eq!(outcome(&all, &[most]), "3 nvidia/gpu/t4", "a preferred group still needs enough devices");
}

#[test]
fn under_binpack_the_node_with_the_highest_device_affinity_ranks_first() {
    let mut world = World::with_devices(&[("a", vec![t4()]), ("b", vec![a100()]), ("c", vec![t4(), a100()])]);
    let asked = with_affinities(
        request("gpu", 1, &[]),
        &[("memory", Operator::Greater, "20", 60), ("cuda", Operator::Less, "12", -40)],
    );
    let resources = Resources { device_requests: vec![asked], ..Resources::default() };
    let mut spec = ServiceSpec { resources, ..ServiceSpec::default() };
    spec.placement.strategy = longshore_model::Strategy::Binpack;
    let spec =
        DeploymentSpec { services: [(ServiceName::from("web"), spec.into())].into(), ..DeploymentSpec::default() };
    let (namespace, deployment) = (NamespaceName::default_namespace(), "shop".into());
    world.run(Command::Apply {
        namespace,
        deployment,
        spec: Box::new(spec),
        rerun: longshore_model::command::Rerun::IfChanged,
    });
    assert_eq!(world.nodes_of("web"), ["b"]);
    assert_eq!(world.taken("web"), [BTreeMap::from([("nvidia/gpu/a100".to_owned(), 1)])]);
}

#[test]
fn a_matching_group_with_too_few_devices_is_refused() {
    let asked = request("gpu", 3, &[("memory", Operator::GreaterOrEqual, "40"), ("cuda", Operator::IsSet, "")]);
    let why = "1 wait: no_capacity_device; \
               needs 3 gpu with memory >= 40 and cuda is_set, best has 2 free on n";
    assert_eq!(outcome(&[a100(), t4()], &[asked]), why);
}

#[test]
fn the_requests_of_one_replica_share_the_groups() {
    let all = [a100(), t4()];
    let (any, model) = (request("gpu", 1, &[]), request("nvidia/gpu/a100", 2, &[]));
    // A greedy first request would take an a100.
    assert_eq!(outcome(&all, &[any.clone(), model.clone()]), "2 nvidia/gpu/a100, 1 nvidia/gpu/t4");
    assert_eq!(outcome(&all, &[model.clone(), any.clone()]), "2 nvidia/gpu/a100, 1 nvidia/gpu/t4");
    assert_eq!(outcome(&all, &[any.clone(), any.clone(), any.clone()]), "2 nvidia/gpu/a100, 1 nvidia/gpu/t4");
    let why = "1 wait: no_capacity_device; needs 2 nvidia/gpu/a100, best has 1 free on n";
    assert_eq!(outcome(&[a100()], &[any, model]), why);
}

#[test]
fn reserved_devices_and_duplicate_groups_are_not_allocated() {
    let mut world = World::default();
    let mut machine = node("n", "");
    machine.capacity.device_groups = vec![a100(), a100()];
    machine.reserved.device_groups = vec![group("nvidia/gpu/a100", 1, &[])];
    world.run(Command::Join(Box::new(machine)));
    world.request(&[("web", 3, 50, vec![request("gpu", 1, &[])])]);
    assert_eq!(world.taken("web"), [BTreeMap::from([("nvidia/gpu/a100".to_owned(), 1)])]);
}

#[test]
fn a_device_is_free_again_only_after_its_holder_stopped() {
    let mut world = World::with_devices(&[("n", vec![fpga()])]);
    let asked = vec![request("fpga", 1, &[])];
    world.request(&[("first", 1, 50, asked.clone())]);
    world.request(&[("second", 1, 50, asked)]);
    assert_eq!(world.waiting("second"), ["1 wait: no_capacity_device; needs 1 fpga, best has 0 free on n"]);
    world.finish_stopping();
    assert_eq!(world.nodes_of("second"), ["n"]);
}

#[test]
fn preemption_displaces_only_holders_of_the_devices() {
    let mut world = World::with_devices(&[("n", vec![a100(), t4()])]);
    world.run(Command::Configure(preempting()));
    let low = ("low", 1, 10, vec![request("nvidia/gpu/a100", 2, &[])]);
    let other = ("other", 2, 10, vec![request("nvidia/gpu/t4", 1, &[])]);
    world.request(&[low.clone(), other.clone()]);
    let high = ("high", 1, 90, vec![request("gpu", 2, &[("memory", Operator::GreaterOrEqual, "40")])]);
    world.request(&[low, other, high]);
    assert_eq!(world.nodes_of("low"), [""; 0]);
    assert_eq!(world.nodes_of("other"), ["n", "n"]);
    world.finish_stopping();
    assert_eq!(world.taken("high"), [BTreeMap::from([("nvidia/gpu/a100".to_owned(), 2)])]);
}

#[test]
fn a_victim_frees_capacity_for_one_replica_only() {
    let mut world = World::with_devices(&[("n", vec![fpga()])]);
    world.run(Command::Configure(preempting()));
    let asked = vec![request("fpga", 1, &[])];
    world.request(&[("low", 1, 10, asked.clone())]);
    world.request(&[("low", 1, 10, asked.clone()), ("high", 2, 90, asked)]);
    // The pass that searched for victims rolled back all its speculative reservations.
    assert_eq!(allocated(&world.view), allocated(&rebuilt(&world)));
    world.finish_stopping();
    assert_eq!((world.nodes_of("high").len(), world.nodes_of("low").len()), (1, 0));
    assert_eq!(allocated(&world.view), allocated(&rebuilt(&world)));
}

fn rebuilt(world: &World) -> View {
    let mut fresh = View::default();
    for event in world.state.events() {
        fresh.apply(&event);
    }
    fresh
}

/// The devices allocated in a view, by node and group.
fn allocated(view: &View) -> BTreeMap<(String, String), u64> {
    let used = view.nodes.devices.iter();
    used.map(|((node, id), used)| ((view.nodes.node(*node).name.to_string(), id.clone()), *used)).collect()
}

fn preempting() -> ClusterConfig {
    ClusterConfig { preemption: longshore_model::settings::Preemption::On, ..ClusterConfig::default() }
}

fn any_group() -> impl Strategy<Value = DeviceGroup> {
    let id = prop::sample::select(vec!["a/gpu/x", "a/gpu/y", "b/gpu/x", "b/fpga/z"]);
    (id, 0..4_u64, prop::sample::select(vec!["8", "16", "40"]))
        .prop_map(|(id, count, memory)| group(id, count, &[("memory", memory)]))
}

fn any_request() -> impl Strategy<Value = DeviceRequest> {
    let id = prop::sample::select(vec!["gpu", "a/gpu", "a/gpu/y", "b/gpu/x", "fpga"]);
    let memory = prop::option::of(prop::sample::select(vec!["16", "40"]));
    (id, 1..3_u64, memory).prop_map(|(id, count, memory)| {
        let least = memory.map(|memory| ("memory", Operator::GreaterOrEqual, memory));
        request(id, count, least.as_slice())
    })
}

/// Every step of the test cluster commits its passes, so a group overcommitted within a pass is found here.
fn assert_nothing_is_overcommitted(world: &World, nodes: &[Vec<DeviceGroup>]) {
    let mut used: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (_, _, replica) in world.state.replicas() {
        let assignment = &replica.assignment;
        for (id, count) in &assignment.devices {
            *used.entry((assignment.node.to_string(), id.clone())).or_default() += count;
        }
        let asked: u64 = assignment.reservation.device_requests.iter().map(|request| request.count).sum();
        assert_eq!(assignment.devices.values().sum::<u64>(), asked, "every request is served in full");
    }
    for ((node, id), used) in used {
        let groups = &nodes[node.trim_start_matches('n').parse::<usize>().unwrap()];
        let total = groups.iter().find(|group| group.id() == id).map_or(0, |group| group.count);
        assert!(used <= total, "{node} has {used} of {total} {id} allocated");
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn no_group_is_overcommitted_and_a_rebuilt_view_has_the_same_allocations(
        nodes in vec(vec(any_group(), 0..4), 1..4),
        first in vec(any_request(), 0..3),
        second in vec(any_request(), 0..4),
        counts in (0..5_u32, 0..5_u32, 0..5_u32),
    ) {
        let names: Vec<String> = (0..nodes.len()).map(|at| format!("n{at}")).collect();
        let joined: Vec<_> = names.iter().map(String::as_str).zip(nodes.iter().cloned()).collect();
        let mut world = World::with_devices(&joined);
        world.run(Command::Configure(preempting()));
        world.request(&[("first", counts.0, 20, first.clone()), ("second", counts.1, 50, second.clone())]);
        assert_nothing_is_overcommitted(&world, &nodes);
        world.request(&[("first", counts.2, 20, second), ("second", counts.0, 50, first)]);
        assert_nothing_is_overcommitted(&world, &nodes);
        world.finish_stopping();
        assert_nothing_is_overcommitted(&world, &nodes);
        prop_assert_eq!(allocated(&world.view), allocated(&rebuilt(&world)));
    }
}
