//! Random combinations of all rules: constraints of every operator, pools, devices, `binpack` with spread targets,
//! companions, distinct rules, skew, all-or-nothing, quotas and preemption. The core properties must still hold.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    Attribute, Command, Constraint, GroupKey, Health, Node, NodeName, Operator, PlacementSpec, PoolName, ServiceKind,
    ServiceSpec, Slot, SlotKey, Strategy as PlacementStrategy,
    command::Quota,
    replica::DesiredState,
    rollout::RolloutChange,
    service::{Affinity, Batching, Companion, DistinctProperty, PoolSelector, SpreadTarget, Strength},
};
use longshore_scheduler::{explain, plan};
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::cluster::{Cluster, key, node, of_priority, service, with_data};
use crate::proptest_config::cases;

const NODES: [&str; 5] = ["a", "b", "c", "d", "e"];
const SERVICES: [&str; 4] = ["api", "db", "log", "web"];

#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<(usize, Box<ServiceSpec>)>),
    Scale(usize, u32),
    Health(usize, Health),
    Quota(Option<u64>, Option<u64>),
    Preempt,
    Run,
    StopOne(usize),
    Decide,
}

fn machine() -> impl Strategy<Value = (u64, Vec<(&'static str, &'static str)>, u64, bool)> {
    let label = |name: &'static str, values: Vec<&'static str>| {
        option::weighted(0.85, select(values)).prop_map(move |value| value.map(|value| (name, value)))
    };
    let labels =
        (label("zone", vec!["1", "2"]), label("ver", vec!["1.2.3", "2.0.0-rc1", "10"]), label("set", vec!["x,y", "y"]));
    let labels = labels.prop_map(|(a, b, c)| [a, b, c].into_iter().flatten().collect());
    ((3_u64..11).prop_map(|units| units * 100), labels, 0_u64..3, prop::bool::weighted(0.2))
}

fn constraint() -> impl Strategy<Value = Constraint> {
    select(vec![
        ("zone", Operator::Equal, "1"),
        ("zone", Operator::NotEqual, "1"),
        ("zone", Operator::In, "1, 2"),
        ("zone", Operator::IsSet, ""),
        ("zone", Operator::IsNotSet, ""),
        ("ver", Operator::Version, ">= 1.2, < 3"),
        ("ver", Operator::Semver, ">= 1.0.0"),
        ("ver", Operator::Regexp, "^[12]"),
        ("ver", Operator::Less, "5"),
        ("ver", Operator::GreaterOrEqual, "2"),
        ("set", Operator::SetContains, "x, y"),
        ("set", Operator::SetContainsAny, "y, z"),
    ])
    .prop_map(|(label, operator, value)| Constraint {
        attribute: Attribute::Label(label.to_owned()),
        operator,
        value: value.to_owned(),
    })
}

fn placement() -> impl Strategy<Value = PlacementSpec> {
    let strategy = select(vec![
        PlacementStrategy::Spread,
        PlacementStrategy::Spread,
        PlacementStrategy::Binpack,
        PlacementStrategy::Binpack,
        PlacementStrategy::LeastLoaded,
        PlacementStrategy::Hash,
        PlacementStrategy::Global,
    ]);
    let zone = || Attribute::Label("zone".to_owned());
    let hard = (
        option::weighted(0.2, constraint()),
        option::weighted(0.15, 1_u32..3),
        prop::bool::weighted(0.15),
        option::weighted(0.15, 1_u32..4),
        prop::bool::weighted(0.15),
        select(vec![
            PoolSelector::Default,
            PoolSelector::All,
            PoolSelector::All,
            PoolSelector::Named(PoolName::from("gold")),
        ]),
    );
    let companion = || {
        let strength = prop_oneof![Just(Strength::Hard), (1_i32..=100).prop_map(Strength::Preferred)];
        option::weighted(0.2, (select(&SERVICES[..]), strength))
            .prop_map(|it| it.map(|(service, strength)| Companion { service: service.into(), strength }))
    };
    let soft = (option::weighted(0.3, (constraint(), -100_i32..=100)), option::weighted(0.3, prop::bool::ANY));
    (strategy, hard, (companion(), companion()), soft).prop_map(
        move |(strategy, (constraint, max_skew, distinct, property, whole, pool), (near, away), (like, share))| {
            let percent = |half: bool| if half { BTreeMap::from([("1".to_owned(), 70)]) } else { BTreeMap::new() };
            PlacementSpec {
                strategy,
                pool,
                constraints: constraint.into_iter().collect(),
                preferences: max_skew.map(|_| zone()).into_iter().collect(),
                max_skew,
                distinct_hosts: distinct,
                distinct_property: property
                    .map(|limit| DistinctProperty { attribute: zone(), limit })
                    .into_iter()
                    .collect(),
                batching: if whole { Batching::AllOrNothing } else { Batching::AsManyAsFit },
                near: near.into_iter().collect(),
                away_from: away.into_iter().collect(),
                affinities: like.map(|(matches, weight)| Affinity { matches, weight }).into_iter().collect(),
                spread_targets: share
                    .map(|half| SpreadTarget { over: zone(), weight: 50, percent: percent(half) })
                    .into_iter()
                    .collect(),
                ..PlacementSpec::default()
            }
        },
    )
}

fn spec() -> impl Strategy<Value = ServiceSpec> {
    let asked = (0_u32..5, select(vec![0_u64, 100, 200, 300, 500]), option::weighted(0.2, 1_u64..3));
    (placement(), asked, select(vec![0_u8, 20, 50, 90]), prop::bool::weighted(0.1)).prop_map(
        |(placement, (replicas, memory, gpus), priority, data)| {
            let mut spec = of_priority(priority, service(replicas, 100, memory, placement));
            spec.resources.devices = gpus.map(|gpus| ("gpu".to_owned(), gpus)).into_iter().collect();
            if spec.placement.strategy == PlacementStrategy::Global {
                spec.kind = ServiceKind::System;
            }
            if data { with_data(spec) } else { spec }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let health = select(vec![Health::Ready, Health::Ready, Health::Down, Health::Suspect]);
    prop_oneof![
        3 => vec((0..SERVICES.len(), spec().prop_map(Box::new)), 1..4).prop_map(Step::Apply),
        3 => (0..SERVICES.len(), 0_u32..6).prop_map(|(service, replicas)| Step::Scale(service, replicas)),
        2 => (0..NODES.len(), health).prop_map(|(node, health)| Step::Health(node, health)),
        1 => (option::of(0_u64..8), option::of(0_u64..2000)).prop_map(|(replicas, memory)| Step::Quota(replicas, memory)),
        1 => Just(Step::Preempt),
        5 => Just(Step::Run),
        5 => (0_usize..50).prop_map(Step::StopOne),
        8 => Just(Step::Decide),
    ]
}

fn history() -> impl Strategy<Value = (Vec<Node>, Vec<Step>)> {
    let nodes = vec(machine(), 1..=NODES.len()).prop_map(|machines| {
        let made = machines.into_iter().zip(NODES).map(|((memory, labels, gpus, gold), name)| {
            let mut node = node(name, 2000, memory, &labels);
            node.capacity.devices = BTreeMap::from([("gpu".to_owned(), gpus)]);
            if gold {
                node.pool = PoolName::from("gold");
            }
            node
        });
        made.collect::<Vec<_>>()
    });
    (nodes, vec(step(), 1..40))
}

fn act(cluster: &mut Cluster, step: &Step) {
    match step {
        Step::Apply(services) => {
            let services: Vec<_> = services.iter().map(|(at, spec)| (SERVICES[*at], (**spec).clone())).collect();
            cluster.apply(&services);
        }
        Step::Scale(service, replicas) => {
            cluster.run(Command::Scale { group: key(SERVICES[*service]), replicas: *replicas });
        }
        Step::Health(node, health) => {
            cluster.run(Command::SetHealth { node: NODES[*node].into(), health: *health, at: cluster.now });
        }
        Step::Quota(replicas, memory_bytes) => {
            let quota = Quota { replicas: *replicas, memory_bytes: *memory_bytes, cpu_millis: None };
            cluster.run(Command::SetQuota { namespace: key("web").namespace, quota });
        }
        Step::Preempt => cluster.allow_preemption(),
        Step::Run => {
            cluster.run_all();
        }
        Step::StopOne(which) => {
            cluster.stop_one(*which);
        }
        Step::Decide => {
            cluster.decide();
        }
    }
}

/// No node has more memory or devices in use than it has.
fn check_limits(cluster: &Cluster) -> Result<(), TestCaseError> {
    let mut gpus: BTreeMap<NodeName, u64> = BTreeMap::new();
    for (_, _, replica) in cluster.state.replicas() {
        *gpus.entry(replica.assignment.node.clone()).or_default() +=
            replica.assignment.reservation.devices.get("gpu").copied().unwrap_or(0);
    }
    let memory = cluster.memory_used();
    for node in cluster.state.nodes() {
        let used = memory.get(&node.name).copied().unwrap_or(0);
        prop_assert!(used <= node.capacity.memory_bytes, "{} has {used} bytes on it", node.name);
        let used = gpus.get(&node.name).copied().unwrap_or(0);
        prop_assert!(used <= node.capacity.devices["gpu"], "{} has {used} gpus taken", node.name);
    }
    Ok(())
}

/// The nodes on which the plan places replicas of each group.
fn decided(plan: &longshore_model::Plan) -> BTreeMap<GroupKey, BTreeSet<NodeName>> {
    let mut nodes: BTreeMap<GroupKey, BTreeSet<NodeName>> = BTreeMap::new();
    for part in &plan.groups {
        for item in &part.items {
            if let longshore_model::PlanItem::Place(placement) = item {
                nodes.entry(part.group.clone()).or_default().insert(placement.node.clone());
            }
        }
    }
    nodes
}

fn check_rules(cluster: &Cluster, plan: &longshore_model::Plan) -> Result<(), TestCaseError> {
    for (group, nodes) in decided(plan) {
        let known = cluster.state.group(&group).expect("the plan was just made");
        let current = known.slots.values().filter(|slot| slot.desired == DesiredState::Run);
        let current = current.filter_map(|slot| slot.replicas.last()).filter(|it| it.desired == DesiredState::Run);
        // Replicas placed by an older spec that cannot move stay and do not count.
        let current = current.filter(|replica| replica.assignment.reservation.revision == known.revision);
        let at: Vec<&NodeName> = current.map(|replica| &replica.assignment.node).collect();
        let is_home = |slot: &Slot| match &slot.key {
            SlotKey::Node(name) => slot.replicas.iter().all(|replica| replica.assignment.node == *name),
            SlotKey::Index(_) => true,
        };
        prop_assert!(known.slots.values().all(is_home), "{group} has the replica of one node on another");
        for node in &nodes {
            let here = at.iter().filter(|other| **other == node).count();
            let apart = known.spec.placement.distinct_hosts;
            prop_assert!(!apart || here == 1, "{group} has {here} on {node}");
            let zone = |name: &NodeName| cluster.state.node(name).and_then(|node| node.labels.get("zone").cloned());
            for property in &known.spec.placement.distinct_property {
                let sharing = at.iter().filter(|other| zone(other) == zone(node)).count();
                prop_assert!(
                    sharing <= property.limit as usize && zone(node).is_some(),
                    "{group} in the zone of {node}"
                );
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn the_core_properties_hold_with_all_rules_combined((nodes, steps) in history()) {
        let mut cluster = Cluster::of(nodes);
        for step in &steps {
            if !matches!(step, Step::Decide) {
                act(&mut cluster, step);
                continue;
            }
            let made = cluster.plan();
            prop_assert_eq!(&made, &cluster.plan(), "planning changed the view");
            cluster.run(Command::Commit(Box::new(made.clone())));
            check_limits(&cluster)?;
            check_rules(&cluster, &made)?;
            // An aborted rollout restores the previous revision, which only the state machine keeps.
            if made.deployments.iter().any(|decided| matches!(decided.change, RolloutChange::Abort(_))) {
                cluster.decide_all();
            }
            let again = cluster.plan();
            prop_assert!(again.is_empty(), "an applied plan leaves more to do: {again:?}");
            let mut rebuilt = cluster.rebuilt();
            let other = plan(&mut rebuilt, cluster.state.index(), cluster.now);
            prop_assert!(other.is_empty(), "a rebuilt view finds more to do: {other:?}");
            for (group, known) in cluster.state.groups() {
                let explanations = explain(&mut rebuilt, group, cluster.now);
                let explained: BTreeSet<_> = explanations.iter().flat_map(|(slots, _)| slots).collect();
                for slot in known.slots.values().filter(|slot| slot.desired == DesiredState::Run) {
                    let waits = slot.waiting.is_some() && slot.replicas.is_empty();
                    prop_assert!(!waits || explained.contains(&slot.key), "{} waits without a reason", slot.key.replica_id(group));
                }
            }
        }
    }

    #[test]
    fn with_all_rules_combined_the_cluster_converges((nodes, steps) in history()) {
        let mut cluster = Cluster::of(nodes);
        for step in &steps {
            act(&mut cluster, step);
        }
        let mut rounds = 0;
        loop {
            let quiet = cluster.decide().is_empty();
            cluster.run_all();
            if !cluster.stop_one(rounds * 7) && quiet {
                break;
            }
            rounds += 1;
            prop_assert!(rounds < 300, "the cluster does not converge");
        }
        for (group, known) in cluster.state.groups() {
            for slot in known.slots.values().filter(|slot| slot.desired == DesiredState::Run) {
                let runs = slot.replicas.iter().any(|replica| replica.desired == DesiredState::Run);
                prop_assert!(runs || slot.waiting.is_some(), "{} has neither node nor reason", slot.key.replica_id(group));
            }
        }
    }
}
