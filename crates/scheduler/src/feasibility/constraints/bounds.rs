//! A comma list of version bounds, all of which must hold.
//!
//! Two dialects: `version` keeps pre-releases apart (nobody gets `2.0-beta` who asked for `>= 1.0`), `semver` orders
//! them like any other version and knows no `~>`.
//!
//! Owns: what a bound means. Must not touch: the order of versions.

use std::cmp::Ordering;

use super::version::{Reading, Version};

/// Bounds, read once.
#[derive(Debug)]
pub(super) struct Bounds {
    dialect: Dialect,
    list: Vec<Bound>,
}

/// Which rules the bounds follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// The operator `version`.
    Apart,
    /// The operator `semver`.
    Ordered,
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
    /// `~>`: the last number written may grow, those before it may not.
    About,
}

/// Longest first, so that `>=` is not read as `>`.
const SIGNS: &[(&str, Relation)] = &[
    ("!=", Relation::NotEqual),
    ("<=", Relation::LessOrEqual),
    (">=", Relation::GreaterOrEqual),
    ("~>", Relation::About),
    ("=", Relation::Equal),
    ("<", Relation::Less),
    (">", Relation::Greater),
    ("", Relation::Equal),
];

impl Dialect {
    const fn reading(self) -> Reading {
        match self {
            Self::Apart => Reading::Loose,
            Self::Ordered => Reading::Strict,
        }
    }
}

impl Bounds {
    /// `None` where any bound cannot be read.
    pub(super) fn read(text: &str, dialect: Dialect) -> Option<Self> {
        let list = text.split(',').map(|bound| Bound::read(bound.trim(), dialect)).collect::<Option<Vec<_>>>()?;
        Some(Self { dialect, list })
    }

    /// Whether a version, as text, lies within all bounds.
    pub(super) fn hold_for(&self, found: &str) -> bool {
        Version::read(found, self.dialect.reading())
            .is_some_and(|found| self.list.iter().all(|bound| bound.holds(&found, self.dialect)))
    }
}

impl Bound {
    fn read(text: &str, dialect: Dialect) -> Option<Self> {
        let (sign, relation) = SIGNS.iter().find(|(sign, _)| text.starts_with(sign))?;
        if *relation == Relation::About && dialect == Dialect::Ordered {
            return None;
        }
        let version = Version::read(&text[sign.len()..], dialect.reading())?;
        Some(Self { relation: *relation, version })
    }

    fn holds(&self, found: &Version, dialect: Dialect) -> bool {
        let order = found.compare(&self.version);
        let comparable = dialect == Dialect::Ordered || self.admits_pre_release(found);
        match self.relation {
            Relation::Equal => order.is_eq(),
            Relation::NotEqual => order.is_ne(),
            Relation::Less => comparable && order.is_lt(),
            Relation::LessOrEqual => comparable && order.is_le(),
            Relation::Greater => comparable && order.is_gt(),
            Relation::GreaterOrEqual => comparable && order.is_ge(),
            Relation::About => comparable && order.is_ge() && self.is_about(found),
        }
    }

    /// A pre-release satisfies only a bound that names a pre-release of the same numbers.
    fn admits_pre_release(&self, found: &Version) -> bool {
        found.is_release() || (!self.version.is_release() && self.version.compare_numbers(found) == Ordering::Equal)
    }

    fn is_about(&self, found: &Version) -> bool {
        let kind = self.version.is_release() || !found.is_release();
        let fixed = self.version.written.saturating_sub(1);
        kind && self.version.numbers.len() <= found.numbers.len()
            && self.version.numbers[..fixed] == found.numbers[..fixed]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(found: &str, bounds: &str, dialect: Dialect) -> bool {
        Bounds::read(bounds, dialect).is_some_and(|bounds| bounds.hold_for(found))
    }

    #[test]
    fn versions_keep_pre_releases_apart() {
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
            assert_eq!(holds(found, bounds, Dialect::Apart), expected, "{found} version {bounds}");
        }
    }

    #[test]
    fn semantic_versions_order_pre_releases() {
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
            assert_eq!(holds(found, bounds, Dialect::Ordered), expected, "{found} semver {bounds}");
        }
    }

    #[test]
    fn what_cannot_be_read_holds_nowhere() {
        for bounds in ["", ">=", ">= one", ">= 1.0,", "=> 1.0", "~ 1.0", "== 1.0"] {
            assert!(!holds("1.0", bounds, Dialect::Apart), "{bounds:?}");
        }
        assert!(!holds("one", ">= 0.0.1", Dialect::Apart));
        assert!(!holds("one", "!= 1.0", Dialect::Apart), "a version that is none differs from nothing");
    }
}
