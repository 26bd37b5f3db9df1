//! Versions: dotted numbers, then perhaps a pre-release, then perhaps build metadata that nobody compares.
//!
//! Owns: reading a version and which of two is newer. Must not touch: bounds, which decide about pre-releases.

use std::cmp::Ordering;

use smallvec::SmallVec;

/// A version as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    /// Filled up with zeros to three.
    pub(super) numbers: SmallVec<[u64; 4]>,
    /// How many numbers were written.
    pub(super) written: usize,
    /// Empty for a release.
    pub(super) pre_release: String,
}

/// How strictly a version is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// `1.2beta` is `1.2-beta`.
    Loose,
    /// A pre-release needs its dash.
    Strict,
}

impl Version {
    pub(super) fn read(text: &str, reading: Reading) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
        let (written, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
        let pre_release = match (rest.strip_prefix('-'), reading) {
            (Some(named), Reading::Loose | Reading::Strict) => Some(named),
            (None, Reading::Loose) => (!rest.is_empty()).then_some(rest),
            (None, Reading::Strict) if rest.is_empty() => None,
            (None, Reading::Strict) => return None,
        };
        if !pre_release.is_none_or(are_identifiers) || !build.is_none_or(are_identifiers) {
            return None;
        }
        // `parse` alone would take a `+` in front, but only digits got here.
        let mut numbers: SmallVec<[u64; 4]> = SmallVec::new();
        for number in written.split('.') {
            numbers.push(number.parse().ok()?);
        }
        let written = numbers.len();
        if written < 3 {
            numbers.resize(3, 0);
        }
        Some(Self { numbers, written, pre_release: pre_release.unwrap_or_default().to_owned() })
    }

    /// Which is newer. Missing numbers are zero; a pre-release is older than its release.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        self.compare_numbers(other).then_with(|| match (self.is_release(), other.is_release()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => compare_pre_releases(&self.pre_release, &other.pre_release),
        })
    }

    pub(super) fn compare_numbers(&self, other: &Self) -> Ordering {
        let at = |version: &Self, place: usize| version.numbers.get(place).copied().unwrap_or(0);
        let places = 0..self.numbers.len().max(other.numbers.len());
        places
            .map(|place| at(self, place).cmp(&at(other, place)))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    pub(super) fn is_release(&self) -> bool {
        self.pre_release.is_empty()
    }
}

fn are_identifiers(part: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '~');
    part.split('.').all(|identifier| !identifier.is_empty() && identifier.chars().all(known))
}

/// Identifier by identifier: numbers before words, and the shorter of two that agree so far is the older.
fn compare_pre_releases(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left.split('.'), right.split('.'));
    loop {
        let order = match (left.next(), right.next()) {
            (Some(left), Some(right)) => compare_identifiers(left, right),
            (Some(_), None) => Ordering::Greater,
            (None, Some(_)) => Ordering::Less,
            (None, None) => return Ordering::Equal,
        };
        if order.is_ne() {
            return order;
        }
    }
}

fn compare_identifiers(left: &str, right: &str) -> Ordering {
    let number = |identifier: &str| identifier.bytes().all(|byte| byte.is_ascii_digit());
    match (number(left), number(right)) {
        (true, true) => super::order::compare(left, right).unwrap_or_else(|| left.cmp(right)),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => left.cmp(right),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Version {
        Version::read(text, Reading::Strict).unwrap_or_else(|| panic!("{text} is a version"))
    }

    #[test]
    fn pre_releases_stand_in_the_order_the_standard_prints() {
        let ordered = [
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.0.1",
            "1.10.0",
        ];
        for pair in ordered.windows(2) {
            assert_eq!(read(pair[0]).compare(&read(pair[1])), Ordering::Less, "{} < {}", pair[0], pair[1]);
        }
    }

    #[test]
    fn missing_numbers_are_zero_and_build_metadata_does_not_count() {
        assert_eq!(read("v1.2").compare(&read("1.2.0")), Ordering::Equal);
        assert_eq!(read("1.2.3.0").compare(&read("1.2.3")), Ordering::Equal);
        assert_eq!(read("1.2.3+ent").compare(&read("1.2.3+oss")), Ordering::Equal);
        assert_eq!(read("1.2.3.4").compare(&read("1.2.3")), Ordering::Greater);
    }

    #[test]
    fn what_is_no_version_is_told_apart() {
        for text in ["", "v", "one", "1..2", ".1", "1.", "1.2-", "1.2+", "1.2-a..b", "1.2-a_b", "99999999999999999999"]
        {
            assert!(Version::read(text, Reading::Loose).is_none(), "{text} is no version");
        }
        assert_eq!(Version::read("1.2beta1", Reading::Loose).unwrap().pre_release, "beta1");
        assert!(Version::read("1.2beta1", Reading::Strict).is_none());
    }
}
