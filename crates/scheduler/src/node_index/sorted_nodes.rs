//! Nodes kept in ranking order, so that the best node with enough memory is found without a full scan.
//!
//! A sequence holds schedulable nodes of the same class with the same allocatable CPU. Among those the order by
//! projected CPU equals the order by CPU in use, whatever the request; so one sorted sequence serves all services. It
//! is split into chunks, each with the largest headroom (free memory plus one) of its entries:
//!
//! ```text
//! [ n4 n9 n1 … | headroom ≤ 6 GiB ] [ n7 n2 … | headroom ≤ 8 GiB ] [ … ]     key: (cpu used, replicas, name)
//! ```
//!
//! Owns: the order. Costs: a step is O(chunk + nodes / chunk); a search skips whole chunks that are too full.
//! Must not touch: what a replica needs, or which class may serve it.
//! Invariant: every schedulable node is in exactly one sequence of each order, at the position its load gives it.

use crate::view::NodeIx;

/// Entries a chunk is split at. Half of it fits a few cache lines, and 10,000 nodes make some 150 chunks.
const CHUNK_LIMIT: usize = 128;

/// A node's sort key: CPU in use, then replicas, then rank of the name, packed to compare in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SortKey(u128);

impl SortKey {
    pub(crate) fn new(cpu_used_millis: u64, replicas: u32, name_rank: u32) -> Self {
        Self(u128::from(cpu_used_millis) << 64 | u128::from(replicas) << 32 | u128::from(name_rank))
    }
}

/// A node with its sort key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) key: SortKey,
    /// Free memory plus one, or zero where the node is overcommitted and takes not even a replica without memory.
    pub(crate) headroom: u64,
    pub(crate) node: NodeIx,
}

/// Consecutive entries.
#[derive(Debug, Default)]
struct Chunk {
    entries: Vec<Entry>,
    most_headroom: u64,
}

impl Chunk {
    fn measure(&mut self) {
        self.most_headroom = self.entries.iter().map(|entry| entry.headroom).max().unwrap_or(0);
    }
}

/// One sorted sequence of nodes.
#[derive(Debug, Default)]
pub(crate) struct SortedNodes {
    chunks: Vec<Chunk>,
}

impl SortedNodes {
    /// Builds the sequence from entries in any order.
    pub(crate) fn build(mut entries: Vec<Entry>) -> Self {
        entries.sort_unstable_by_key(|entry| entry.key);
        let chunks = entries.chunks(CHUNK_LIMIT / 2).map(|part| {
            let mut chunk = Chunk { entries: part.to_vec(), most_headroom: 0 };
            chunk.measure();
            chunk
        });
        Self { chunks: chunks.collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(crate) fn insert(&mut self, entry: Entry) {
        let at = self.chunk_for(entry.key);
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.push(Chunk { entries: vec![entry], most_headroom: entry.headroom });
            return;
        };
        let place = chunk.entries.partition_point(|other| other.key < entry.key);
        chunk.entries.insert(place, entry);
        chunk.most_headroom = chunk.most_headroom.max(entry.headroom);
        if chunk.entries.len() > CHUNK_LIMIT {
            self.split(at);
        }
    }

    pub(crate) fn remove(&mut self, key: SortKey) {
        let at = self.chunk_for(key);
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let place = chunk.entries.partition_point(|other| other.key < key);
        if chunk.entries.get(place).is_some_and(|entry| entry.key == key) {
            chunk.entries.remove(place);
            chunk.measure();
            if chunk.entries.is_empty() {
                self.chunks.remove(at);
            }
        }
    }

    /// The chunk a key belongs to: the first whose last key is not smaller, or the last chunk.
    fn chunk_for(&self, key: SortKey) -> usize {
        let at = self.chunks.partition_point(|chunk| chunk.entries.last().is_some_and(|last| last.key < key));
        at.min(self.chunks.len().saturating_sub(1))
    }

    fn split(&mut self, at: usize) {
        let entries = self.chunks[at].entries.split_off(CHUNK_LIMIT / 2);
        let mut upper = Chunk { entries, most_headroom: 0 };
        upper.measure();
        self.chunks[at].measure();
        self.chunks.insert(at + 1, upper);
    }
}

/// A position in a sequence. Valid until the sequence changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    chunk: usize,
    entry: usize,
}

impl Cursor {
    /// The next entry with at least `headroom`, in order.
    pub(crate) fn next(&mut self, nodes: &SortedNodes, headroom: u64) -> Option<Entry> {
        while let Some(chunk) = nodes.chunks.get(self.chunk) {
            if chunk.most_headroom >= headroom {
                while let Some(entry) = chunk.entries.get(self.entry) {
                    self.entry += 1;
                    if entry.headroom >= headroom {
                        return Some(*entry);
                    }
                }
            }
            self.chunk += 1;
            self.entry = 0;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(cpu: u64, headroom: u64, node: u32) -> Entry {
        Entry { key: SortKey::new(cpu, 0, node), headroom, node: NodeIx(node) }
    }

    fn walk(nodes: &SortedNodes, headroom: u64) -> Vec<u32> {
        let mut cursor = Cursor::default();
        std::iter::from_fn(|| cursor.next(nodes, headroom)).map(|entry| entry.node.0).collect()
    }

    #[test]
    fn a_sequence_stays_sorted_through_splits_and_removals() {
        let mut nodes = SortedNodes::default();
        for n in (0..1000_u32).rev() {
            nodes.insert(entry(u64::from(n % 7), u64::from(n % 5), n));
        }
        for n in (0..1000_u32).step_by(3) {
            nodes.remove(SortKey::new(u64::from(n % 7), 0, n));
        }
        let mut expected: Vec<u32> = (0..1000).filter(|n| n % 3 != 0).collect();
        expected.sort_by_key(|n| (n % 7, *n));
        assert_eq!(walk(&nodes, 0), expected);
        expected.retain(|n| n % 5 >= 4);
        assert_eq!(walk(&nodes, 4), expected);
    }

    #[test]
    fn removing_an_unknown_key_changes_nothing() {
        let mut nodes = SortedNodes::build(vec![entry(1, 1, 1)]);
        nodes.remove(SortKey::new(9, 0, 9));
        assert_eq!(walk(&nodes, 0), vec![1]);
    }
}
