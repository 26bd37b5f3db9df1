//! Shares of a service aimed at per value of an attribute.
//!
//! With percentages, a value is boosted by how far it is below its share; values not named share what is left over.
//! Without, values are levelled against the emptiest and fullest that have any. Both are weighted against the other
//! targets of the service. A node without the attribute, or with a value nobody wants, is boosted by −1.
//!
//! Owns: the boost of a value. Invariant: only the counts matter, in no order.

use std::collections::BTreeMap;

use longshore_model::service::SpreadTarget;

use super::ONE;
use crate::{
    ask::Ask,
    view::{NodeIx, View, classes},
};

/// All targets of a service, with what is placed so far.
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
    /// The fewest and the most any value has, among those that have any. Kept, because a batch asks for them once for
    /// each value and placement.
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
    /// Replicas wanted, in hundredths; `None` where nobody wants the value.
    desired: Option<i64>,
}

/// The values a node has for each target, as numbers; `None` where it has none.
pub(crate) type Spot = Vec<Option<usize>>;

/// Every value that is not named is this one.
const OTHERS: &str = "*";

impl Targets {
    /// Reads the targets and counts what the service has.
    pub(crate) fn new(ask: &Ask, view: &View) -> Self {
        let targets = &ask.spec.placement.spread_targets;
        let weights: i64 = targets.iter().map(|target| i64::from(target.weight)).sum();
        let count = i64::from(ask.spec.replicas);
        let mut made = Self { targets: targets.iter().map(|target| Target::new(target, weights, count)).collect() };
        for node in ask.counts.nodes() {
            let spot = made.spot(ask, view, node);
            made.add(&spot, ask.counts.get(node));
        }
        made
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Where a node stands.
    pub(crate) fn spot(&mut self, ask: &Ask, view: &View, node: NodeIx) -> Spot {
        let known = view.fleet.node(node);
        let asked = &ask.spec.placement.spread_targets;
        let values = asked.iter().map(|target| classes::value(known, &target.over));
        self.targets.iter_mut().zip(values).map(|(target, value)| Some(target.number(&value?))).collect()
    }

    /// So many more replicas at a spot.
    pub(crate) fn add(&mut self, spot: &Spot, count: u32) {
        for (target, value) in self.targets.iter_mut().zip(spot) {
            if let Some(at) = value {
                target.add(*at, count);
            }
        }
    }

    /// What a spot is worth now. Targets that cancel each other out are worth nothing, though each was cut to billionths:
    /// a term of nothing is none, and one too many would change the mean.
    pub(crate) fn boost(&self, spot: &Spot) -> i64 {
        let sum: i64 = self.targets.iter().zip(spot).map(|(target, value)| target.boost(*value)).sum();
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

    fn number(&mut self, name: &str) -> usize {
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

    /// A fraction times the target's share of the weights, cut only once.
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
            let at = target.number(value);
            target.add(at, *used);
        }
        target
    }

    fn boosts(target: &mut Target, values: &[&str]) -> Vec<i64> {
        let spots: Vec<usize> = values.iter().map(|value| target.number(value)).collect();
        spots.into_iter().map(|at| target.boost(Some(at))).collect()
    }

    #[test]
    fn percentages_boost_what_is_below_its_share() {
        let mut new = target(&[("dc1", 80)], 10, &[("dc1", 2)]);
        assert_eq!(boosts(&mut new, &["dc1", "dc2"]), [625_000_000, 500_000_000]);
        let mut full = target(&[("dc1", 80)], 10, &[("dc1", 7)]);
        assert_eq!(boosts(&mut full, &["dc1", "dc2"]), [0, 500_000_000]);
    }

    #[test]
    fn a_value_nobody_wants_and_a_share_of_nothing_are_worth_minus_one() {
        let mut all = target(&[("dc1", 100)], 10, &[]);
        assert_eq!(boosts(&mut all, &["dc2"]), [-ONE]);
        let mut none = target(&[("dc1", 0), ("dc2", 100)], 10, &[]);
        assert_eq!(boosts(&mut none, &["dc1"]), [-ONE]);
        assert_eq!(none.boost(None), -ONE);
    }

    #[test]
    fn a_share_long_exceeded_weighs_against_the_value_without_bound() {
        // 1 % of 8 is 0.08; the first replica beyond it is worth (0.08 − 1) / 0.08.
        let mut lopsided = target(&[("dc1", 99), ("dc2", 1)], 8, &[]);
        assert_eq!(boosts(&mut lopsided, &["dc2"]), [-11_500_000_000]);
    }

    #[test]
    fn without_percentages_values_are_levelled() {
        assert_eq!(boosts(&mut target(&[], 10, &[]), &["dc1"]), [0]);
        assert_eq!(boosts(&mut target(&[], 10, &[("dc1", 2)]), &["dc1", "dc2"]), [-ONE, ONE]);
        assert_eq!(
            boosts(&mut target(&[], 10, &[("dc1", 2), ("dc2", 3)]), &["dc1", "dc2"]),
            [500_000_000, -500_000_000]
        );
        assert_eq!(boosts(&mut target(&[], 10, &[("dc1", 3), ("dc2", 3)]), &["dc1", "dc2", "dc3"]), [-ONE, -ONE, ONE]);
    }

    #[test]
    fn two_targets_share_by_weight() {
        let spec = |weight| SpreadTarget { over: Attribute::Label("dc".to_owned()), weight, percent: BTreeMap::new() };
        let (mut heavy, light) = (Target::new(&spec(75), 100, 4), Target::new(&spec(25), 100, 4));
        let at = heavy.number("dc1");
        heavy.add(at, 1);
        assert_eq!(heavy.boost(Some(at)), -750_000_000);
        assert_eq!(light.weigh(1, 1), 250_000_000);
    }
}
