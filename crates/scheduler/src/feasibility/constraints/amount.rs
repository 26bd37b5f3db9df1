//! Amounts with a unit, as `11 GiB` or `1.4 GHz`, compared by what they amount to.
//!
//! Owns: the units, and which of them measure the same. Case counts in a unit: `mW` is not `MW`.
//! Invariant: no rounding. What has more digits than can be kept exactly is no amount.

use std::cmp::Ordering;

/// Digits after the point that are kept; nobody labels a device more exactly.
const DECIMALS: usize = 9;

/// What units measure. Unlike ones have no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Bytes,
    BytesPerSecond,
    Hertz,
    Watts,
}

/// So much of something, in billionths of the smallest unit of its measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    measure: Measure,
    billionths: u128,
}

impl Amount {
    /// Reads `digits[.digits] unit`, with or without a space.
    pub(super) fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = text.split_at(split);
        let (measure, factor) = unit_named(unit.trim_start())?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.len() > DECIMALS || fraction.contains('.') {
            return None;
        }
        let digits: u128 = format!("{whole}{fraction:0<DECIMALS$}").parse().ok()?;
        Some(Self { measure, billionths: digits.checked_mul(u128::from(factor))? })
    }

    /// How two amounts compare; nothing where they measure unlike things.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        (self.measure == other.measure).then(|| self.billionths.cmp(&other.billionths))
    }
}

/// What a unit measures, and how many of the smallest of that measure it is.
fn unit_named(unit: &str) -> Option<(Measure, u64)> {
    if let Some(bytes) = unit.strip_suffix("/s") {
        return bytes_in(bytes).map(|factor| (Measure::BytesPerSecond, factor));
    }
    let other = match unit {
        "Hz" => (Measure::Hertz, 1),
        "kHz" => (Measure::Hertz, 1_000),
        "MHz" => (Measure::Hertz, 1_000_000),
        "GHz" => (Measure::Hertz, 1_000_000_000),
        "mW" => (Measure::Watts, 1),
        "W" => (Measure::Watts, 1_000),
        "kW" => (Measure::Watts, 1_000_000),
        "MW" => (Measure::Watts, 1_000_000_000),
        "GW" => (Measure::Watts, 1_000_000_000_000),
        bytes => (Measure::Bytes, bytes_in(bytes)?),
    };
    Some(other)
}

fn bytes_in(unit: &str) -> Option<u64> {
    Some(match unit {
        "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "PB" => 1_000_000_000_000_000,
        "EB" => 1_000_000_000_000_000_000,
        "kiB" | "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "PiB" => 1 << 50,
        "EiB" => 1 << 60,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(left: &str, right: &str) -> Option<Ordering> {
        Amount::read(left).unwrap().compare(&Amount::read(right).unwrap())
    }

    #[test]
    fn amounts_compare_by_what_they_amount_to() {
        for (small, large) in [
            ("900 MiB", "1GiB"),
            ("1 GB", "1 GiB"),
            ("1.5 GiB", "1537 MiB"),
            ("999 MHz", "1 GHz"),
            ("5 mW", "1 W"),
            ("1 KiB/s", "1 MB/s"),
        ] {
            assert_eq!(compare(small, large), Some(Ordering::Less), "{small} < {large}");
        }
        assert_eq!(compare("11 GiB", "11264 MiB"), Some(Ordering::Equal));
        assert_eq!(compare("0.5 kW", "500 W"), Some(Ordering::Equal));
    }

    #[test]
    fn what_measures_something_else_has_no_order() {
        assert_eq!(compare("1 GiB", "1 GHz"), None);
        assert_eq!(compare("1 GiB", "1 GiB/s"), None);
    }

    #[test]
    fn what_is_no_amount_is_left_alone() {
        for text in ["", "GiB", "11", "11 gib", "1e3 W", "1.2.3 GB", ".5 GB", "1.0000000001 W", "-1 W", "9a"] {
            assert!(Amount::read(text).is_none(), "{text} is no amount");
        }
        assert!(Amount::read(&format!("{} EiB", u128::MAX)).is_none(), "too large to be exact");
    }
}
