//! An index of the schedulable nodes in one sort order, partitioned by class.
//!
//! Owns: the partition and position of each node. Must not touch: loads; a caller that changes a load re-inserts the
//! node.
//! Invariant: a node is in at most one partition, under the key it was last inserted with.

mod sorted_nodes;

use std::collections::BTreeMap;

pub(crate) use self::sorted_nodes::{Cursor, Entry, SortKey, SortedNodes};
use crate::view::{NodeIx, classes::ClassIx};

/// What the nodes of a partition have in common: their class, and a second value across which the order is not
/// comparable.
pub(crate) type PartitionKey = (ClassIx, u64);

/// The sorted nodes of one class.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) class: ClassIx,
    pub(crate) nodes: SortedNodes,
}

/// All partitions of one sort order.
#[derive(Debug, Default)]
pub(crate) struct NodeIndex {
    partitions: Vec<Partition>,
    by_key: BTreeMap<PartitionKey, usize>,
    positions: Vec<Option<(usize, SortKey)>>,
}

impl NodeIndex {
    /// Builds the index from entries in any order.
    pub(crate) fn build(nodes: usize, entries: impl Iterator<Item = (PartitionKey, Entry)>) -> Self {
        let mut index = Self { positions: vec![None; nodes], ..Self::default() };
        let mut members: Vec<Vec<Entry>> = Vec::new();
        for (key, entry) in entries {
            let partition = index.partition_of(key);
            members.resize_with(index.partitions.len(), Vec::new);
            members[partition].push(entry);
            index.positions[entry.node.at()] = Some((partition, entry.key));
        }
        for (partition, entries) in index.partitions.iter_mut().zip(members) {
            partition.nodes = SortedNodes::build(entries);
        }
        index
    }

    pub(crate) fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    pub(crate) fn enter(&mut self, key: PartitionKey, entry: Entry) {
        let partition = self.partition_of(key);
        if self.positions.len() <= entry.node.at() {
            self.positions.resize(entry.node.at() + 1, None);
        }
        self.positions[entry.node.at()] = Some((partition, entry.key));
        self.partitions[partition].nodes.insert(entry);
    }

    pub(crate) fn leave(&mut self, node: NodeIx) {
        if let Some((partition, key)) = self.positions.get_mut(node.at()).and_then(Option::take) {
            self.partitions[partition].nodes.remove(key);
        }
    }

    fn partition_of(&mut self, key: PartitionKey) -> usize {
        let next = self.partitions.len();
        let partition = *self.by_key.entry(key).or_insert(next);
        if partition == next {
            self.partitions.push(Partition { class: key.0, nodes: SortedNodes::default() });
        }
        partition
    }
}
