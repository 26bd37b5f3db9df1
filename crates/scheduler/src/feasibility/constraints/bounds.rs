//! A comma list of version bounds, all of which must hold.
//!
//! Two dialects: `version` excludes pre-releases (`>= 1.0` does not match `2.0-beta`); `semver` orders them like any
//! other version and has no `~>`.
//!
//! Owns: the meaning of a bound. Must not touch: the ordering of versions.

use std::cmp::Ordering;

use super::version::{Strictness, Version};

/// A parsed list of bounds.
#[derive(Debug)]
pub(super) struct Bounds {
    dialect: Dialect,
    list: Vec<Bound>,
}

/// The constraint operator the bounds belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `version`: a pre-release matches only a bound that names a pre-release of the same version.
    Version,
    /// `semver`: pre-releases are ordered like any other version.
    Semver,
}

#[derive(Debug)]
struct Bound {
    relation: Relation,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// `~>`: the last number given may be larger, those before it must be equal.
    Pessimistic,
}

/// Longest first, so that `>=` is not parsed as `>`.
const OPERATORS: &[(&str, Relation)] = &[
    ("!=", Relation::NotEqual),
    ("<=", Relation::LessOrEqual),
    (">=", Relation::GreaterOrEqual),
    ("~>", Relation::Pessimistic),
    ("=", Relation::Equal),
    ("<", Relation::Less),
    (">", Relation::Greater),
    ("", Relation::Equal),
];

impl Dialect {
    const fn strictness(self) -> Strictness {
        match self {
            Self::Version => Strictness::Loose,
            Self::Semver => Strictness::Strict,
        }
    }
}

impl Bounds {
    /// Parses the list; `None` if any bound is invalid.
    pub(super) fn parse(text: &str, dialect: Dialect) -> Option<Self> {
        let list = text.split(',').map(|bound| Bound::parse(bound.trim(), dialect)).collect::<Option<Vec<_>>>()?;
        Some(Self { dialect, list })
    }

    /// Whether a version string parses and satisfies all bounds.
    pub(super) fn contain(&self, found: &str) -> bool {
        Version::parse(found, self.dialect.strictness())
            .is_some_and(|found| self.list.iter().all(|bound| bound.holds(&found, self.dialect)))
    }
}

impl Bound {
    fn parse(text: &str, dialect: Dialect) -> Option<Self> {
        let (sign, relation) = OPERATORS.iter().find(|(sign, _)| text.starts_with(sign))?;
        if *relation == Relation::Pessimistic && dialect == Dialect::Semver {
            return None;
        }
        let version = Version::parse(&text[sign.len()..], dialect.strictness())?;
        Some(Self { relation: *relation, version })
    }

    fn holds(&self, found: &Version, dialect: Dialect) -> bool {
        let order = found.compare(&self.version);
        let comparable = dialect == Dialect::Semver || self.admits_pre_release(found);
        match self.relation {
            Relation::Equal => order.is_eq(),
            Relation::NotEqual => order.is_ne(),
            Relation::Less => comparable && order.is_lt(),
            Relation::LessOrEqual => comparable && order.is_le(),
            Relation::Greater => comparable && order.is_gt(),
            Relation::GreaterOrEqual => comparable && order.is_ge(),
            Relation::Pessimistic => comparable && order.is_ge() && self.matches_pessimistic(found),
        }
    }

    /// A pre-release satisfies only a bound that names a pre-release of the same version numbers.
    fn admits_pre_release(&self, found: &Version) -> bool {
        found.is_release() || (!self.version.is_release() && self.version.compare_numbers(found) == Ordering::Equal)
    }

    fn matches_pessimistic(&self, found: &Version) -> bool {
        let kind = self.version.is_release() || !found.is_release();
        let fixed = self.version.given.saturating_sub(1);
        kind && self.version.numbers.len() <= found.numbers.len()
            && self.version.numbers[..fixed] == found.numbers[..fixed]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(found: &str, bounds: &str, dialect: Dialect) -> bool {
        Bounds::parse(bounds, dialect).is_some_and(|bounds| bounds.contain(found))
    }

    #[test]
    fn the_version_operator_excludes_pre_releases() {
        for (found, bounds, expected) in [
            ("1.2.3", "~> 1.0", true),
            ("2.0.1", "~> 1.0", false),
            ("1.2.9", "~> 1.2.3", true),
            ("1.3.0", "~> 1.2.3", false),
            ("1.2.2", "~> 1.2.3", false),
            ("7.0.0", "~> 1", true),
            ("1.4", ">= 1.0, < 1.4", false),
            ("1.3.9", ">=1.0,<1.4", true),
            ("1.4", "1.4.0", true),
            ("1.4", "= 1.4", true),
            ("1.4", "!= 1.4", false),
            ("1.3.0-beta1", ">= 0.6.1", false),
            ("1.7.0-alpha1", ">= 1.6.0-beta1", false),
            ("1.6.0-beta2", ">= 1.6.0-beta1", true),
            ("1.6.0", ">= 1.6.0-beta1", true),
            ("1.6.0", "~> 1.6.0-beta1", false),
            ("1.3.0-beta1+ent", "= 1.3.0-beta1", true),
            ("1.3.0-beta1", "!= 1.3.0", true),
            ("1.3beta1", "= 1.3-beta1", true),
        ] {
            assert_eq!(holds(found, bounds, Dialect::Version), expected, "{found} version {bounds}");
        }
    }

    #[test]
    fn the_semver_operator_orders_pre_releases() {
        for (found, bounds, expected) in [
            ("1.2.3", "~> 1.0", false),
            ("1.2.3", ">= 1.0, < 1.4", true),
            ("1.3.0-beta1", ">= 0.6.1", true),
            ("1.7.0-alpha1", ">= 1.6.0-beta1", true),
            ("1.7.0-beta", ">= 1.7.0", false),
            ("1.7.0-rc.1", ">= 1.7.0-dev", true),
            ("1.3.0-beta1+ent", "= 1.3.0-beta1", true),
            ("1.3beta1", ">= 1.0", false),
        ] {
            assert_eq!(holds(found, bounds, Dialect::Semver), expected, "{found} semver {bounds}");
        }
    }

    #[test]
    fn invalid_bounds_match_nothing() {
        for bounds in ["", ">=", ">= one", ">= 1.0,", "=> 1.0", "~ 1.0", "== 1.0"] {
            assert!(!holds("1.0", bounds, Dialect::Version), "{bounds:?}");
        }
        assert!(!holds("one", ">= 0.0.1", Dialect::Version));
        assert!(!holds("one", "!= 1.0", Dialect::Version), "a version that is none differs from nothing");
    }
}
