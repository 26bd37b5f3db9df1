//! Quantities with a unit, such as `11 GiB` or `1.4 GHz`, compared across units.
//!
//! Owns: the units and their dimensions. Units are case-sensitive: `mW` is not `MW`.
//! Invariant: no rounding. A number with more digits than fit exactly does not parse.

use std::cmp::Ordering;

/// Digits kept after the decimal point; device labels are never more precise.
const DECIMALS: usize = 9;

/// The dimension of a unit. Quantities of different dimensions are not comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dimension {
    Bytes,
    BytesPerSecond,
    Hertz,
    Watts,
}

/// A quantity, in billionths of the smallest unit of its dimension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantity {
    dimension: Dimension,
    billionths: u128,
}

impl Quantity {
    /// Parses `digits[.digits] unit`, with or without a space.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = text.split_at(split);
        let (dimension, factor) = unit_named(unit.trim_start())?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.len() > DECIMALS || fraction.contains('.') {
            return None;
        }
        let digits: u128 = format!("{whole}{fraction:0<DECIMALS$}").parse().ok()?;
        Some(Self { dimension, billionths: digits.checked_mul(u128::from(factor))? })
    }

    /// Compares two quantities; `None` if their dimensions differ.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        (self.dimension == other.dimension).then(|| self.billionths.cmp(&other.billionths))
    }
}

/// The dimension of a unit, and its size in the smallest unit of that dimension.
fn unit_named(unit: &str) -> Option<(Dimension, u64)> {
    if let Some(bytes) = unit.strip_suffix("/s") {
        return bytes_in(bytes).map(|factor| (Dimension::BytesPerSecond, factor));
    }
    let other = match unit {
        "Hz" => (Dimension::Hertz, 1),
        "kHz" => (Dimension::Hertz, 1_000),
        "MHz" => (Dimension::Hertz, 1_000_000),
        "GHz" => (Dimension::Hertz, 1_000_000_000),
        "mW" => (Dimension::Watts, 1),
        "W" => (Dimension::Watts, 1_000),
        "kW" => (Dimension::Watts, 1_000_000),
        "MW" => (Dimension::Watts, 1_000_000_000),
        "GW" => (Dimension::Watts, 1_000_000_000_000),
        bytes => (Dimension::Bytes, bytes_in(bytes)?),
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
        Quantity::parse(left).unwrap().compare(&Quantity::parse(right).unwrap())
    }

    #[test]
    fn quantities_compare_across_units() {
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
    fn quantities_of_different_dimensions_do_not_compare() {
        assert_eq!(compare("1 GiB", "1 GHz"), None);
        assert_eq!(compare("1 GiB", "1 GiB/s"), None);
    }

    #[test]
    fn invalid_quantities_are_rejected() {
        for text in ["", "GiB", "11", "11 gib", "1e3 W", "1.2.3 GB", ".5 GB", "1.0000000001 W", "-1 W", "9a"] {
            assert!(Quantity::parse(text).is_none(), "{text} is not a quantity");
        }
        assert!(Quantity::parse(&format!("{} EiB", u128::MAX)).is_none(), "too large to be exact");
    }
}
