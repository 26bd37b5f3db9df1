//! `binpack` against a reference: replicas are placed one at a time, each on the node with the highest mean of the
//! terms that apply, computed from the formulas without caches. The batch must place every slot on the same node.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    Attribute, Constraint, Node, NodeName, Operator, PlacementSpec, PlanItem, ServiceSpec, SlotKey,
    Strategy as PlacementStrategy,
    service::{Affinity, DistinctProperty, SpreadTarget},
};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    sample::select,
};

use super::cluster::{Cluster, key, node, service};
use crate::proptest_config::cases;

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const LABELS: [&str; 2] = ["rack", "zone"];
const VALUES: [&str; 3] = ["1", "2", "3"];

/// A cluster in which the service `web` is about to be placed beside another.
#[derive(Clone, Debug)]
struct Start {
    nodes: Vec<Node>,
    web: ServiceSpec,
    other: ServiceSpec,
    /// Existing replicas of `web` and of the other service, by index of their node.
    web_at: Vec<usize>,
    other_at: Vec<usize>,
    /// Recent failures of `web` by node.
    failures: BTreeMap<usize, usize>,
}

fn machine() -> impl Strategy<Value = (u64, u64, Vec<(&'static str, &'static str)>)> {
    let label = |name: &'static str| option::weighted(0.8, select(&VALUES[..])).prop_map(move |value| (name, value));
    let label = |name| label(name).prop_map(|(name, value)| value.map(|value| (name, value)));
    let labels = (label(LABELS[0]), label(LABELS[1])).prop_map(|(a, b)| a.into_iter().chain(b).collect());
    (select(vec![0_u64, 1000, 2000, 4000]), select(vec![500_u64, 1000, 2000, 4000]), labels)
}

fn attribute() -> impl Strategy<Value = Attribute> {
    select(&LABELS[..]).prop_map(|label| Attribute::Label(label.to_owned()))
}

fn affinity() -> impl Strategy<Value = Affinity> {
    let operator = select(vec![Operator::Equal, Operator::NotEqual, Operator::IsSet]);
    (attribute(), operator, select(&VALUES[..]), -100_i32..=100).prop_map(|(attribute, operator, value, weight)| {
        Affinity { matches: Constraint { attribute, operator, value: value.to_owned() }, weight }
    })
}

fn spread_target() -> impl Strategy<Value = SpreadTarget> {
    let percent =
        prop_oneof![Just(BTreeMap::new()), btree_map(select(&VALUES[..]).prop_map(str::to_owned), 0_u32..=40, 1..3),];
    (attribute(), 1_u32..=100, percent).prop_map(|(over, weight, percent)| SpreadTarget { over, weight, percent })
}

fn placement() -> impl Strategy<Value = PlacementSpec> {
    let rules = (vec(affinity(), 0..3), vec(spread_target(), 0..3));
    let limits = (
        option::weighted(0.2, 1_u32..4),
        prop::bool::weighted(0.1),
        option::weighted(0.15, (attribute(), 1_u32..4)),
        option::weighted(0.2, (vec(attribute(), 0..2), 1_u32..3)),
    );
    (rules, limits).prop_map(|((affinities, spread_targets), (most, distinct, property, skew))| {
        let (preferences, max_skew) = skew.unzip();
        PlacementSpec {
            strategy: PlacementStrategy::Binpack,
            affinities,
            spread_targets,
            max_replicas_per_node: most,
            distinct_hosts: distinct,
            distinct_property: property
                .into_iter()
                .map(|(attribute, limit)| DistinctProperty { attribute, limit })
                .collect(),
            preferences: preferences.unwrap_or_default(),
            max_skew,
            ..PlacementSpec::default()
        }
    })
}

fn start() -> impl Strategy<Value = Start> {
    let nodes = vec(machine(), 1..NAMES.len());
    let asked = || (select(vec![0_u64, 100, 250, 700]), select(vec![0_u64, 50, 130, 400]));
    let at = || vec(0..NAMES.len(), 0..4);
    (nodes, (placement(), 1_u32..12, asked()), asked(), at(), at(), btree_map(0..NAMES.len(), 1_usize..7, 0..3))
        .prop_map(
            |(
                machines,
                (placement, replicas, (cpu, memory)),
                (other_cpu, other_memory),
                web_at,
                other_at,
                failures,
            )| {
                let nodes =
                    machines.iter().zip(NAMES).map(|((cpu, memory, labels), name)| node(name, *cpu, *memory, labels));
                Start {
                    nodes: nodes.collect(),
                    web: service(replicas, cpu, memory, placement),
                    other: service(4, other_cpu, other_memory, PlacementSpec::default()),
                    web_at,
                    other_at,
                    failures,
                }
            },
        )
}

/// The state of the reference: the nodes of all replicas.
struct Reference<'a> {
    start: &'a Start,
    web: Vec<usize>,
    other: Vec<usize>,
}

impl Reference<'_> {
    fn here(&self, node: usize) -> usize {
        self.web.iter().filter(|at| **at == node).count()
    }

    fn used(&self, node: usize, amount: impl Fn(&ServiceSpec) -> u64) -> u64 {
        let others = self.other.iter().filter(|at| **at == node).count() as u64;
        self.here(node) as u64 * amount(&self.start.web) + others * amount(&self.start.other)
    }

    fn value(&self, node: usize, attribute: &Attribute) -> Option<String> {
        let Attribute::Label(label) = attribute else { return Some(self.start.nodes[node].name.to_string()) };
        self.start.nodes[node].labels.get(label).cloned()
    }

    /// Replicas of `web` on nodes with this value.
    fn with_value(&self, attribute: &Attribute, value: Option<&str>) -> usize {
        self.web.iter().filter(|at| self.value(**at, attribute).as_deref() == value).count()
    }

    fn fits(&self, node: usize) -> bool {
        let placement = &self.start.web.placement;
        let memory = self.used(node, memory) + memory(&self.start.web) <= self.start.nodes[node].capacity.memory_bytes;
        let most = placement.max_replicas_per_node.is_none_or(|most| self.here(node) < most as usize);
        let distinct = !placement.distinct_hosts || self.here(node) == 0;
        let property = placement.distinct_property.iter().all(|property| {
            let value = self.value(node, &property.attribute);
            value.is_some_and(|value| self.with_value(&property.attribute, Some(&value)) < property.limit as usize)
        });
        memory && most && distinct && property && self.within_skew(node)
    }

    /// Whether every level stays within the skew with one more replica on the node.
    fn within_skew(&self, node: usize) -> bool {
        let Some(limit) = self.start.web.placement.max_skew else { return true };
        let mut levels = self.start.web.placement.preferences.clone();
        if levels.is_empty() {
            levels = vec![Attribute::Hostname];
        }
        (1..=levels.len()).all(|depth| {
            let path =
                |node: usize| -> Vec<_> { levels[..depth].iter().map(|level| self.value(node, level)).collect() };
            let count = |branch: &[Option<String>]| self.web.iter().filter(|at| path(**at) == branch).count();
            let here = path(node);
            let siblings = (0..self.start.nodes.len()).map(path).filter(|path| path[..depth - 1] == here[..depth - 1]);
            let lowest = siblings.map(|path| count(&path)).min().unwrap_or(0);
            count(&here) < lowest + limit as usize
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "a test may be off by a millionth")]
    fn terms(&self, node: usize) -> Vec<f64> {
        let spec = &self.start.web;
        let capacity = &self.start.nodes[node].capacity;
        let free = |used: u64, limit: u64| if limit == 0 { 0.0 } else { (1.0 - used as f64 / limit as f64).max(0.0) };
        let cpu = free(self.used(node, cpu) + cpu(spec), capacity.cpu_millis);
        let memory = free(self.used(node, memory) + memory(spec), capacity.memory_bytes);
        let mut terms = vec![(20.0 - (10_f64.powf(cpu) + 10_f64.powf(memory))).clamp(0.0, 18.0) / 18.0];
        let here = self.here(node) as f64;
        if here > 0.0 {
            terms.push(-(here + 1.0) / f64::from(spec.replicas));
        }
        if self.start.failures.contains_key(&node) {
            terms.push(-1.0);
        }
        let weight = |affinity: &Affinity| f64::from(affinity.weight);
        let total: f64 = spec.placement.affinities.iter().map(|affinity| weight(affinity).abs()).sum();
        if total > 0.0 {
            let matching = spec.placement.affinities.iter().filter(|affinity| self.holds(&affinity.matches, node));
            terms.push(matching.map(weight).sum::<f64>() / total);
        }
        let boost: f64 = spec.placement.spread_targets.iter().map(|target| self.boost(target, node)).sum();
        if boost.abs() > 1e-12 {
            terms.push(boost);
        }
        terms
    }

    fn holds(&self, constraint: &Constraint, node: usize) -> bool {
        let value = self.value(node, &constraint.attribute);
        match constraint.operator {
            Operator::Equal => value.as_ref() == Some(&constraint.value),
            Operator::NotEqual => value.as_ref() != Some(&constraint.value),
            Operator::IsSet => value.is_some(),
            other => unreachable!("{other:?} is not drawn"),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a test may be off by a millionth")]
    fn boost(&self, target: &SpreadTarget, node: usize) -> f64 {
        let Some(value) = self.value(node, &target.over) else { return -1.0 };
        let weights: u32 = self.start.web.placement.spread_targets.iter().map(|target| target.weight).sum();
        let share = f64::from(target.weight) / f64::from(weights);
        if target.percent.is_empty() {
            return share * self.even(&target.over, &value);
        }
        let count = f64::from(self.start.web.replicas);
        let named = |at: &usize| self.value(*at, &target.over).filter(|value| target.percent.contains_key(value));
        let (desired, used) = if let Some(percent) = target.percent.get(&value) {
            let used = self.with_value(&target.over, Some(&value));
            (f64::from(*percent) * count / 100.0, used)
        } else {
            let left = 100_u32.saturating_sub(target.percent.values().sum());
            let others = self.web.iter().filter(|at| self.value(**at, &target.over).is_some() && named(at).is_none());
            (f64::from(left) * count / 100.0, others.count())
        };
        if desired <= 0.0 { -1.0 } else { share * (desired - (used as f64 + 1.0)) / desired }
    }

    #[expect(clippy::cast_precision_loss, reason = "a test may be off by a millionth")]
    fn even(&self, over: &Attribute, value: &str) -> f64 {
        let values: BTreeSet<String> = self.web.iter().filter_map(|at| self.value(*at, over)).collect();
        let counts: Vec<f64> = values.iter().map(|value| self.with_value(over, Some(value)) as f64).collect();
        let Some(fewest) = counts.iter().copied().reduce(f64::min) else { return 0.0 };
        let most = counts.iter().copied().fold(0.0, f64::max);
        let here = self.with_value(over, Some(value)) as f64;
        match (here - fewest).abs() < 0.5 {
            false => (fewest - here) / fewest,
            true if most - fewest < 0.5 => -1.0,
            true => (most - fewest) / fewest,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a test may be off by a millionth")]
    fn score(&self, node: usize) -> (bool, f64) {
        let terms = self.terms(node);
        let faulty = self.start.failures.get(&node).is_some_and(|times| *times >= 5);
        (!faulty, terms.iter().sum::<f64>() / terms.len() as f64)
    }
}

fn cpu(spec: &ServiceSpec) -> u64 {
    spec.resources.cpu_request_millis()
}

fn memory(spec: &ServiceSpec) -> u64 {
    spec.resources.memory_limit_bytes.unwrap_or(0)
}

/// The cluster right before its plan, and the matching reference.
fn set_up(start: &Start) -> (Cluster, Reference<'_>) {
    let mut reference = Reference { start, web: Vec::new(), other: Vec::new() };
    for at in start.other_at.iter().copied().filter(|at| *at < start.nodes.len()) {
        if reference.used(at, memory) + memory(&start.other) <= start.nodes[at].capacity.memory_bytes {
            reference.other.push(at);
        }
    }
    for at in start.web_at.iter().copied().filter(|at| *at < start.nodes.len()).take(start.web.replicas as usize) {
        if reference.fits(at) {
            reference.web.push(at);
        }
    }
    let mut cluster = Cluster::of(start.nodes.clone());
    let other = ServiceSpec { replicas: u32::try_from(reference.other.len()).expect("few"), ..start.other.clone() };
    cluster.apply(&[("other", other), ("web", start.web.clone())]);
    let names = |at: &[usize]| -> Vec<&str> { at.iter().map(|at| NAMES[*at]).collect() };
    cluster.put("other", &names(&reference.other));
    cluster.put("web", &names(&reference.web));
    for (at, times) in start.failures.iter().filter(|(at, _)| **at < start.nodes.len()) {
        cluster.fail("web", NAMES[*at], *times);
    }
    (cluster, reference)
}

fn placements(cluster: &mut Cluster) -> BTreeMap<SlotKey, NodeName> {
    let plan = cluster.plan();
    let parts = plan.groups.into_iter().filter(|part| part.group == key("web"));
    parts
        .flat_map(|part| part.items)
        .filter_map(|item| match item {
            PlanItem::Place(placement) => Some((placement.key.slot, placement.node)),
            _ => None,
        })
        .collect()
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn a_batch_is_placed_like_a_scan_of_all_nodes_per_replica(start in start()) {
        let (mut cluster, mut reference) = set_up(&start);
        let asked = start.web.replicas as usize - reference.web.len();
        let placed = placements(&mut cluster);
        for chosen in placed.values() {
            let chosen = NAMES.iter().position(|name| *name == chosen.as_str()).expect("a node of ours");
            prop_assert!(reference.fits(chosen), "{} cannot take one more", NAMES[chosen]);
            let score = reference.score(chosen);
            for other in (0..start.nodes.len()).filter(|other| *other != chosen && reference.fits(*other)) {
                let better = reference.score(other);
                prop_assert!(
                    (score.0 && !better.0) || (score.0 == better.0 && score.1 > better.1 - 1e-6),
                    "{} {score:?} was taken before {} {better:?}", NAMES[chosen], NAMES[other]
                );
                let alike = start.nodes[other].labels == start.nodes[chosen].labels;
                let twins = alike && reference.terms(other) == reference.terms(chosen) && score.0 == better.0;
                prop_assert!(!twins || chosen < other, "{} and {} are equal", NAMES[chosen], NAMES[other]);
            }
            reference.web.push(chosen);
        }
        let room = (0..start.nodes.len()).any(|node| reference.fits(node));
        prop_assert!(placed.len() == asked || !room, "{} of {asked} placed, and a node still fits", placed.len());
    }
}
