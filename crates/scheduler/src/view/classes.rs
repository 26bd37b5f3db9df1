//! Computed node classes: nodes that no service can tell apart are evaluated once.
//!
//! A class consists of the fixed attributes (pool, platform, drivers, plugins, role) and of those labels that some
//! service refers to. Other labels do not split classes, so a unique label on each machine costs nothing until a
//! service refers to it. Attributes that are unique by nature (name, address) are never part of a class.
//!
//! Owns: the labels referred to and the classes they produce.
//! Must not touch: filter results, which `feasibility` computes and caches per group.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{Attribute, ConstraintRole, Driver, Node, PlacementSpec, Platform, PoolName};

/// Dense index of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassIx(pub(crate) u32);

impl ClassIx {
    pub(crate) const fn at(self) -> usize {
        self.0 as usize
    }
}

/// The attribute values the members of a class share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Signature {
    pool: PoolName,
    datacenter: String,
    platform: Platform,
    drivers: BTreeSet<Driver>,
    plugins: BTreeSet<String>,
    role: ConstraintRole,
    values: Vec<Option<String>>,
}

/// All classes, and the labels that produce them.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    /// How many groups refer to each attribute.
    interest: BTreeMap<Attribute, u32>,
    by_signature: BTreeMap<Signature, ClassIx>,
    /// One member of each class, whose attribute values stand for all.
    examples: Vec<Arc<Node>>,
}

impl Classes {
    /// Adds the attributes a spec refers to. Returns whether one of them is new, so that classes must be computed
    /// again.
    pub(crate) fn add_interest(&mut self, placement: &PlacementSpec) -> bool {
        let mut splits = false;
        for attribute in attributes(placement) {
            let count = self.interest.entry(attribute.clone()).or_default();
            if *count == 0 {
                splits = true;
            }
            *count += 1;
        }
        splits
    }

    /// Removes the attributes a spec refers to. Classes stay finer than needed until the next rebuild.
    pub(crate) fn drop_interest(&mut self, placement: &PlacementSpec) {
        for attribute in attributes(placement) {
            if let Some(count) = self.interest.get_mut(attribute) {
                *count = count.saturating_sub(1);
            }
        }
    }

    /// Removes all classes, and the labels no group refers to.
    pub(crate) fn reset(&mut self) {
        self.interest.retain(|_, count| *count > 0);
        self.by_signature.clear();
        self.examples.clear();
    }

    /// The class of a node.
    pub(crate) fn classify(&mut self, node: &Arc<Node>) -> ClassIx {
        let signature = Signature {
            pool: node.pool.clone(),
            datacenter: node.datacenter.clone(),
            platform: node.platform.clone(),
            drivers: node.drivers.clone(),
            plugins: node.plugins.clone(),
            role: node.role,
            values: self.interest.keys().map(|attribute| value(node, attribute)).collect(),
        };
        *self.by_signature.entry(signature).or_insert_with(|| {
            self.examples.push(Arc::clone(node));
            ClassIx(u32::try_from(self.examples.len() - 1).unwrap_or(u32::MAX))
        })
    }

    pub(crate) fn example(&self, class: ClassIx) -> &Arc<Node> {
        &self.examples[class.at()]
    }
}

/// Labels a placement refers to. Fixed attributes are in every class, unique ones in none.
fn attributes(placement: &PlacementSpec) -> impl Iterator<Item = &Attribute> {
    let constraints = placement.constraints.iter().map(|constraint| &constraint.attribute);
    let affinities = placement.affinities.iter().map(|affinity| &affinity.matches.attribute);
    let targets = placement.spread_targets.iter().map(|target| &target.over);
    let distinct = placement.distinct_property.iter().map(|distinct| &distinct.attribute);
    constraints
        .chain(affinities)
        .chain(targets)
        .chain(distinct)
        .chain(&placement.preferences)
        .filter(|attribute| matches!(attribute, Attribute::Label(_) | Attribute::EngineLabel(_)))
}

/// A node's value of an attribute; `None` where it has none.
pub(crate) fn value(node: &Node, attribute: &Attribute) -> Option<String> {
    match attribute {
        Attribute::Id | Attribute::Hostname => Some(node.name.as_str().to_owned()),
        Attribute::Ip => node.ip.map(|ip| ip.to_string()),
        Attribute::Role => Some(node.role.as_str().to_owned()),
        Attribute::Pool => Some(node.pool.as_str().to_owned()),
        Attribute::Datacenter => Some(node.datacenter.clone()).filter(|datacenter| !datacenter.is_empty()),
        Attribute::Os => Some(node.platform.os.clone()).filter(|os| !os.is_empty()),
        Attribute::Arch => Some(node.platform.arch.clone()).filter(|arch| !arch.is_empty()),
        Attribute::Label(name) => node.labels.get(name).cloned(),
        Attribute::EngineLabel(name) => node.engine_labels.get(name).cloned(),
    }
}
