//! Ordering of attribute values: numeric if both are numbers, by quantity if both have a unit, else lexicographic.
//!
//! Owns: decimal numbers of any length, compared digit by digit. Floats were refused: `9007199254740993` and
//! `9007199254740992` would be equal, and a decision must not depend on rounding.

use std::cmp::Ordering;

use super::quantity::Quantity;

/// Compares two attribute values; `None` if they are not comparable, such as `40` and `40 GiB`.
pub(super) fn compare(left: &str, right: &str) -> Option<Ordering> {
    let numbers = (Decimal::parse(left), Decimal::parse(right));
    if let (Some(left), Some(right)) = &numbers {
        return Some(left.compare(right));
    }
    match (Quantity::parse(left), Quantity::parse(right)) {
        (Some(left), Some(right)) => left.compare(&right),
        (Some(_), None) if numbers.1.is_some() => None,
        (None, Some(_)) if numbers.0.is_some() => None,
        (Some(_) | None, None) | (None, Some(_)) => Some(left.cmp(right)),
    }
}

/// Whether two strings are the same quantity in different units, such as `1 GiB` and `1024 MiB`.
pub(super) fn same_quantity(left: &str, right: &str) -> bool {
    let quantities = Quantity::parse(left).zip(Quantity::parse(right));
    quantities.is_some_and(|(left, right)| left.compare(&right) == Some(Ordering::Equal))
}

/// A decimal number, normalised.
#[derive(Debug)]
struct Decimal<'a> {
    sign: Sign,
    /// Without leading zeros.
    whole: &'a str,
    /// Without trailing zeros.
    fraction: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    Minus,
    Plus,
}

impl<'a> Decimal<'a> {
    /// Parses `[+-]digits[.digits]`. A number with an exponent is rejected and so compares as a string.
    fn parse(text: &'a str) -> Option<Self> {
        let text = text.trim();
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => (Sign::Minus, digits),
            None => (Sign::Plus, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !all_digits(whole) || !all_digits(fraction) {
            return None;
        }
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        // Minus zero is zero.
        let sign = if whole.is_empty() && fraction.is_empty() { Sign::Plus } else { sign };
        Some(Self { sign, whole, fraction })
    }

    fn compare(&self, other: &Self) -> Ordering {
        let magnitude = || {
            let whole = self.whole.len().cmp(&other.whole.len()).then_with(|| self.whole.cmp(other.whole));
            whole.then_with(|| self.fraction.cmp(other.fraction))
        };
        match (self.sign, other.sign) {
            (Sign::Plus, Sign::Plus) => magnitude(),
            (Sign::Minus, Sign::Minus) => magnitude().reverse(),
            (Sign::Plus, Sign::Minus) | (Sign::Minus, Sign::Plus) => self.sign.cmp(&other.sign),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_as_numbers_of_any_length() {
        for (small, large) in [
            ("1", "10"),
            ("9", "10"),
            ("1.5", "10.5"),
            ("1.45", "1.5"),
            ("-2", "-1"),
            ("-1", "0.5"),
            ("9007199254740992", "9007199254740993"),
            ("0.30000000000000000000", "0.30000000000000000001"),
            ("99999999999999999999", "100000000000000000000"),
        ] {
            assert_eq!(compare(small, large), Some(Ordering::Less), "{small} < {large}");
            assert_eq!(compare(large, small), Some(Ordering::Greater), "{large} > {small}");
        }
    }

    #[test]
    fn different_notations_of_one_number_are_equal() {
        for (one, other) in [("1", "1.0"), ("007", "7"), ("-0", "0"), ("+3", "3"), (".5", "0.50"), ("5.", "5")] {
            assert_eq!(compare(one, other), Some(Ordering::Equal), "{one} = {other}");
        }
    }

    #[test]
    fn quantities_compare_with_quantities_only() {
        assert_eq!(compare("9 GiB", "10 GiB"), Some(Ordering::Less));
        assert_eq!(compare("9 GiB", "10"), None);
        assert_eq!(compare("10", "9 GiB"), None);
        assert_eq!(compare("9 GiB", "large"), Some(Ordering::Less), "as strings");
        assert!(same_quantity("1 GiB", "1024 MiB") && !same_quantity("1 GiB", "1 GB") && !same_quantity("1", "1.0"));
    }

    #[test]
    fn values_that_are_not_numbers_compare_as_strings() {
        assert_eq!(compare("foo", "bar"), Some(Ordering::Greater));
        assert_eq!(compare("1", "foo"), Some(Ordering::Less));
        assert_eq!(compare("10", "9a"), Some(Ordering::Less));
        assert_eq!(compare("1e3", "2"), Some(Ordering::Less));
        for text in ["", ".", "-", "1.2.3", "1,5", "0x10"] {
            assert!(Decimal::parse(text).is_none(), "{text} is not a number");
        }
    }
}
