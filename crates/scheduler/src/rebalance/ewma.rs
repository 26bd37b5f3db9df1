//! Exponentially weighted moving averages: the pressure of a node over the last minutes instead of its last sample.
//!
//! ```text
//! value += alpha * (sample - value)        alpha = 1 - exp(-dt / 5 min)
//! ```
//!
//! Owns: the smoothing, in integers, so that every leader computes the same value from the same samples.
//! Must not touch: the meaning of the value. Invariant: a smoothed value lies between the smallest and the largest
//! sample.

use std::time::Duration;

use longshore_model::{Time, rebalance::Share};

/// The time constant, after which a sample's weight has decayed to about a third: long enough to ignore a spike, short
/// enough to detect a lasting load within minutes.
const WINDOW: Duration = Duration::from_mins(5);
/// One, in the fixed point of [`alpha`]: eighteen decimals.
const ONE: u128 = 1_000_000_000_000_000_000;
/// Windows after which the old value has no weight in eighteen decimals: exp(-42) is below 10^-18.
const LONGEST: u128 = 42;

/// A value smoothed over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ewma {
    value: Share,
    at: Time,
}

impl Ewma {
    /// Starts with the first sample as the value.
    pub(crate) const fn seeded(sample: Share, at: Time) -> Self {
        Self { value: sample, at }
    }

    pub(crate) const fn value(self) -> Share {
        self.value
    }

    /// Adds a sample. One that is not newer than the last, as after a clock was set back, is ignored.
    pub(crate) fn update(&mut self, sample: Share, at: Time) {
        if at <= self.at {
            return;
        }
        self.value = blend(self.value, sample, alpha(at.since(self.at)));
        self.at = at;
    }

    /// Adjusts the value at once by a known change of load, but not below zero.
    pub(crate) fn shift(&mut self, by: Share) {
        self.value = self.value.plus(by).max(Share::NONE);
    }
}

/// The value `alpha` of the way to the sample, rounded to the nearest millionth.
fn blend(value: Share, sample: Share, alpha: u128) -> Share {
    let gap = i128::from(sample.0) - i128::from(value.0);
    let one = ONE.cast_signed();
    let step = gap * alpha.cast_signed();
    let rounded = (step + if step < 0 { -one / 2 } else { one / 2 }) / one;
    value.plus(Share(i64::try_from(rounded).unwrap_or(0)))
}

/// The weight of a sample that comes `gap` after the last, as a part of [`ONE`].
fn alpha(gap: Duration) -> u128 {
    let x = gap.as_millis().saturating_mul(ONE) / WINDOW.as_millis();
    if x >= LONGEST * ONE { ONE } else { ONE - decay(x) }
}

/// exp(-x): halves the argument until it is below one, sums the series, and squares the result as often.
fn decay(x: u128) -> u128 {
    let mut halvings = 0_u32;
    while x >> halvings >= ONE {
        halvings += 1;
    }
    let mut value = series(x >> halvings);
    for _ in 0..halvings {
        value = value * value / ONE;
    }
    value
}

/// 1 - x + x²/2! - x³/3! …, for x below one.
fn series(x: u128) -> u128 {
    let (mut sum, mut term) = (ONE, ONE);
    for place in 1_u128.. {
        term = term * x / ONE / place;
        if term == 0 {
            break;
        }
        if place.is_multiple_of(2) {
            sum += term;
        } else {
            sum -= term;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proptest_config::cases;

    fn assert_near(actual: u128, expected: u128) {
        let off = actual.abs_diff(expected);
        assert!(off < 1000, "{actual} is {off} away from {expected}");
    }

    #[test]
    fn alpha_matches_values_computed_by_hand() {
        // 1 - e^-0.1, 1 - e^-1, 1 - e^(-1/60), 1 - e^-0.2, 1 - e^-12, each to eighteen decimals.
        assert_near(alpha(Duration::from_secs(30)), 95_162_581_964_040_431);
        assert_near(alpha(Duration::from_mins(5)), 632_120_558_828_557_678);
        assert_near(alpha(Duration::from_secs(5)), 16_528_546_178_382_508);
        assert_near(alpha(Duration::from_mins(1)), 181_269_246_922_018_142);
        assert_near(alpha(Duration::from_hours(1)), 999_993_855_787_646_665);
    }

    #[test]
    fn alpha_is_zero_for_no_gap_and_one_for_a_day() {
        assert_eq!(alpha(Duration::ZERO), 0);
        assert_eq!(alpha(Duration::from_hours(24)), ONE);
        assert_eq!(alpha(Duration::MAX), ONE);
    }

    #[test]
    fn a_load_of_0_95_takes_ten_minutes_to_lift_a_node_from_0_2_to_the_trigger() {
        let mut ewma = Ewma::seeded(Share(200_000), Time(0));
        let crossed = (1..100).find(|cycle| {
            ewma.update(Share(950_000), Time(cycle * 30_000));
            ewma.value() >= Share(850_000)
        });
        // 0.95 - 0.75 e^(-t/5) = 0.85 at t = 10.07 minutes: the cycle after the twentieth.
        assert_eq!(crossed, Some(21));
    }

    #[test]
    fn a_single_spike_is_damped_to_a_tenth() {
        let mut ewma = Ewma::seeded(Share(200_000), Time(0));
        ewma.update(Share(1_000_000), Time(30_000));
        assert_eq!(ewma.value(), Share(276_130));
        ewma.update(Share(200_000), Time(60_000));
        assert_eq!(ewma.value(), Share(268_885));
    }

    #[test]
    fn a_clock_that_steps_back_changes_nothing() {
        let mut ewma = Ewma::seeded(Share(200_000), Time(60_000));
        for at in [60_000, 59_999, 0] {
            ewma.update(Share(1_000_000), Time(at));
        }
        assert_eq!(ewma, Ewma::seeded(Share(200_000), Time(60_000)));
    }

    #[test]
    fn a_shift_changes_the_value_at_once_and_never_below_zero() {
        let mut ewma = Ewma::seeded(Share(200_000), Time(0));
        ewma.shift(Share(50_000));
        assert_eq!(ewma.value(), Share(250_000));
        ewma.shift(Share(-400_000));
        assert_eq!(ewma.value(), Share::NONE);
    }

    proptest! {
        #![proptest_config(cases(256))]

        #[test]
        fn a_smoothed_value_stays_between_its_samples(
            samples in proptest::collection::vec((0_i64..=1_000_000, 1_u64..1_000_000), 1..50),
        ) {
            let mut ewma = Ewma::seeded(Share(samples[0].0), Time(0));
            let mut at = 0;
            for (sample, gap) in &samples {
                at += gap;
                ewma.update(Share(*sample), Time(at));
            }
            let bounds = samples.iter().map(|(sample, _)| *sample);
            let (low, high) = (bounds.clone().min().unwrap(), bounds.max().unwrap());
            prop_assert!((low..=high).contains(&ewma.value().0));
        }

        #[test]
        fn two_short_gaps_decay_like_one_long_gap(a in 1_u64..600_000, b in 1_u64..600_000) {
            let left = |millis: u64| ONE - alpha(Duration::from_millis(millis));
            let product = left(a) * left(b) / ONE;
            prop_assert!(product.abs_diff(left(a + b)) < 10_000);
        }
    }
}
