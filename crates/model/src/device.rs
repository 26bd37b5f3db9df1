//! Devices with attributes: groups of equal devices on a node, and a replica's request for some of a group.
//!
//! Owns: the identity `vendor/kind/name` of a group, and which groups a request names.
//! Must not touch: evaluation of constraints (the `scheduler` crate), and plain counts such as `gpu: 2`.
//! Invariant: the identity of a group has slashes and a plain kind has none, so both can be keys of one map.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::Operator;

/// Number of devices taken of each group, by its identity.
pub type TakenDevices = BTreeMap<String, u64>;

/// Devices of a node with the same vendor, kind, model and attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceGroup {
    /// Vendor, for example `nvidia`.
    pub vendor: String,
    /// Kind, for example `gpu`.
    pub kind: String,
    /// Model, for example `a100`.
    pub name: String,
    /// Number of working devices.
    pub count: u64,
    /// Attributes of each, for example `memory` or `cuda`.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

impl DeviceGroup {
    /// `vendor/kind/name`, unique on a node.
    pub fn id(&self) -> String {
        format!("{}/{}/{}", self.vendor, self.kind, self.name)
    }

    /// The value of an attribute. `vendor`, `type` and `name` are the parts of the identity; attributes cannot override them.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        match name {
            "vendor" => Some(&self.vendor),
            "type" => Some(&self.kind),
            "name" => Some(&self.name),
            other => self.attributes.get(other).map(String::as_str),
        }
    }
}

/// A replica's request for a number of devices of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceRequest {
    /// Vendor; `None` is any.
    pub vendor: Option<String>,
    /// Kind.
    pub kind: String,
    /// Model; `None` is any.
    pub name: Option<String>,
    /// How many.
    pub count: u64,
    /// Constraints the group must satisfy.
    #[serde(default)]
    pub constraints: Vec<DeviceConstraint>,
    /// Preferences among the groups that satisfy the constraints.
    #[serde(default)]
    pub affinities: Vec<DeviceAffinity>,
}

impl DeviceRequest {
    /// Whether it names the group, constraints aside. Case is ignored, because vendors use it inconsistently.
    pub fn names(&self, group: &DeviceGroup) -> bool {
        let part = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(found))
        };
        self.kind.eq_ignore_ascii_case(&group.kind)
            && part(&self.vendor, &group.vendor)
            && part(&self.name, &group.name)
    }

    /// `kind`, `vendor/kind` or `vendor/kind/name`, as in the manifest.
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

/// A preference for or against groups.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceAffinity {
    /// The groups it applies to.
    pub matches: DeviceConstraint,
    /// -100 to 100; negative is against.
    pub weight: i32,
}

/// `attribute operator value`, evaluated on a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceConstraint {
    /// The attribute, see [`DeviceGroup::attribute`].
    pub attribute: String,
    /// How it is compared.
    pub operator: Operator,
    /// The operand; empty for operators that take none.
    pub value: String,
}

impl fmt::Display for DeviceConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.attribute, self.operator.as_str())?;
        if self.value.is_empty() { Ok(()) } else { write!(f, " {}", self.value) }
    }
}
