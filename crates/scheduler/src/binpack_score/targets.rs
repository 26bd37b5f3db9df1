//! Spread targets: the shares of a service aimed at per value of an attribute.
//!
//! With percentages, a value is boosted by how far it is below its share; values not named share the remainder.
//! Without, values are balanced between the fewest and the most replicas that any used value has. Both are weighted
//! against the other targets of the service. A node without the attribute, or with a value of no share, is boosted by
//! −1.
//!
//! Owns: the boost of a value. Invariant: the boost depends only on the counts, not on the order of placements.

use std::collections::BTreeMap;

use longshore_model::service::SpreadTarget;

use super::ONE;
use crate::{
    request::PlacementRequest,
    view::{NodeIx, View, classes},
};

/// All spread targets of a service, with the replicas placed so far.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    targets: Vec<Target>,
}

#[derive(Debug)]
struct Target {
    /// This target's weight, and the sum of all of them.
    weight: (i64, i64),
    kind: Kind,
    values: Vec<Value>,
    by_name: BTreeMap<String, usize>,
    /// The fewest and the most replicas of any value that has some. Cached, because a batch reads them for every value
    /// and placement.
    extremes: Option<(i64, i64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Even,
    Percent,
}

#[derive(Debug, Default)]
struct Value {
    used: u32,
    /// Desired replicas, in hundredths; `None` if the value has no share.
    desired: Option<i64>,
}

/// A node's value for each target, as an index into that target's values; `None` if the node lacks the attribute.
pub(crate) type TargetValues = Vec<Option<usize>>;

/// The entry that all values without a percentage of their own share.
const OTHERS: &str = "*";

impl Targets {
    /// Reads the targets of the request and counts the service's existing replicas.
    pub(crate) fn new(request: &PlacementRequest, view: &View) -> Self {
        let targets = &request.spec.placement.spread_targets;
        let weights: i64 = targets.iter().map(|target| i64::from(target.weight)).sum();
        let count = i64::from(request.spec.replicas);
        let mut made = Self { targets: targets.iter().map(|target| Target::new(target, weights, count)).collect() };
        for node in request.counts.nodes() {
            let values = made.values(request, view, node);
            made.add(&values, request.counts.get(node));
        }
        made
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// The target values of a node.
    pub(crate) fn values(&mut self, request: &PlacementRequest, view: &View, node: NodeIx) -> TargetValues {
        let known = view.nodes.node(node);
        let asked = &request.spec.placement.spread_targets;
        let values = asked.iter().map(|target| classes::value(known, &target.over));
        self.targets.iter_mut().zip(values).map(|(target, value)| Some(target.value_index(&value?))).collect()
    }

    /// Counts `count` more replicas on nodes with these values.
    pub(crate) fn add(&mut self, values: &TargetValues, count: u32) {
        for (target, value) in self.targets.iter_mut().zip(values) {
            if let Some(at) = value {
                target.add(*at, count);
            }
        }
    }

    /// The boost of nodes with these values. Targets that cancel out give exactly zero, although each was truncated to
    /// billionths: a zero boost is no term, and an extra term would change the mean.
    pub(crate) fn boost(&self, values: &TargetValues) -> i64 {
        let sum: i64 = self.targets.iter().zip(values).map(|(target, value)| target.boost(*value)).sum();
        if sum.unsigned_abs() < self.targets.len() as u64 { 0 } else { sum }
    }
}

impl Target {
    fn new(spec: &SpreadTarget, weights: i64, count: i64) -> Self {
        let kind = if spec.percent.is_empty() { Kind::Even } else { Kind::Percent };
        let weight = (i64::from(spec.weight), weights.max(1));
        let mut target = Self { weight, kind, values: Vec::new(), by_name: BTreeMap::new(), extremes: None };
        let mut left = 100;
        for (value, percent) in &spec.percent {
            left -= i64::from(*percent);
            target.add_value(value, Some(i64::from(*percent) * count));
        }
        if kind == Kind::Percent && !target.by_name.contains_key(OTHERS) {
            target.add_value(OTHERS, (left > 0).then_some(left * count));
        }
        target
    }

    fn add_value(&mut self, name: &str, desired: Option<i64>) -> usize {
        self.values.push(Value { used: 0, desired });
        self.by_name.insert(name.to_owned(), self.values.len() - 1);
        self.values.len() - 1
    }

    fn add(&mut self, at: usize, count: u32) {
        self.values[at].used += count;
        let seen = self.values.iter().map(|value| i64::from(value.used)).filter(|used| *used > 0);
        self.extremes = seen.clone().min().zip(seen.max());
    }

    fn value_index(&mut self, name: &str) -> usize {
        match (self.by_name.get(name), self.kind) {
            (Some(at), _) => *at,
            (None, Kind::Percent) => self.by_name[OTHERS],
            (None, Kind::Even) => self.add_value(name, None),
        }
    }

    fn boost(&self, value: Option<usize>) -> i64 {
        let Some(value) = value.map(|at| &self.values[at]) else { return -ONE };
        match self.kind {
            Kind::Percent => match value.desired {
                Some(desired) if desired > 0 => {
                    let short = desired - 100 * (i64::from(value.used) + 1);
                    self.weigh(short, desired)
                }
                Some(_) | None => -ONE,
            },
            Kind::Even => self.even_boost(i64::from(value.used)),
        }
    }

    fn even_boost(&self, used: i64) -> i64 {
        let Some((fewest, most)) = self.extremes else { return 0 };
        if used != fewest {
            self.weigh(fewest - used, fewest)
        } else if fewest == most {
            self.weigh(-1, 1)
        } else {
            self.weigh(most - fewest, fewest)
        }
    }

    /// The fraction `boost / of` times the target's share of the weights, truncated once.
    fn weigh(&self, boost: i64, of: i64) -> i64 {
        let (weight, weights) = self.weight;
        let product = i128::from(boost) * i128::from(weight) * i128::from(ONE) / (i128::from(of) * i128::from(weights));
        i64::try_from(product).unwrap_or(if product < 0 { i64::MIN / 4 } else { i64::MAX / 4 })
    }
}

#[cfg(test)]
mod tests {
    use longshore_model::Attribute;

    use super::*;

    fn target(percent: &[(&str, u32)], count: i64, used: &[(&str, u32)]) -> Target {
        let percent = percent.iter().map(|(value, percent)| ((*value).to_owned(), *percent)).collect();
        let spec = SpreadTarget { over: Attribute::Label("dc".to_owned()), weight: 50, percent };
        let mut target = Target::new(&spec, 50, count);
        for (value, used) in used {
            let at = target.value_index(value);
            target.add(at, *used);
        }
        target
    }

    fn boosts(target: &mut Target, values: &[&str]) -> Vec<i64> {
        let indexes: Vec<usize> = values.iter().map(|value| target.value_index(value)).collect();
        indexes.into_iter().map(|at| target.boost(Some(at))).collect()
    }

    #[test]
    fn percentages_boost_what_is_below_its_share() {
        let mut new = target(&[("dc1", 80)], 10, &[("dc1", 2)]);
        assert_eq!(boosts(&mut new, &["dc1", "dc2"]), [625_000_000, 500_000_000]);
        let mut full = target(&[("dc1", 80)], 10, &[("dc1", 7)]);
        assert_eq!(boosts(&mut full, &["dc1", "dc2"]), [0, 500_000_000]);
    }

    #[test]
    fn a_value_without_a_share_and_a_share_of_zero_are_boosted_by_minus_one() {
        let mut all = target(&[("dc1", 100)], 10, &[]);
        assert_eq!(boosts(&mut all, &["dc2"]), [-ONE]);
        let mut none = target(&[("dc1", 0), ("dc2", 100)], 10, &[]);
        assert_eq!(boosts(&mut none, &["dc1"]), [-ONE]);
        assert_eq!(none.boost(None), -ONE);
    }

    #[test]
    fn the_penalty_of_an_exceeded_share_has_no_lower_bound() {
        // 1 % of 8 is 0.08; the first replica beyond it is worth (0.08 − 1) / 0.08.
        let mut lopsided = target(&[("dc1", 99), ("dc2", 1)], 8, &[]);
        assert_eq!(boosts(&mut lopsided, &["dc2"]), [-11_500_000_000]);
    }

    #[test]
    fn without_percentages_values_are_balanced() {
        assert_eq!(boosts(&mut target(&[], 10, &[]), &["dc1"]), [0]);
        assert_eq!(boosts(&mut target(&[], 10, &[("dc1", 2)]), &["dc1", "dc2"]), [-ONE, ONE]);
        assert_eq!(
            boosts(&mut target(&[], 10, &[("dc1", 2), ("dc2", 3)]), &["dc1", "dc2"]),
            [500_000_000, -500_000_000]
        );
        assert_eq!(boosts(&mut target(&[], 10, &[("dc1", 3), ("dc2", 3)]), &["dc1", "dc2", "dc3"]), [-ONE, -ONE, ONE]);
    }

    #[test]
    fn two_targets_are_weighted_against_each_other() {
        let spec = |weight| SpreadTarget { over: Attribute::Label("dc".to_owned()), weight, percent: BTreeMap::new() };
        let (mut heavy, light) = (Target::new(&spec(75), 100, 4), Target::new(&spec(25), 100, 4));
        let at = heavy.value_index("dc1");
        heavy.add(at, 1);
        assert_eq!(heavy.boost(Some(at)), -750_000_000);
        assert_eq!(light.weigh(1, 1), 250_000_000);
    }
}
