//! How many slots of a service each node has, and how many share a value of a property.
//!
//! A slot counts where its newest generation is. An older one of it that shall run too, on another node, is beside that:
//! it may be the one that stays, so that its place is taken as far as limits are concerned, and no more than that.
//!
//! Owns: the column. Must not touch: limits. Invariant: a slot that is leaving counts nowhere.

use std::collections::BTreeMap;

use longshore_model::service::DistinctProperty;
use smallvec::SmallVec;

use crate::view::{NodeIx, classes, fleet::Fleet};

/// Slots of one service by node: a dense column with a list of what is in it, so that clearing costs what was used.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    by_node: Vec<Tally>,
    listed: Vec<NodeIx>,
    /// Nodes with an older generation of a slot that counts elsewhere, once for each.
    beside: SmallVec<[NodeIx; 2]>,
    /// One for each property that only so many slots may share.
    censuses: Vec<Census>,
}

/// Where the slots of a service are, to go on counting from later.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whereabouts {
    slots: Vec<(NodeIx, u32)>,
    beside: Vec<NodeIx>,
}

impl Whereabouts {
    /// A slot lost its generation on a node.
    pub(crate) fn lose(&mut self, node: NodeIx) {
        if let Some((_, count)) = self.slots.iter_mut().find(|(other, _)| *other == node) {
            *count = count.saturating_sub(1);
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    count: u32,
    listed: bool,
}

impl Counts {
    pub(crate) fn get(&self, node: NodeIx) -> u32 {
        self.by_node.get(node.at()).map_or(0, |tally| tally.count)
    }

    pub(crate) fn add(&mut self, node: NodeIx) {
        if self.by_node.len() <= node.at() {
            self.by_node.resize(node.at() + 1, Tally::default());
        }
        let tally = &mut self.by_node[node.at()];
        tally.count += 1;
        if !std::mem::replace(&mut tally.listed, true) {
            self.listed.push(node);
        }
        for census in &mut self.censuses {
            census.change(node, |count| count + 1);
        }
    }

    /// A slot is leaving: it does not count where it was.
    pub(crate) fn remove_from(&mut self, node: Option<NodeIx>) {
        let Some(node) = node else { return };
        if let Some(tally) = self.by_node.get_mut(node.at()).filter(|tally| tally.count > 0) {
            tally.count -= 1;
            for census in &mut self.censuses {
                census.change(node, |count| count.saturating_sub(1));
            }
        }
    }

    /// How many slots have a generation on a node that shall run, the newest or not.
    pub(crate) fn present(&self, node: NodeIx) -> u32 {
        let beside = self.beside.iter().filter(|other| **other == node).count();
        self.get(node).saturating_add(u32::try_from(beside).unwrap_or(u32::MAX))
    }

    /// Whether any slot has a generation beside the one that counts.
    pub(crate) fn has_beside(&self) -> bool {
        !self.beside.is_empty()
    }

    /// A slot that counts elsewhere has an older generation on a node.
    pub(crate) fn add_beside(&mut self, node: NodeIx) {
        self.beside.push(node);
        for census in &mut self.censuses {
            census.change(node, |count| count + 1);
        }
    }

    /// An older generation of a slot is in nobody's way any more.
    pub(crate) fn remove_beside(&mut self, node: NodeIx) {
        if let Some(at) = self.beside.iter().position(|other| *other == node) {
            self.beside.swap_remove(at);
            for census in &mut self.censuses {
                census.change(node, |count| count.saturating_sub(1));
            }
        }
    }

    /// All that was counted.
    pub(crate) fn whereabouts(&self) -> Whereabouts {
        Whereabouts { slots: self.nodes().map(|node| (node, self.get(node))).collect(), beside: self.beside.to_vec() }
    }

    /// Counts what was counted before.
    pub(super) fn resume(&mut self, whereabouts: &Whereabouts) {
        for (node, count) in &whereabouts.slots {
            (0..*count).for_each(|_| self.add(*node));
        }
        whereabouts.beside.iter().for_each(|node| self.add_beside(*node));
    }

    /// How many slots have the node's value of the n-th distinct property; `None` where the node has no value.
    pub(crate) fn sharing(&self, property: usize, node: NodeIx) -> Option<u32> {
        let census = self.censuses.get(property)?;
        let value = census.value_of.get(node.at()).copied().flatten()?;
        census.counts.get(value as usize).copied()
    }

    /// Nodes with any.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeIx> + use<'_> {
        self.listed.iter().copied().filter(|node| self.get(*node) > 0)
    }

    /// Forgets what was counted, and begins to count what shares a value of these properties.
    pub(super) fn clear(&mut self, fleet: &Fleet, properties: &[DistinctProperty]) {
        for node in self.listed.drain(..) {
            self.by_node[node.at()] = Tally::default();
        }
        self.beside.clear();
        self.censuses.clear();
        self.censuses.extend(properties.iter().map(|property| Census::new(fleet, property)));
    }
}

/// How many slots share each value of a property.
///
/// The values are numbered once for a batch, so that a placement costs one addition. Counting anew for each candidate
/// was refused: it would cost replicas × nodes.
#[derive(Debug)]
struct Census {
    value_of: Vec<Option<u32>>,
    counts: Vec<u32>,
}

impl Census {
    fn new(fleet: &Fleet, property: &DistinctProperty) -> Self {
        let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
        let mut value_of = vec![None; fleet.nodes.len()];
        for node in fleet.in_order() {
            value_of[node.at()] = classes::value(fleet.node(node), &property.attribute).map(|value| {
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
