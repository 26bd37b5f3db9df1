//! Published values of the ranking terms, recomputed by hand, each to a millionth.

use std::collections::BTreeMap;

use longshore_model::{
    Attribute, Constraint, Operator, PlacementSpec, SlotIndex, SlotKey, Strategy,
    service::{Affinity, SpreadTarget},
};
use longshore_scheduler::explain_placed;

use super::cluster::{Cluster, key, node, service};

/// The score terms of each node, from the explanation of one replica of `web`.
fn scores(cluster: &mut Cluster, replica: u32) -> BTreeMap<String, BTreeMap<String, f64>> {
    let slot = SlotKey::Index(SlotIndex(replica));
    let decision = explain_placed(&mut cluster.view, &key("web"), &slot, cluster.now).expect("the replica is placed");
    #[expect(clippy::cast_precision_loss, reason = "a test may be off by a millionth")]
    let ones = |keys: Vec<(String, i64)>| keys.into_iter().map(|(name, value)| (name, value as f64 / 1e9)).collect();
    decision.best.into_iter().map(|ranked| (ranked.node.to_string(), ones(ranked.keys))).collect()
}

#[track_caller]
fn assert_close(found: Option<&f64>, expected: f64) {
    let found = found.copied().expect("the term applies");
    assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
}

fn likes(label: &str, value: &str, weight: i32) -> Affinity {
    let attribute = Attribute::Label(label.to_owned());
    Affinity { matches: Constraint { attribute, operator: Operator::Equal, value: value.to_owned() }, weight }
}

fn binpack(affinities: Vec<Affinity>, spread_targets: Vec<SpreadTarget>) -> PlacementSpec {
    PlacementSpec { strategy: Strategy::Binpack, affinities, spread_targets, ..PlacementSpec::default() }
}

fn target(label: &str, weight: u32, percent: &[(&str, u32)]) -> SpreadTarget {
    let percent = percent.iter().map(|(value, percent)| ((*value).to_owned(), *percent)).collect();
    SpreadTarget { over: Attribute::Label(label.to_owned()), weight, percent }
}

#[test]
fn the_worked_example_is_the_mean_of_its_three_terms() {
    // No CPU is requested, so all of it stays free: 10^1. Of memory 3 × 75,161 of a million are used: 10^0.774517 is
    // 5.95. So the fit is (20 − 15.95) / 18 = .225; two of five are here, −3/5; the only affinity matches, 1.
    let mut cluster = Cluster::of([node("a", 1000, 1_000_000, &[("ssd", "yes")]), node("b", 1000, 1_000_000, &[])]);
    cluster.apply(&[("web", service(5, 0, 75_161, binpack(vec![likes("ssd", "yes", 100)], Vec::new())))]);
    cluster.put("web", &["a", "a", "b"]);
    let scores = scores(&mut cluster, 2);
    assert_close(scores["a"].get("best_fit"), 0.225);
    assert_close(scores["a"].get("anti_affinity"), -0.6);
    assert_close(scores["a"].get("affinity"), 1.0);
    assert_close(scores["a"].get("score"), 0.625 / 3.0);
    // On b no affinity matches, but zero is still counted.
    assert_close(scores["b"].get("affinity"), 0.0);
    assert_close(scores["b"].get("score"), scores["b"]["best_fit"] / 2.0);
}

#[test]
fn the_fit_of_full_empty_and_half_full_nodes_matches_the_published_values() {
    let fit = |used: u64| {
        let mut cluster = Cluster::of([node("a", 2048, 2048, &[])]);
        cluster.apply(&[("web", service(1, used, used, binpack(Vec::new(), Vec::new())))]);
        cluster.decide_all();
        scores(&mut cluster, 0)["a"]["score"]
    };
    assert_close(Some(&fit(2048)), 1.0);
    assert_close(Some(&fit(0)), 0.0);
    // 20 − 2 × 10^½ = 13.675…, in eighteenths.
    assert_close(Some(&fit(1024)), 13.675_444_68 / 18.0);
}

#[test]
fn a_node_with_something_reserved_ranks_like_a_smaller_one() {
    let mut large = node("a", 4000, 4000, &[]);
    large.reserved.cpu_millis = 2000;
    large.reserved.memory_bytes = 2000;
    let mut cluster = Cluster::of([large, node("b", 2000, 2000, &[])]);
    cluster.apply(&[("web", service(1, 1000, 500, binpack(Vec::new(), Vec::new())))]);
    cluster.decide_all();
    let scores = scores(&mut cluster, 0);
    assert_close(scores["a"].get("score"), scores["b"]["score"]);
    assert_eq!(cluster.nodes_of("web"), ["a"], "the name breaks the tie");
}

#[test]
fn anti_affinity_and_recent_failure_match_the_published_values() {
    let mut cluster = Cluster::of([node("a", 1000, 1000, &[]), node("b", 1000, 1000, &[])]);
    cluster.apply(&[("web", service(4, 0, 0, binpack(Vec::new(), Vec::new())))]);
    cluster.put("web", &["a", "a", "b"]);
    cluster.fail("web", "a", 1);
    let scores = scores(&mut cluster, 2);
    assert_close(scores["a"].get("anti_affinity"), -0.75);
    assert_close(scores["a"].get("recent_failure"), -1.0);
    // Nothing is requested, so the fit is 0 and counts as a term.
    assert_close(scores["a"].get("score"), -1.75 / 3.0);
    assert!(!scores["b"].contains_key("anti_affinity") && !scores["b"].contains_key("recent_failure"));
}

type Labels = &'static [(&'static str, &'static str)];

#[test]
fn the_affinity_term_is_the_matching_share_of_all_absolute_weights() {
    let weights =
        vec![likes("dc", "1", 100), likes("kernel", "3", -100), likes("class", "large", 50), likes("rack", "2", 50)];
    let labels: [(&str, Labels, f64); 5] = [
        ("a", &[("dc", "1"), ("class", "large")], 0.5),
        ("b", &[("kernel", "3")], -1.0 / 3.0),
        ("c", &[("kernel", "3"), ("class", "large")], -1.0 / 6.0),
        ("d", &[("dc", "1")], 1.0 / 3.0),
        ("e", &[("dc", "1"), ("kernel", "3")], 0.0),
    ];
    let mut cluster = Cluster::of(labels.map(|(name, labels, _)| node(name, 1000, 1000, labels)));
    cluster.apply(&[("web", service(1, 500, 500, binpack(weights, Vec::new())))]);
    cluster.decide_all();
    let scores = scores(&mut cluster, 0);
    for (name, _, share) in labels {
        assert_close(scores[name].get("affinity"), share);
        assert_close(scores[name].get("score"), f64::midpoint(share, scores[name]["best_fit"]));
    }
}

#[test]
fn a_target_of_eighty_percent_boosts_until_it_is_reached() {
    let nodes = || [node("a", 1000, 1000, &[("dc", "1")]), node("b", 1000, 1000, &[("dc", "2")])];
    let spread = |placed: usize| {
        let mut cluster = Cluster::of(nodes());
        let targets = vec![target("dc", 100, &[("1", 80)])];
        cluster.apply(&[("web", service(10, 0, 0, binpack(Vec::new(), targets)))]);
        let mut at = vec!["a"; placed];
        at.push("b");
        cluster.put("web", &at);
        let scores = scores(&mut cluster, u32::try_from(placed).expect("few"));
        let boost = |node: &str| scores[node].get("spread_targets").copied().unwrap_or(0.0);
        (boost("a"), boost("b"))
    };
    // 8 of 10 are desired in the first: with 2 there, (8 − 3) / 8; of the remaining 2 for others, (2 − 1) / 2.
    let (first, second) = spread(2);
    assert_close(Some(&first), 0.625);
    assert_close(Some(&second), 0.5);
    // The eighth reaches the target: a zero boost is no term.
    let (first, second) = spread(7);
    assert_close(Some(&first), 0.0);
    assert_close(Some(&second), 0.5);
}

#[test]
fn two_targets_are_combined_by_weight() {
    let nodes = [("a", "1", "1"), ("b", "2", "1"), ("c", "1", "2"), ("d", "1", "2")];
    let mut cluster = Cluster::of(nodes.map(|(name, dc, rack)| node(name, 1000, 1000, &[("dc", dc), ("rack", rack)])));
    let targets = vec![target("dc", 100, &[("1", 60), ("2", 40)]), target("rack", 50, &[("1", 40), ("2", 60)])];
    cluster.apply(&[("web", service(10, 0, 0, binpack(Vec::new(), targets)))]);
    cluster.put("web", &["a", "d", "b"]);
    let scores = scores(&mut cluster, 2);
    for (node, boost) in [("a", 0.5), ("b", 2.0 / 3.0), ("c", 5.0 / 9.0), ("d", 5.0 / 9.0)] {
        assert_close(scores[node].get("spread_targets"), boost);
    }
}

#[test]
fn without_percentages_the_emptier_value_is_boosted() {
    let boosts = |counts: &[usize]| {
        let names = ["a", "b", "c"];
        let nodes = names.map(|name| node(name, 1000, 1000, &[("dc", name)]));
        let mut cluster = Cluster::of(nodes.into_iter().take(counts.len().max(2)));
        cluster.apply(&[("web", service(10, 0, 0, binpack(Vec::new(), vec![target("dc", 100, &[])])))]);
        let put: Vec<&str> = counts.iter().zip(names).flat_map(|(count, name)| vec![name; *count]).collect();
        // One more replica, which the explanation leaves out again.
        cluster.put("web", &put);
        cluster.put("web", &["b"]);
        let scores = scores(&mut cluster, u32::try_from(put.len()).expect("few"));
        let boost = |name: &&str| scores[*name].get("spread_targets").copied().unwrap_or(0.0);
        names.iter().take(counts.len()).map(boost).collect::<Vec<f64>>()
    };
    let expected: [(&[usize], &[f64]); 4] =
        [(&[0, 0], &[0.0, 0.0]), (&[2, 0], &[-1.0, 1.0]), (&[2, 3], &[0.5, -0.5]), (&[3, 3, 0], &[-1.0, -1.0, 1.0])];
    for (counts, values) in expected {
        for (found, value) in boosts(counts).iter().zip(values) {
            assert_close(Some(found), *value);
        }
    }
}

#[test]
fn a_value_without_a_share_and_a_missing_attribute_are_boosted_by_minus_one() {
    let mut cluster = Cluster::of([
        node("a", 1000, 1000, &[("dc", "1")]),
        node("b", 1000, 1000, &[("dc", "2")]),
        node("c", 1000, 1000, &[]),
        node("d", 1000, 1000, &[("dc", "3")]),
    ]);
    let targets = vec![target("dc", 100, &[("1", 100), ("3", 0)])];
    cluster.apply(&[("web", service(10, 0, 0, binpack(Vec::new(), targets)))]);
    cluster.put("web", &["a"]);
    let scores = scores(&mut cluster, 0);
    for node in ["b", "c", "d"] {
        assert_close(scores[node].get("spread_targets"), -1.0);
    }
}

#[test]
fn the_penalty_of_a_small_exceeded_share_has_no_lower_bound() {
    // 1 % of 8 is .08: (.08 − 1) / .08.
    let mut cluster = Cluster::of([node("a", 1000, 1000, &[("dc", "1")]), node("b", 1000, 1000, &[("dc", "2")])]);
    let targets = vec![target("dc", 100, &[("1", 99), ("2", 1)])];
    cluster.apply(&[("web", service(8, 0, 0, binpack(Vec::new(), targets)))]);
    cluster.put("web", &["a"]);
    assert_close(scores(&mut cluster, 0)["b"].get("spread_targets"), -11.5);
}
