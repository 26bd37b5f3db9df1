//! Versions: dotted numbers, an optional pre-release, and optional build metadata, which is ignored in comparisons.
//!
//! Owns: parsing and ordering of versions. Must not touch: bounds, which decide whether a pre-release matches.

use std::cmp::Ordering;

use smallvec::SmallVec;

/// A parsed version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    /// Padded with zeros to three numbers.
    pub(super) numbers: SmallVec<[u64; 4]>,
    /// How many numbers the text had.
    pub(super) given: usize,
    /// Empty for a release.
    pub(super) pre_release: String,
}

/// How strictly a version is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strictness {
    /// Accepts `1.2beta` as `1.2-beta`.
    Loose,
    /// A pre-release needs its dash.
    Strict,
}

impl Version {
    pub(super) fn parse(text: &str, strictness: Strictness) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
        let (given, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
        let pre_release = match (rest.strip_prefix('-'), strictness) {
            (Some(named), Strictness::Loose | Strictness::Strict) => Some(named),
            (None, Strictness::Loose) => (!rest.is_empty()).then_some(rest),
            (None, Strictness::Strict) if rest.is_empty() => None,
            (None, Strictness::Strict) => return None,
        };
        if !pre_release.is_none_or(are_identifiers) || !build.is_none_or(are_identifiers) {
            return None;
        }
        // `parse` alone would accept a leading `+`, but only digits and dots are left here.
        let mut numbers: SmallVec<[u64; 4]> = SmallVec::new();
        for number in given.split('.') {
            numbers.push(number.parse().ok()?);
        }
        let given = numbers.len();
        if given < 3 {
            numbers.resize(3, 0);
        }
        Some(Self { numbers, given, pre_release: pre_release.unwrap_or_default().to_owned() })
    }

    /// Orders by age, oldest first. Missing numbers are zero; a pre-release is older than its release.
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

/// `SemVer` precedence: numeric identifiers before alphanumeric ones, and a prefix is older than the longer list.
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

    fn parse(text: &str) -> Version {
        Version::parse(text, Strictness::Strict).unwrap_or_else(|| panic!("{text} is a version"))
    }

    #[test]
    fn pre_releases_are_ordered_as_in_the_semver_standard() {
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
            assert_eq!(parse(pair[0]).compare(&parse(pair[1])), Ordering::Less, "{} < {}", pair[0], pair[1]);
        }
    }

    #[test]
    fn missing_numbers_are_zero_and_build_metadata_does_not_count() {
        assert_eq!(parse("v1.2").compare(&parse("1.2.0")), Ordering::Equal);
        assert_eq!(parse("1.2.3.0").compare(&parse("1.2.3")), Ordering::Equal);
        assert_eq!(parse("1.2.3+ent").compare(&parse("1.2.3+oss")), Ordering::Equal);
        assert_eq!(parse("1.2.3.4").compare(&parse("1.2.3")), Ordering::Greater);
    }

    #[test]
    fn invalid_versions_are_rejected() {
        for text in ["", "v", "one", "1..2", ".1", "1.", "1.2-", "1.2+", "1.2-a..b", "1.2-a_b", "99999999999999999999"]
        {
            assert!(Version::parse(text, Strictness::Loose).is_none(), "{text} is not a version");
        }
        assert_eq!(Version::parse("1.2beta1", Strictness::Loose).unwrap().pre_release, "beta1");
        assert!(Version::parse("1.2beta1", Strictness::Strict).is_none());
    }
}
