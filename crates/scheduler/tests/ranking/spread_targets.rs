//! Spread targets end to end: how many replicas each attribute value ends up with.

use std::collections::BTreeMap;

use longshore_model::{Attribute, Node, PlacementSpec, Strategy, service::SpreadTarget};

use super::cluster::{Cluster, node, service};

/// `binpack` with a spread target over a label, with a percentage for some values.
fn over(label: &str, percent: &[(&str, u32)]) -> PlacementSpec {
    let percent = percent.iter().map(|(value, percent)| ((*value).to_owned(), *percent)).collect();
    let target = SpreadTarget { over: Attribute::Label(label.to_owned()), weight: 100, percent };
    PlacementSpec { strategy: Strategy::Binpack, spread_targets: vec![target], ..PlacementSpec::default() }
}

/// Nodes distributed round robin over racks. The size of a node depends on its number, so that ranks differ.
fn racks(machines: usize, racks: usize) -> impl Iterator<Item = Node> {
    (0..machines).map(move |number| {
        let (rack, size) = (format!("r{:03}", number % racks), 8000 + 4000 * (number as u64 % 3));
        node(&format!("n{number:05}"), size, size << 20, &[("rack", &rack)])
    })
}

/// Replicas of `web` per value of a label.
fn shares(cluster: &Cluster, label: &str) -> BTreeMap<String, usize> {
    let mut shares: BTreeMap<String, usize> =
        cluster.state.nodes().map(|node| (node.labels[label].clone(), 0)).collect();
    for node in cluster.nodes_of("web") {
        let node = cluster.state.node(&node.as_str().into()).expect("a replica's node exists");
        *shares.entry(node.labels[label].clone()).or_default() += 1;
    }
    shares
}

#[test]
fn over_many_racks_no_two_racks_differ_by_more_than_one() {
    // Nodes, racks and replicas. Nomad's test, with sampling, allows three consecutive values.
    let clusters = [
        (100, 10, 300),
        (100, 7, 100),
        (200, 40, 1000),
        (500, 25, 50),
        (500, 50, 500),
        (1000, 75, 1200),
        (1000, 10, 7),
        (60, 60, 61),
    ];
    for (machines, number, replicas) in clusters {
        let mut cluster = Cluster::of(racks(machines, number));
        cluster.apply(&[("web", service(replicas, 10, 1 << 20, over("rack", &[])))]);
        cluster.decide();
        let shares = shares(&cluster, "rack");
        assert_eq!(shares.values().sum::<usize>(), replicas as usize);
        let (least, most) = (shares.values().min().copied(), shares.values().max().copied());
        assert!(most <= least.map(|least| least + 1), "{machines} machines, {number} racks, {replicas}: {shares:?}");
    }
}

#[test]
fn values_without_a_percentage_share_the_remainder() {
    let machines = |zones: &[&'static str]| {
        let zones = zones.to_vec();
        (0..12_usize)
            .map(move |number| node(&format!("n{number:02}"), 4000, 8 << 30, &[("zone", zones[number % zones.len()])]))
    };
    for (zones, percent, expected) in [
        (&["z1", "z2"][..], &[("z1", 50)][..], &[6, 6][..]),
        (&["z1", "z2"], &[("z1", 50), ("z2", 50)], &[6, 6]),
        (&["z1", "z2", "z3"], &[("z1", 50)], &[6, 3, 3]),
    ] {
        let mut cluster = Cluster::of(machines(zones));
        cluster.apply(&[("web", service(12, 10, 1 << 20, over("zone", percent)))]);
        cluster.decide();
        assert_eq!(shares(&cluster, "zone").into_values().collect::<Vec<_>>(), expected, "{zones:?} with {percent:?}");
    }
}
