//! Parsed constraints on the attributes of nodes.
//!
//! Owns: the types of a constraint.
//! Must not touch: parsing (the `compose` crate) and evaluation (the `scheduler` crate).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Largest compiled size of a `regexp`: a mebibyte is a thousand times what a handwritten pattern takes, and ten
/// thousand services with one pattern each still fit into one server.
pub const PATTERN_LIMIT_BYTES: usize = 1 << 20;

/// `attribute operator value`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Constraint {
    /// The attribute of the node.
    pub attribute: Attribute,
    /// How it is compared.
    pub operator: Operator,
    /// The operand; empty for operators that take none.
    pub value: String,
}

/// An attribute of a node that can be compared with a text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attribute {
    /// `node.id`: the node's name.
    Id,
    /// `node.hostname`: the node's name too; a node has one name.
    Hostname,
    /// `node.ip`.
    Ip,
    /// `node.role`.
    Role,
    /// `node.datacenter`.
    Datacenter,
    /// `node.pool`.
    Pool,
    /// `node.platform.os`.
    Os,
    /// `node.platform.arch`.
    Arch,
    /// `node.labels.<name>`.
    Label(String),
    /// `engine.labels.<name>`.
    EngineLabel(String),
}

impl Attribute {
    /// Whether every node has a different value, so that grouping nodes into equal classes gains nothing.
    pub const fn is_unique(&self) -> bool {
        matches!(self, Self::Id | Self::Hostname | Self::Ip)
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id => f.write_str("node.id"),
            Self::Hostname => f.write_str("node.hostname"),
            Self::Ip => f.write_str("node.ip"),
            Self::Role => f.write_str("node.role"),
            Self::Datacenter => f.write_str("node.datacenter"),
            Self::Pool => f.write_str("node.pool"),
            Self::Os => f.write_str("node.platform.os"),
            Self::Arch => f.write_str("node.platform.arch"),
            Self::Label(name) => write!(f, "node.labels.{name}"),
            Self::EngineLabel(name) => write!(f, "engine.labels.{name}"),
        }
    }
}

/// How an attribute is compared with the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// Equal, without regard to case.
    Equal,
    /// Not equal; true where the attribute is missing.
    NotEqual,
    /// Less, as numbers where both are numbers, else as texts.
    Less,
    /// Less or equal.
    LessOrEqual,
    /// Greater.
    Greater,
    /// Greater or equal.
    GreaterOrEqual,
    /// The regular expression matches some part of the attribute.
    Regexp,
    /// Every version bound of a comma list holds; a pre-release matches only bounds that name one.
    Version,
    /// Every semantic version bound of a comma list holds; pre-releases are ordered below their release.
    Semver,
    /// The attribute, a comma list, contains every listed value.
    SetContains,
    /// It contains at least one of them.
    SetContainsAny,
    /// The node has the attribute.
    IsSet,
    /// The node lacks the attribute.
    IsNotSet,
    /// The attribute equals one of a comma list.
    In,
}

impl Operator {
    /// The spelling in manifests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Regexp => "regexp",
            Self::Version => "version",
            Self::Semver => "semver",
            Self::SetContains => "set_contains",
            Self::SetContainsAny => "set_contains_any",
            Self::IsSet => "is_set",
            Self::IsNotSet => "is_not_set",
            Self::In => "in",
        }
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.attribute, self.operator.as_str())?;
        if self.value.is_empty() { Ok(()) } else { write!(f, " {}", self.value) }
    }
}
