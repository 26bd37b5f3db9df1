//! Properties of preemption: which replicas may be displaced, how many, and that it converges.

use std::collections::BTreeMap;

use longshore_model::{
    GroupKey, NodeName, PlacementSpec, Plan, PlanItem, ServiceSpec, SlotKey, replica::DesiredState, service::Batching,
};
use proptest::{collection::vec, prelude::*, sample::select};

use super::cluster::{Cluster, key, node, of_priority, service, with_data};
use crate::proptest_config::cases;

const NODES: [&str; 4] = ["a", "b", "c", "d"];
const LOW: [&str; 3] = ["low-0", "low-1", "low-2"];
const HIGH: [&str; 2] = ["high-0", "high-1"];

#[derive(Clone, Debug)]
struct Start {
    memory: Vec<u64>,
    low: Vec<ServiceSpec>,
    high: Vec<ServiceSpec>,
    /// The order in which stopping replicas are observed as stopped.
    stop_order: Vec<usize>,
}

fn plain(priorities: Vec<u8>) -> impl Strategy<Value = ServiceSpec> {
    (select(priorities), 1_u32..5, 1_u64..6, prop::bool::weighted(0.15)).prop_map(
        |(priority, replicas, memory, data)| {
            let spec = of_priority(priority, service(replicas, 0, memory * 100, PlacementSpec::default()));
            if data { with_data(spec) } else { spec }
        },
    )
}

fn with_rules(priorities: Vec<u8>) -> impl Strategy<Value = ServiceSpec> {
    let rules = (prop::bool::weighted(0.2), prop::bool::weighted(0.2), prop::option::weighted(0.2, 1_u32..3));
    (plain(priorities), rules).prop_map(|(mut spec, (distinct, whole, max_skew))| {
        let placement = &mut spec.placement;
        placement.distinct_hosts = distinct;
        placement.batching = if whole { Batching::AllOrNothing } else { Batching::AsManyAsFit };
        placement.max_skew = max_skew;
        spec
    })
}

fn start(low: Vec<u8>, high: impl Strategy<Value = Vec<ServiceSpec>>) -> impl Strategy<Value = Start> {
    let memory = vec((2_u64..11).prop_map(|units| units * 100), 1..=NODES.len());
    let low = vec(plain(low), 1..=LOW.len());
    (memory, low, high, vec(0_usize..100, 30)).prop_map(|(memory, low, high, stop_order)| Start {
        memory,
        low,
        high,
        stop_order,
    })
}

impl Start {
    /// The cluster in which the low-priority services run and the others have just been applied.
    fn cluster(&self) -> Cluster {
        let nodes = self.memory.iter().zip(NODES).map(|(memory, name)| node(name, 4000, *memory, &[]));
        let mut cluster = Cluster::of(nodes);
        cluster.allow_preemption();
        let low: Vec<_> = LOW.into_iter().zip(self.low.iter().cloned()).collect();
        cluster.apply(&low);
        cluster.settle();
        let high = HIGH.into_iter().zip(self.high.iter().cloned());
        cluster.apply(&low.iter().cloned().chain(high).collect::<Vec<_>>());
        cluster
    }
}

/// The replicas a plan stops. Here only preemption stops replicas, so these are the victims.
fn victims(plan: &Plan) -> Vec<(GroupKey, SlotKey)> {
    let stop = |group: &GroupKey, item: &PlanItem| match item {
        PlanItem::Stop(key) => Some((group.clone(), key.slot.clone())),
        _ => None,
    };
    plan.groups.iter().flat_map(|part| part.items.iter().filter_map(|item| stop(&part.group, item))).collect()
}

/// How many replicas with this memory fit once all stopping replicas, except one, have stopped.
fn room(cluster: &Cluster, needed: u64, but_for: Option<&(GroupKey, SlotKey)>) -> u64 {
    let mut free: BTreeMap<NodeName, u64> =
        cluster.state.nodes().map(|node| (node.name.clone(), node.capacity.memory_bytes)).collect();
    for (group, slot, replica) in cluster.state.replicas() {
        let stays = but_for.is_some_and(|(other, at)| (other, at) == (group, &slot.key));
        if replica.desired == DesiredState::Run || stays {
            *free.get_mut(&replica.assignment.node).expect("known") -= replica.assignment.reservation.memory_total();
        }
    }
    free.values().map(|free| free / needed).sum()
}

fn missing(cluster: &Cluster, service: &str) -> u64 {
    let Some(group) = cluster.state.group(&key(service)) else { return 0 };
    let running =
        group.slots.values().filter(|slot| slot.replicas.iter().any(|it| it.desired == DesiredState::Run)).count();
    u64::from(group.spec.replicas) - running as u64
}

fn limit_holds(cluster: &Cluster) -> bool {
    let used = cluster.memory_used();
    cluster.state.nodes().all(|node| used.get(&node.name).copied().unwrap_or(0) <= node.capacity.memory_bytes)
}

proptest! {
    #![proptest_config(cases(400))]

    /// One plain service: its victims are all at least ten priorities below it, stateless, and each of them is needed.
    #[test]
    fn victims_have_lower_priority_no_data_and_are_all_needed(
       // No low priority is ten above another, so a displaced service displaces nothing itself.
        start in start(vec![0, 5, 9], vec(plain(vec![10, 15, 30]), 1))
    ) {
        let mut cluster = start.cluster();
        let plan = cluster.decide();
        let victims = victims(&plan);
        let high = &start.high[0];
        for (group, slot) in &victims {
            let spec = &cluster.state.group(group).expect("known").spec;
            prop_assert!(spec.priority + 10 <= high.priority, "{} is displaced", slot.replica_id(group));
            prop_assert!(!spec.is_stateful(), "{} has data", slot.replica_id(group));
        }
        let needed = high.resources.memory_limit_bytes.unwrap_or(0);
        let missing = missing(&cluster, HIGH[0]);
        let with_all = room(&cluster, needed, None).min(missing);
        for victim in &victims {
            let without = room(&cluster, needed, Some(victim)).min(missing);
            prop_assert!(without < with_all, "{} is displaced needlessly: {plan:?}", victim.1.replica_id(&victim.0));
        }
        let again = cluster.plan();
        prop_assert!(again.is_empty(), "more victims before the first have stopped: {again:?}");
    }

    /// Several services with placement rules, stops observed in any order with passes in between: the cluster
    /// converges, every slot is placed or explained, and no victim has the same priority.
    #[test]
    fn preemption_converges_with_every_slot_placed_or_explained(
        start in start(vec![0, 5, 20, 45], vec(with_rules(vec![15, 30, 50, 100]), 1..=HIGH.len()))
    ) {
        let mut cluster = start.cluster();
        let highest = start.high.iter().map(|spec| spec.priority).max().unwrap_or(0);
        let mut stop_order = start.stop_order.iter().cycle();
        let mut rounds = 0;
        loop {
            let plan = cluster.decide();
            for (group, slot) in victims(&plan) {
                let spec = &cluster.state.group(&group).expect("known").spec;
                prop_assert!(spec.priority + 10 <= highest, "{} is displaced", slot.replica_id(&group));
                prop_assert!(!spec.is_stateful(), "{} has data", slot.replica_id(&group));
            }
            prop_assert!(limit_holds(&cluster));
            // A replica displaced and placed again in one plan can be displaced again by the next; that ends quickly.
            let passes = (0..4).take_while(|_| !cluster.decide().is_empty()).count();
            prop_assert!(passes < 4, "the scheduler keeps planning");
            cluster.run_all();
            let stopped = cluster.stop_one(*stop_order.next().expect("it cycles"));
            if plan.is_empty() && !stopped {
                break;
            }
            rounds += 1;
            prop_assert!(rounds < 200, "the cluster does not converge");
        }
        for (group, known) in cluster.state.groups() {
            for slot in known.slots.values() {
                let runs = slot.replicas.iter().any(|replica| replica.desired == DesiredState::Run);
                prop_assert!(runs || slot.waiting.is_some(), "{} has neither node nor reason", slot.key.replica_id(group));
            }
        }
        let mut rebuilt = cluster.rebuilt();
        let plan = longshore_scheduler::plan(&mut rebuilt, cluster.state.index(), cluster.now);
        prop_assert!(plan.is_empty(), "a rebuilt view finds more to do: {plan:?}");
    }
}
