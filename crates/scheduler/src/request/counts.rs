//! How many slots of a service each node has, and how many share a value of a property.
//!
//! A slot counts on the node of its newest generation. An older generation that is still desired on another node is an
//! overlap: it may be the one that is kept, so it counts for limits (`max_per_node`, distinct properties) and for
//! nothing else.
//!
//! Owns: the counts. Must not touch: limits. Invariant: a slot that is leaving its node counts nowhere.

use std::collections::BTreeMap;

use longshore_model::service::DistinctProperty;
use smallvec::SmallVec;

use crate::view::{NodeIx, classes, node_table::NodeTable};

/// Slots of one service by node: a dense column with a list of the nodes used, so that clearing costs what was used.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    by_node: Vec<NodeCount>,
    listed: Vec<NodeIx>,
    /// Nodes with an older generation of a slot that counts on another node, once for each such generation.
    overlapping: SmallVec<[NodeIx; 2]>,
    /// One for each property that only a limited number of slots may share.
    shared_values: Vec<ValueCounts>,
}

/// The slots of a service by node, from which a later [`Counts`] can continue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locations {
    slots: Vec<(NodeIx, u32)>,
    overlapping: Vec<NodeIx>,
}

impl Locations {
    /// Removes one slot from a node, because its generation there was displaced.
    pub(crate) fn lose(&mut self, node: NodeIx) {
        if let Some((_, count)) = self.slots.iter_mut().find(|(other, _)| *other == node) {
            *count = count.saturating_sub(1);
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct NodeCount {
    count: u32,
    listed: bool,
}

impl Counts {
    pub(crate) fn get(&self, node: NodeIx) -> u32 {
        self.by_node.get(node.at()).map_or(0, |entry| entry.count)
    }

    pub(crate) fn add(&mut self, node: NodeIx) {
        if self.by_node.len() <= node.at() {
            self.by_node.resize(node.at() + 1, NodeCount::default());
        }
        let entry = &mut self.by_node[node.at()];
        entry.count += 1;
        if !std::mem::replace(&mut entry.listed, true) {
            self.listed.push(node);
        }
        for values in &mut self.shared_values {
            values.change(node, |count| count + 1);
        }
    }

    /// Removes one slot from a node it is leaving.
    pub(crate) fn remove_from(&mut self, node: Option<NodeIx>) {
        let Some(node) = node else { return };
        if let Some(entry) = self.by_node.get_mut(node.at()).filter(|entry| entry.count > 0) {
            entry.count -= 1;
            for values in &mut self.shared_values {
                values.change(node, |count| count.saturating_sub(1));
            }
        }
    }

    /// How many slots have a desired generation on a node, the newest or an older one.
    pub(crate) fn present(&self, node: NodeIx) -> u32 {
        let overlapping = self.overlapping.iter().filter(|other| **other == node).count();
        self.get(node).saturating_add(u32::try_from(overlapping).unwrap_or(u32::MAX))
    }

    /// Whether any slot has an older generation on another node.
    pub(crate) fn has_overlap(&self) -> bool {
        !self.overlapping.is_empty()
    }

    /// Adds an older generation of a slot that counts on another node.
    pub(crate) fn add_overlap(&mut self, node: NodeIx) {
        self.overlapping.push(node);
        for values in &mut self.shared_values {
            values.change(node, |count| count + 1);
        }
    }

    /// Removes an older generation that no longer limits other slots.
    pub(crate) fn remove_overlap(&mut self, node: NodeIx) {
        if let Some(at) = self.overlapping.iter().position(|other| *other == node) {
            self.overlapping.swap_remove(at);
            for values in &mut self.shared_values {
                values.change(node, |count| count.saturating_sub(1));
            }
        }
    }

    /// The current counts and overlaps.
    pub(crate) fn locations(&self) -> Locations {
        Locations {
            slots: self.nodes().map(|node| (node, self.get(node))).collect(),
            overlapping: self.overlapping.to_vec(),
        }
    }

    /// Adds the given counts and overlaps.
    pub(super) fn restore(&mut self, locations: &Locations) {
        for (node, count) in &locations.slots {
            (0..*count).for_each(|_| self.add(*node));
        }
        locations.overlapping.iter().for_each(|node| self.add_overlap(*node));
    }

    /// How many slots have the node's value of the n-th distinct property; `None` where the node has no value.
    pub(crate) fn sharing(&self, property: usize, node: NodeIx) -> Option<u32> {
        let values = self.shared_values.get(property)?;
        let value = values.value_of.get(node.at()).copied().flatten()?;
        values.counts.get(value as usize).copied()
    }

    /// Nodes with at least one slot.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeIx> + use<'_> {
        self.listed.iter().copied().filter(|node| self.get(*node) > 0)
    }

    /// Removes all counts and starts to count values of these properties.
    pub(super) fn clear(&mut self, table: &NodeTable, properties: &[DistinctProperty]) {
        for node in self.listed.drain(..) {
            self.by_node[node.at()] = NodeCount::default();
        }
        self.overlapping.clear();
        self.shared_values.clear();
        self.shared_values.extend(properties.iter().map(|property| ValueCounts::new(table, property)));
    }
}

/// How many slots share each value of a property.
///
/// The values are numbered once for a batch, so that a placement costs one addition. Counting anew for each candidate
/// was refused: it would cost replicas × nodes.
#[derive(Debug)]
struct ValueCounts {
    value_of: Vec<Option<u32>>,
    counts: Vec<u32>,
}

impl ValueCounts {
    fn new(table: &NodeTable, property: &DistinctProperty) -> Self {
        let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
        let mut value_of = vec![None; table.records.len()];
        for node in table.by_name_order() {
            value_of[node.at()] = classes::value(table.node(node), &property.attribute).map(|value| {
                let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
                *numbers.entry(value).or_insert(next)
            });
        }
        Self { value_of, counts: vec![0; numbers.len()] }
    }

    fn change(&mut self, node: NodeIx, by: impl Fn(u32) -> u32) {
        let value = self.value_of.get(node.at()).copied().flatten();
        if let Some(count) = value.and_then(|value| self.counts.get_mut(value as usize)) {
            *count = by(*count);
        }
    }
}
