//! Tests of the rebalancer: a small cluster, its pressure samples, and the result of every cycle.

mod properties;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{
    Attempt, Capacity, Event, Generation, GroupKey, NamespaceName, Node, NodeName, NodeNumber, Plan, PlanItem,
    ReplicaKey, ReplicaState, ServiceSpec, SkipReason, SlotIndex, SlotKey, StateIndex, Time,
    node::Driver,
    rebalance::{Move, Pressure, Share},
    replica::{Assignment, Details, RestartHistory},
    service::{Mount, MountSource, Resources, ServiceKind, Strategy},
    units::GIB,
};

use super::{Cycle, MeasuredUsage, Rebalancer};
use crate::View;

/// A node with four cores and 8 GiB.
pub(crate) fn node(name: &str) -> Node {
    Node {
        number: NodeNumber(u32::from(name.as_bytes()[0])),
        drivers: BTreeSet::from([Driver::Docker]),
        capacity: Capacity { cpu_millis: 4000, memory_bytes: 8 * GIB, ..Capacity::default() },
        ..Node::new(name)
    }
}

/// A service with this CPU limit per replica.
fn service(cpu_millis: u64) -> ServiceSpec {
    let resources =
        Resources { cpu_limit_millis: Some(cpu_millis), memory_limit_bytes: Some(GIB / 2), ..Resources::default() };
    ServiceSpec { resources, ..ServiceSpec::default() }
}

fn key(name: &str) -> GroupKey {
    GroupKey { namespace: NamespaceName::default_namespace(), deployment: "shop".into(), service: name.into() }
}

/// A cluster with the rebalancer of its leader.
struct World {
    view: View,
    rebalancer: Rebalancer,
    now: Time,
    /// Host number of the next address.
    hosts: u128,
}

const MINUTE: u64 = 60_000;

impl World {
    /// Nodes, and a leader elected at time zero.
    fn new(nodes: &[&str]) -> Self {
        let mut view = View::new();
        view.apply(&Event::Configured(longshore_model::ClusterConfig::default()));
        for name in nodes {
            view.apply(&Event::NodeChanged(Arc::new(node(name))));
        }
        Self { view, rebalancer: Rebalancer::new(Time(0)), now: Time(60 * MINUTE), hosts: 1 }
    }

    /// A service with replicas that have run on these nodes since time zero.
    fn run(&mut self, name: &str, spec: ServiceSpec, nodes: &[&str]) {
        let replicas = u32::try_from(nodes.len()).unwrap();
        let spec = Arc::new(ServiceSpec { replicas, ..spec });
        let mut view = std::mem::take(&mut self.view);
        view.apply(&Event::GroupChanged {
            group: key(name),
            revision: longshore_model::RevisionNumber(1),
            spec,
            next_index: SlotIndex(0),
            restart_epoch: 0,
            rollout_position: longshore_model::rollout::RolloutPosition::default(),
        });
        self.view = view;
        for (index, node) in (0_u32..).zip(nodes) {
            self.place(name, index, Generation(1), node, Time(0));
        }
    }

    fn place(&mut self, name: &str, index: u32, generation: Generation, node: &str, at: Time) {
        let (group, slot) = (key(name), SlotKey::Index(SlotIndex(index)));
        let known = self.view.group_ids[&group];
        let reservation = Arc::clone(
            &crate::request::PlacementRequest::new(&self.view, known, at, crate::request::Counts::default())
                .reservation,
        );
        let number = u128::from(u32::from(node.as_bytes()[0]));
        let prefix = u128::from(self.view.config.cluster_prefix);
        let address = (prefix | number << 64 | self.hosts).into();
        self.hosts += 1;
        let devices = longshore_model::device::TakenDevices::new();
        let assignment = Assignment { node: node.into(), address, placed_at: at, reservation, devices };
        self.view.apply(&Event::Placed { key: group.replica(&slot, generation), assignment });
        self.seen(&group, &slot, generation, ReplicaState::Running, at);
    }

    fn seen(&mut self, group: &GroupKey, slot: &SlotKey, generation: Generation, state: ReplicaState, at: Time) {
        let (attempt, code, details, failures) = (Attempt(0), None, Details::new(), 0);
        self.view.apply(&Event::Observed {
            key: group.replica(slot, generation),
            attempt,
            state,
            code,
            details,
            failures,
            history: RestartHistory::default(),
            at,
            replaced_by: None,
        });
    }

    fn sample(&mut self, node: &str, cpu: i64, memory: i64) {
        let pressure = Pressure { cpu: Share(cpu), memory: Share(memory) };
        self.rebalancer.sample(&node.into(), self.now, pressure);
    }

    /// Advances 30 seconds, samples the nodes and runs a cycle.
    fn cycle(&mut self, samples: &[(&str, i64)]) -> Cycle {
        self.now = Time(self.now.0 + 30_000);
        for (node, cpu) in samples {
            self.sample(node, *cpu, 100_000);
        }
        self.rebalancer.cycle(&mut self.view, StateIndex(0), self.now)
    }

    /// Runs two cycles and asserts that the first does nothing.
    fn two_cycles(&mut self, samples: &[(&str, i64)]) -> Cycle {
        assert_eq!(summary(&self.cycle(samples)), Vec::<String>::new(), "one hot cycle is not a trend");
        self.cycle(samples)
    }

    /// Applies a plan to the view: the new generation runs and the old one is released.
    fn carry_out(&mut self, plan: &Plan) {
        for part in &plan.groups {
            for item in &part.items {
                let PlanItem::Place(placement) = item else { continue };
                let SlotKey::Index(SlotIndex(index)) = placement.key.slot else { panic!("only counted slots move") };
                let name = part.group.service.to_string();
                let old = Generation(placement.key.generation.0 - 1);
                self.place(&name, index, placement.key.generation, placement.node.as_str(), plan.made_at);
                let (key, at) = (placement.key.clone().in_group(&part.group), plan.made_at);
                let old = part.group.replica(&key.slot, old);
                let score = (**placement.moved.as_ref().unwrap()).clone();
                let made = Move { key, to: placement.node.clone(), at, score };
                self.view.apply(&Event::Rebalanced(Arc::new(made)));
                self.view.apply(&Event::Released { key: old, at });
            }
        }
    }
}

/// `web-0: a -> b` for each move, and `web-0 reason` for each skip.
fn summary(cycle: &Cycle) -> Vec<String> {
    let items = cycle.plan.groups.iter().flat_map(|part| part.items.iter().map(|item| (&part.group, item)));
    let moves = items.filter_map(|(group, item)| match item {
        PlanItem::Place(placement) => {
            let src = &placement.moved.as_ref()?.src;
            Some(format!("{}: {src} -> {}", placement.key.slot.replica_id(group), placement.node))
        }
        _ => None,
    });
    let skips = cycle.skips.iter().map(|skip| match &skip.replica {
        Some(replica) => format!("{} {}", replica.slot.replica_id(&replica.group), skip.reason),
        None => format!("nothing {}", skip.reason),
    });
    moves.chain(skips).collect()
}

const HOT: [(&str, i64); 2] = [("a", 950_000), ("b", 100_000)];

/// Two nodes, with the service on the one that `HOT` makes hot.
fn hot(spec: ServiceSpec) -> World {
    let mut world = World::new(&["a", "b"]);
    world.run("web", spec, &["a"]);
    world
}

#[test]
fn two_hot_cycles_move_a_replica_to_the_cool_node() {
    let mut world = hot(service(1000));
    let cycle = world.two_cycles(&HOT);
    assert_eq!(summary(&cycle), ["shop-web-0: a -> b"]);
    let [PlanItem::Place(placement)] = cycle.plan.groups[0].items.as_slice() else { panic!("one placement") };
    assert_eq!(placement.key.generation, Generation(2), "the old generation runs on beside it");
    let score = placement.moved.as_deref().unwrap();
    assert_eq!((score.relief, score.score), (Some(Share(250_000)), Some(Share(240_000))));
    assert_eq!((score.src_before, score.src_after), (Some(Share(950_000)), Some(Share(700_000))));
    assert_eq!((score.dst_before, score.dst_after), (Some(Share(100_000)), Some(Share(350_000))));
}

#[test]
fn samples_that_lag_behind_a_move_do_not_trigger_another() {
    let mut world = World::new(&["a", "b"]);
    world.run("api", service(1000), &["a"]);
    world.run("web", service(1000), &["a"]);
    let cycle = world.two_cycles(&HOT);
    world.carry_out(&cycle.plan);
    // The node still reports its old load for a while; the smoothed value has already been lowered.
    for _ in 0..4 {
        assert_eq!(summary(&world.cycle(&HOT)), Vec::<String>::new());
    }
}

#[test]
fn each_gate_alone_prevents_a_move() {
    let batch = ServiceSpec { kind: ServiceKind::Batch, ..service(1000) };
    let cases = [
        ("shop-web-0 relief_floor", hot(service(200)), HOT),
        ("shop-web-0 dst_cap", hot(service(1000)), [HOT[0], ("b", 550_000)]),
        ("shop-web-0 resource_limits", hot(service(3800)), HOT),
        ("shop-web-0 no_eligible_dst", hot(service(1000)), [HOT[0], ("c", 1)]),
        ("nothing no_candidate", hot(batch), HOT),
    ];
    for (expected, mut world, samples) in cases {
        if expected.contains("no_eligible_dst") {
            let mut paused = node("c");
            paused.intent = longshore_model::Intent::Paused;
            world.view.apply(&Event::NodeChanged(Arc::new(paused)));
        }
        assert_eq!(summary(&world.two_cycles(&samples)), [expected]);
    }
}

#[test]
fn a_replica_placed_less_than_ten_minutes_ago_stays() {
    let mut world = hot(service(1000));
    world.place("web", 0, Generation(2), "a", Time(55 * MINUTE));
    let first = key("web").replica(&SlotKey::Index(SlotIndex(0)), Generation(1));
    world.view.apply(&Event::Released { key: first, at: Time(55 * MINUTE) });
    assert_eq!(summary(&world.two_cycles(&HOT)), ["shop-web-0 cooldown_replica"]);
    let moved = (3..40).find(|_| !world.cycle(&HOT).plan.is_empty()).map(|_| world.now);
    assert_eq!(moved, Some(Time(65 * MINUTE)));
}

#[test]
fn a_node_that_received_a_replica_receives_no_other_for_two_minutes() {
    let mut world = World::new(&["a", "b", "c"]);
    world.run("api", ServiceSpec { placement: pack(), ..service(1000) }, &["a"]);
    world.run("web", ServiceSpec { placement: pack(), ..service(1000) }, &["c"]);
    let samples = [("a", 960_000), ("b", 100_000), ("c", 950_000)];
    let cycle = world.two_cycles(&samples);
    assert_eq!(summary(&cycle), ["shop-api-0: a -> b"]);
    world.carry_out(&cycle.plan);
    let samples = [("b", 350_000), ("c", 950_000)];
    // Node a sends no more samples: after three intervals only b and c are left, and both cooldowns have passed by
    // then.
    assert_eq!(summary(&world.cycle(&samples)), ["shop-web-0 no_eligible_dst"]);
    let cycles: Vec<Cycle> = (0..4).map(|_| world.cycle(&samples)).collect();
    assert_eq!(summary(&cycles[2]), ["shop-web-0: c -> b"], "two minutes after the first");
}

#[test]
fn spread_and_hosts_restrict_destinations_and_pack_does_not() {
    let pinned = |hosts: &[&str]| longshore_model::PlacementSpec {
        strategy: Strategy::Hosts,
        hosts: hosts.iter().map(|host| NodeName::from(*host)).collect(),
        ..longshore_model::PlacementSpec::default()
    };
    let cases = [
        (longshore_model::PlacementSpec::default(), &["a", "b"][..], "shop-web-0 anti_affinity"),
        (pinned(&["a"]), &["a"][..], "shop-web-0 anti_affinity"),
        (pinned(&["a", "b"]), &["a"][..], "shop-web-0: a -> b"),
        (pack(), &["a", "b"][..], "shop-web-0: a -> b"),
    ];
    for (placement, nodes, expected) in cases {
        let mut world = World::new(&["a", "b"]);
        world.run("web", ServiceSpec { placement, ..service(1000) }, nodes);
        assert_eq!(summary(&world.two_cycles(&HOT)), [expected]);
    }
}

fn pack() -> longshore_model::PlacementSpec {
    longshore_model::PlacementSpec { strategy: Strategy::LeastLoaded, ..longshore_model::PlacementSpec::default() }
}

#[test]
fn stateful_and_global_services_are_never_candidates() {
    let mount = |source| Mount {
        source,
        target: "/data".to_owned(),
        access: longshore_model::service::Access::ReadWrite,
        options: BTreeMap::new(),
    };
    let bound = ServiceSpec { mounts: vec![mount(MountSource::Bind("/srv".to_owned()))], ..service(1000) };
    let global = ServiceSpec { kind: ServiceKind::System, ..service(1000) };
    for spec in [bound, global] {
        let mut world = hot(spec);
        assert_eq!(summary(&world.two_cycles(&HOT)), ["nothing no_candidate"]);
    }
}

#[test]
fn without_samples_or_with_samples_of_one_node_nothing_moves() {
    let mut world = hot(service(1000));
    for samples in [&[][..], &HOT[..1]] {
        assert_eq!(summary(&world.cycle(samples)), Vec::<String>::new());
        assert_eq!(summary(&world.cycle(samples)), Vec::<String>::new());
    }
}

#[test]
fn a_sample_older_than_three_intervals_is_ignored() {
    let mut world = hot(service(1000));
    assert_eq!(summary(&world.cycle(&HOT)), Vec::<String>::new());
    world.now = Time(world.now.0 + 3 * 30_000);
    assert_eq!(summary(&world.cycle(&[])), Vec::<String>::new());
    assert_eq!(summary(&world.cycle(&[])), Vec::<String>::new());
}

#[test]
fn a_new_leader_relieves_no_node_for_five_minutes() {
    let mut world = hot(service(1000));
    world.rebalancer = Rebalancer::new(world.now);
    let first = (1..20).find(|_| summary(&world.cycle(&HOT)) != Vec::<String>::new()).map(|_| world.now);
    assert_eq!(first, Some(Time(65 * MINUTE)));
}

#[test]
fn a_repeated_skip_is_counted() {
    let mut world = hot(service(200));
    let counts: Vec<u32> = (0..5).flat_map(|_| world.cycle(&HOT).skips).map(|skip| skip.count).collect();
    assert_eq!(counts, [1, 2, 3, 4]);
}

#[test]
fn measured_use_takes_precedence_over_declared_limits() {
    let mut world = hot(service(200));
    let replica = ReplicaKey { group: key("web"), slot: SlotKey::Index(SlotIndex(0)), generation: Generation(1) };
    world.rebalancer.usage(replica, MeasuredUsage { cpu_millis: 2000, memory_bytes: GIB });
    let cycle = world.two_cycles(&HOT);
    assert_eq!(summary(&cycle), ["shop-web-0: a -> b"]);
    assert!(cycle.skips.iter().all(|skip| skip.reason != SkipReason::ReliefFloor));
}

#[test]
fn a_new_leader_makes_no_second_move_within_29_seconds() {
    let mut world = World::new(&["a", "b", "c"]);
    world.run("web", service(100), &["a", "a", "a"]);
    world.view.apply(&Event::EvenOutRequested(key("web")));
    let first = world.cycle(&[]);
    assert_eq!(summary(&first).len(), 1, "one of three replicas moves to an empty node");
    world.carry_out(&first.plan);
    let cases = [(5_000, 0), (28_999, 0), (29_000, 1)];
    for (later, moves) in cases {
        let mut new_leader = Rebalancer::new(Time(first.plan.made_at.0 + later));
        let second = new_leader.cycle(&mut world.view, StateIndex(0), Time(first.plan.made_at.0 + later));
        assert_eq!(summary(&second).len(), moves, "{later} ms after the first");
    }
}
