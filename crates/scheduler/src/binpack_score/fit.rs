//! The best-fit term: the fuller the node would be, the higher.
//!
//! Powers of ten are looked up in two tables and corrected for the remainder, in fixed point, so that every machine
//! gets the same value. The error is below a billionth; floats were refused because their last digit may differ by
//! platform.

use super::ONE;

/// Fixed-point bits of powers: ten times `SCALE` still fits a `u64`.
const SCALE_BITS: u32 = 58;
const SCALE: u64 = 1 << SCALE_BITS;
/// Fixed-point bits of shares.
const SHARE_BITS: u32 = 40;
/// 10^(1/1024) and 10^(1/1048576), in `SCALE`.
const COARSE_STEP: u64 = 4_622_067_607_535_221_078 >> 4;
const FINE_STEP: u64 = 4_611_696_145_314_841_561 >> 4;
/// The natural logarithm of ten, in `SCALE`.
const LN_TEN: u64 = 10_618_799_479_599_967_255 >> 4;

const COARSE: [u64; 1025] = powers(COARSE_STEP);
const FINE: [u64; 1025] = powers(FINE_STEP);

const fn powers(step: u64) -> [u64; 1025] {
    let mut table = [SCALE; 1025];
    let mut at = 1;
    while at < table.len() {
        table[at] = multiply(table[at - 1], step);
        at += 1;
    }
    table
}

/// Product in `SCALE`, rounded.
#[expect(clippy::cast_possible_truncation, reason = "both factors are at most 10 in SCALE")]
const fn multiply(a: u64, b: u64) -> u64 {
    ((a as u128 * b as u128 + (SCALE / 2) as u128) >> SCALE_BITS) as u64
}

/// 10^share, in `SCALE`, for a share between 0 and 1.
fn power_of_ten(share: u64) -> u64 {
    let coarse = usize::try_from(share >> 30).map_or(1024, |at| at.min(1024));
    let fine = usize::try_from(share >> 20 & 1023).unwrap_or_default();
    let rest = share & ((1 << 20) - 1);
    let looked_up = multiply(COARSE[coarse], FINE[fine]);
    // 10^rest is 1 + rest × ln 10 to within 10^-11, for a rest below 2^-20.
    looked_up + multiply(looked_up, multiply(rest << (SCALE_BITS - SHARE_BITS), LN_TEN))
}

/// The free part of a limit, as a share; zero if more is used than the limit.
fn free_share(Utilization { used, limit }: Utilization) -> u64 {
    let free = limit.saturating_sub(used);
    if limit == 0 || free == 0 {
        return 0;
    }
    // Two 64-bit divisions instead of a 128-bit one: exact for limits below 2^44, which is 16 TiB in bytes.
    let first_bits = free.leading_zeros().min(SHARE_BITS);
    let shifted = free << first_bits;
    let rest_bits = SHARE_BITS - first_bits;
    ((shifted / limit) << rest_bits) + ((shifted % limit) << rest_bits) / limit
}

/// Use of one resource on a node, the new replica included, and the node's limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Utilization {
    pub(crate) used: u64,
    pub(crate) limit: u64,
}

/// The term, between 0 and [`ONE`].
pub(crate) fn best_fit(cpu: Utilization, memory: Utilization) -> i64 {
    let powers = power_of_ten(free_share(cpu)) + power_of_ten(free_share(memory));
    let room = (20 * u128::from(SCALE)).saturating_sub(u128::from(powers)).min(18 * u128::from(SCALE));
    let billionths = (room * u128::from(ONE.unsigned_abs()) / 18) >> SCALE_BITS;
    i64::try_from(billionths).unwrap_or(ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(cpu: (u64, u64), memory: (u64, u64)) -> i64 {
        let of = |(used, limit)| Utilization { used, limit };
        best_fit(of(cpu), of(memory))
    }

    /// Nomad publishes the function in eighteenths: full 18, empty 0, half 13.675.
    #[test]
    fn a_full_node_scores_one_an_empty_one_zero_and_a_half_full_one_as_published() {
        assert_eq!(fit((4000, 4000), (1 << 30, 1 << 30)), ONE);
        assert_eq!(fit((0, 4000), (0, 1 << 30)), 0);
        let half = fit((2000, 4000), (1 << 29, 1 << 30));
        assert!((half * 18 - 13_675_444_679).abs() < 100, "{half}");
    }

    #[test]
    fn more_than_full_counts_as_full() {
        assert_eq!(fit((9000, 4000), (1 << 30, 1 << 30)), ONE);
        assert_eq!(fit((0, 0), (0, 0)), ONE);
    }

    #[test]
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "the float is the reference")]
    fn every_share_agrees_with_the_real_power_to_a_hundred_millionth() {
        for used in (0..=1000_u64).step_by(7) {
            for total in [1000_u64, 1024, 12_345, 64 << 30, (16 << 40) - 1] {
                let amount = used * (total / 1000);
                let share = 1.0 - amount as f64 / total as f64;
                let exact = (20.0 - 2.0 * 10_f64.powf(share)).clamp(0.0, 18.0) / 18.0;
                let ours = fit((amount, total), (amount, total));
                assert!((ours - (exact * 1e9) as i64).abs() <= 10, "{amount} of {total}: {ours} against {exact}");
            }
        }
    }
}
