//! `max_skew` with every strategy that chooses nodes.

use longshore_model::{Attribute, PlacementSpec, Strategy};
use proptest::{collection::vec, prelude::*, sample::select};

use super::cluster::{Cluster, node, service};
use crate::proptest_config::cases;

fn level(strategy: Strategy, max_skew: u32) -> PlacementSpec {
    let preferences = vec![Attribute::Label("zone".to_owned())];
    PlacementSpec { strategy, preferences, max_skew: Some(max_skew), ..PlacementSpec::default() }
}

fn zones(cluster: &Cluster, service: &str) -> (usize, usize) {
    let nodes = cluster.nodes_of(service);
    let on = |zone: char| nodes.iter().filter(|name| name.starts_with(zone)).count();
    (on('a'), on('b'))
}

#[test]
fn the_larger_zone_waits_for_the_full_one_with_every_strategy() {
    for strategy in [Strategy::Spread, Strategy::LeastLoaded, Strategy::Binpack, Strategy::Hash] {
        let zones_of = [("a1", "a", 300), ("b1", "b", 1000), ("b2", "b", 1000)];
        let mut cluster = Cluster::of(zones_of.map(|(name, zone, memory)| node(name, 4000, memory, &[("zone", zone)])));
        cluster.apply(&[("web", service(8, 0, 100, level(strategy, 2)))]);
        cluster.decide_all();
        assert_eq!(zones(&cluster, "web"), (3, 5), "{}", strategy.as_str());
    }
}

#[test]
fn a_zone_of_faulty_nodes_is_used_last_and_does_not_block_the_other() {
    for strategy in [Strategy::Spread, Strategy::LeastLoaded, Strategy::Binpack] {
        let zones_of = [("a1", "a"), ("b1", "b")];
        let mut cluster = Cluster::of(zones_of.map(|(name, zone)| node(name, 4000, 1000, &[("zone", zone)])));
        cluster.apply(&[("web", service(5, 0, 100, level(strategy, 1)))]);
        cluster.fail("web", "a1", 5);
        assert_eq!(cluster.decide().placements(), 5, "{}", strategy.as_str());
        assert_eq!(zones(&cluster, "web"), (2, 3), "{}", strategy.as_str());
        assert!(cluster.plan().is_empty());
    }
}

proptest! {
    #![proptest_config(cases(400))]

    /// Zones and racks of different sizes: no branch that received a replica is more than `max_skew` above the lowest,
    /// and a replica waits only if every node would exceed the skew or has no memory.
    #[test]
    fn branches_stay_within_the_skew_and_no_replica_waits_needlessly(
        machines in vec((0_usize..3, 0_usize..2, 1_u64..6), 1..8),
        strategy in select(vec![Strategy::Spread, Strategy::LeastLoaded, Strategy::Binpack, Strategy::Hash]),
        depth in 0_usize..3,
        max_skew in 1_u32..3,
        replicas in 1_u32..15,
        grown in 0_u32..5,
    ) {
        let names: Vec<String> = (0..machines.len()).map(|at| format!("n{at}")).collect();
        let of = |at: usize| (format!("z{}", machines[at].0), format!("r{}", machines[at].1));
        let nodes = names.iter().enumerate().map(|(at, name)| {
            let (zone, rack) = of(at);
            node(name, 4000, machines[at].2 * 100, &[("zone", &zone), ("rack", &rack)])
        });
        let mut cluster = Cluster::of(nodes);
        let preferences: Vec<_> =
            ["zone", "rack"].into_iter().take(depth).map(|label| Attribute::Label(label.to_owned())).collect();
        let placement = PlacementSpec { strategy, preferences, max_skew: Some(max_skew), ..PlacementSpec::default() };
        for replicas in [replicas, replicas + grown] {
            cluster.apply(&[("web", service(replicas, 0, 100, placement.clone()))]);
            cluster.decide();
            prop_assert!(cluster.plan().is_empty(), "an applied plan leaves more to do");
        }
        let path = |at: usize, depth: usize| -> Vec<String> {
            let (zone, rack) = of(at);
            let levels = if depth_of(&placement) == 0 { vec![names[at].clone()] } else { vec![zone, rack] };
            levels.into_iter().take(depth).collect()
        };
        let placed: Vec<usize> =
            cluster.nodes_of("web").iter().map(|node| names.iter().position(|name| name == node).expect("ours")).collect();
        let skew = |at: usize, more: usize| -> usize {
            (1..=depth_of(&placement).max(1)).map(|depth| {
                let here = path(at, depth);
                let count = |branch: &[String]| placed.iter().filter(|at| path(**at, depth) == branch).count();
                let siblings = (0..machines.len()).map(|at| path(at, depth));
                let lowest = siblings.filter(|path| path[..depth - 1] == here[..depth - 1]).map(|path| count(&path)).min();
                (count(&here) + more).saturating_sub(lowest.unwrap_or(0))
            }).max().unwrap_or(0)
        };
        for at in &placed {
            prop_assert!(skew(*at, 0) <= max_skew as usize, "{} is too high: {placed:?}", names[*at]);
        }
        let room = |at: usize| placed.iter().filter(|other| **other == at).count() < usize::try_from(machines[at].2).expect("small");
        let open: Vec<&String> =
            (0..machines.len()).filter(|at| room(*at) && skew(*at, 1) <= max_skew as usize).map(|at| &names[at]).collect();
        prop_assert!(placed.len() == (replicas + grown) as usize || open.is_empty(), "{open:?} would do: {placed:?}");
    }
}

fn depth_of(placement: &PlacementSpec) -> usize {
    placement.preferences.len()
}
