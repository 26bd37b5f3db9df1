//! Devices that are more than a number: groups of equal ones on a node, and what a replica asks of a group.
//!
//! Owns: the identity `vendor/kind/name` of a group, and which groups a request names.
//! Must not touch: truth of constraints (the `scheduler` room evaluates) and plain counts such as `gpu: 2`, which need
//! none of this.
//! Invariant: the identity of a group has slashes and a plain kind has none, so both can be keys of one map.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::Operator;

/// How many were taken of each group, by its identity.
pub type TakenDevices = BTreeMap<String, u64>;

/// Devices of a node that are alike in everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceGroup {
    /// Who makes them, as `nvidia`.
    pub vendor: String,
    /// What they are, as `gpu`.
    pub kind: String,
    /// Their model, as `a100`.
    pub name: String,
    /// How many there are and work.
    pub count: u64,
    /// What is known of each, as `memory` or `cuda`.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

impl DeviceGroup {
    /// `vendor/kind/name`, unique on a node.
    pub fn id(&self) -> String {
        format!("{}/{}/{}", self.vendor, self.kind, self.name)
    }

    /// What is known under a name. The parts of the identity can be asked for like the rest, and cannot be overruled.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        match name {
            "vendor" => Some(&self.vendor),
            "type" => Some(&self.kind),
            "name" => Some(&self.name),
            other => self.attributes.get(other).map(String::as_str),
        }
    }
}

/// So many devices, all of one group, that a replica needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceRequest {
    /// Who makes them; `None` is anybody.
    pub vendor: Option<String>,
    /// What they are.
    pub kind: String,
    /// Their model; `None` is any.
    pub name: Option<String>,
    /// How many.
    pub count: u64,
    /// All must hold of the group.
    #[serde(default)]
    pub constraints: Vec<DeviceConstraint>,
    /// What is liked or disliked of a group that serves.
    #[serde(default)]
    pub affinities: Vec<DeviceAffinity>,
}

impl DeviceRequest {
    /// Whether it names the group, constraints aside. Vendors disagree with themselves about case, so it does not count.
    pub fn names(&self, group: &DeviceGroup) -> bool {
        let part = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(found))
        };
        self.kind.eq_ignore_ascii_case(&group.kind)
            && part(&self.vendor, &group.vendor)
            && part(&self.name, &group.name)
    }

    /// `kind`, `vendor/kind` or `vendor/kind/name`, as it was written.
    pub fn id(&self) -> String {
        let parts = [self.vendor.as_deref(), Some(&self.kind), self.name.as_deref()];
        parts.into_iter().flatten().collect::<Vec<_>>().join("/")
    }
}

impl fmt::Display for DeviceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id())?;
        for (at, constraint) in self.constraints.iter().enumerate() {
            write!(f, " {} {constraint}", if at == 0 { "with" } else { "and" })?;
        }
        Ok(())
    }
}

/// A liking for groups, or a dislike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceAffinity {
    /// What is liked.
    pub matches: DeviceConstraint,
    /// How much, -100..=100.
    pub weight: i32,
}

/// `attribute operator value`, asked of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceConstraint {
    /// What is looked at, see [`DeviceGroup::attribute`].
    pub attribute: String,
    /// How it is compared.
    pub operator: Operator,
    /// With what; empty for operators that take no value.
    pub value: String,
}

impl fmt::Display for DeviceConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.attribute, self.operator.as_str())?;
        if self.value.is_empty() { Ok(()) } else { write!(f, " {}", self.value) }
    }
}
