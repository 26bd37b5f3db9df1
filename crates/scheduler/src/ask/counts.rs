//! How many slots of a service each node has, and how many share a value of a property.
//!
//! Owns: the column. Must not touch: limits. Invariant: a slot that is leaving counts nowhere.

use std::collections::BTreeMap;

use longshore_model::service::DistinctProperty;

use crate::view::{NodeIx, classes, fleet::Fleet};

/// Slots of one service by node: a dense column with a list of what is in it, so that clearing costs what was used.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    by_node: Vec<Tally>,
    listed: Vec<NodeIx>,
    /// One for each property that only so many slots may share.
    censuses: Vec<Census>,
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
