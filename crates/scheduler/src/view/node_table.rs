//! The nodes as dense columns, their classes, and the indexes that keep them in ranking order.
//!
//! Owns: capacity and load of each node. Must not touch: which replica goes where.
//! Invariant: after [`NodeTable::refresh`] the indexes agree with the loads; a node is in an index if and only if it
//! takes new work.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{
    ClusterConfig, DrainOutcome, Health, Intent, Node, NodeName, Time, node::Overlay, node::UseDegraded,
};

use super::{
    GroupIx, NodeIx,
    classes::{ClassIx, Classes},
};
use crate::{
    address::AddressPool,
    node_index::{Entry, NodeIndex, Partition, PartitionKey, SortKey},
};

/// Resources in use on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) cpu_millis: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) disk_bytes: u64,
    /// Slots whose current generation is here.
    pub(crate) replicas: u32,
}

/// Resources a node offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) cpu_millis: u64,
    pub(crate) memory_bytes: u64,
    /// `u64::MAX` where the node reports no disk.
    pub(crate) disk_bytes: u64,
}

/// The frequently read facts of a node in one struct.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeStats {
    pub(crate) load: Load,
    pub(crate) limits: Limits,
    /// Position of the name in the sorted list of names.
    pub(crate) rank: u32,
    pub(crate) class: ClassIx,
}

/// All nodes.
#[derive(Debug, Default)]
pub(crate) struct NodeTable {
    pub(crate) by_name: BTreeMap<NodeName, NodeIx>,
    pub(crate) records: Vec<Arc<Node>>,
    pub(crate) stats: Vec<NodeStats>,
    pub(crate) addresses: Vec<AddressPool>,
    /// Host ports in use, with the number of holders: a port held twice by mistake is not free when one holder stops.
    pub(crate) ports: BTreeMap<(NodeIx, longshore_model::replica::HostPort), u32>,
    pub(crate) devices: BTreeMap<(NodeIx, String), u64>,
    /// For each node, how many generations of each group it has.
    pub(crate) groups_on: Vec<BTreeMap<GroupIx, u32>>,
    /// When the rebalancer last moved a replica to each node.
    pub(crate) last_received: Vec<Option<Time>>,
    pub(crate) classes: Classes,
    /// By CPU in use, for `spread`.
    by_cpu: NodeIndex,
    /// By number of replicas, for `least_loaded`; built on first use.
    by_count: Option<NodeIndex>,
    /// Nodes that are suspect or down.
    pub(crate) unreachable: BTreeSet<NodeIx>,
    /// Nodes that are down or draining, from which work is moved.
    pub(crate) down_or_draining: BTreeSet<NodeIx>,
    /// Nodes whose drain is not done.
    pub(crate) draining: BTreeSet<NodeIx>,
    free_indexes: Vec<NodeIx>,
    layout: Layout,
    /// Incremented whenever class indexes change their meaning.
    pub(crate) class_epoch: u64,
}

/// Whether ranks, classes and indexes are up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Layout {
    #[default]
    Stale,
    Current,
}

impl NodeTable {
    /// Whether a node is down, so that its replicas are not counted on.
    pub(crate) fn is_down(&self, node: NodeIx) -> bool {
        self.node(node).health == Health::Down
    }

    pub(crate) fn node(&self, ix: NodeIx) -> &Arc<Node> {
        &self.records[ix.at()]
    }

    pub(crate) fn stats(&self, ix: NodeIx) -> &NodeStats {
        &self.stats[ix.at()]
    }

    /// Every node, sorted by name.
    pub(crate) fn by_name_order(&self) -> impl Iterator<Item = NodeIx> {
        self.by_name.values().copied()
    }

    /// Has ranks, classes and indexes rebuilt before the next decision.
    pub(crate) fn invalidate_layout(&mut self) {
        self.layout = Layout::Stale;
    }

    /// Adds or updates a node.
    pub(crate) fn put(&mut self, node: &Arc<Node>, config: &ClusterConfig) -> NodeIx {
        let group = self.by_name.get(&node.name).copied();
        let ix = group.unwrap_or_else(|| self.add(node));
        self.records[ix.at()] = Arc::clone(node);
        self.track_condition(ix, node);
        self.addresses[ix.at()].set_limit(node.capacity.addresses);
        self.stats[ix.at()].limits = limits(node, config);
        if self.layout == Layout::Current {
            self.remove_from_indexes(ix);
            self.stats[ix.at()].class = self.classes.classify(node);
            self.add_to_indexes(ix);
        }
        ix
    }

    /// Updates the sets of the few nodes that are not healthy and active.
    fn track_condition(&mut self, ix: NodeIx, node: &Node) {
        let draining = node.intent == Intent::Draining;
        let unfinished = node.drain.as_ref().is_some_and(|drain| drain.outcome != DrainOutcome::Done);
        let gone = matches!(node.health, Health::Suspect | Health::Down);
        let mut keep = |set: fn(&mut Self) -> &mut BTreeSet<NodeIx>, belongs| {
            if belongs {
                set(self).insert(ix)
            } else {
                set(self).remove(&ix)
            };
        };
        keep(|table| &mut table.unreachable, gone);
        keep(|table| &mut table.down_or_draining, node.health == Health::Down || draining);
        keep(|table| &mut table.draining, draining && unfinished);
    }

    fn add(&mut self, node: &Arc<Node>) -> NodeIx {
        self.layout = Layout::Stale;
        let ix = self.free_indexes.pop().unwrap_or_else(|| {
            self.records.push(Arc::clone(node));
            self.stats.push(NodeStats::empty());
            self.addresses.push(AddressPool::default());
            self.groups_on.push(BTreeMap::new());
            self.last_received.push(None);
            NodeIx(u32::try_from(self.records.len() - 1).unwrap_or(u32::MAX))
        });
        self.stats[ix.at()] = NodeStats::empty();
        self.addresses[ix.at()] = AddressPool::default();
        self.groups_on[ix.at()] = BTreeMap::new();
        self.last_received[ix.at()] = None;
        self.by_name.insert(node.name.clone(), ix);
        ix
    }

    /// Removes a node that has no replicas.
    pub(crate) fn forget(&mut self, name: &NodeName) -> Option<NodeIx> {
        let ix = self.by_name.remove(name)?;
        self.unreachable.remove(&ix);
        self.down_or_draining.remove(&ix);
        self.draining.remove(&ix);
        self.remove_from_indexes(ix);
        self.free_indexes.push(ix);
        self.layout = Layout::Stale;
        Some(ix)
    }

    /// Counts one generation of a group less on a node.
    pub(crate) fn leave(&mut self, node: NodeIx, group: GroupIx) {
        let tenants = &mut self.groups_on[node.at()];
        if let Some(count) = tenants.get_mut(&group) {
            *count -= 1;
            if *count == 0 {
                tenants.remove(&group);
            }
        }
    }

    /// Rebuilds ranks, classes and indexes if they are stale: after a node joined or left, or a service referred to a
    /// label for the first time. Costs nodes × log nodes.
    pub(crate) fn refresh(&mut self) {
        if self.layout == Layout::Current {
            return;
        }
        self.layout = Layout::Current;
        self.class_epoch += 1;
        self.classes.reset();
        let order: Vec<NodeIx> = self.by_name_order().collect();
        for (rank, ix) in order.into_iter().enumerate() {
            self.stats[ix.at()].rank = u32::try_from(rank).unwrap_or(u32::MAX);
            self.stats[ix.at()].class = self.classes.classify(&self.records[ix.at()]);
        }
        self.by_cpu = self.build(Self::cpu_entry);
        self.by_count = None;
    }

    /// The partitions of the index by CPU in use.
    pub(crate) fn cpu_partitions(&self) -> &[Partition] {
        self.by_cpu.partitions()
    }

    /// The partitions of the index by replicas; empty before [`NodeTable::ensure_count_index`].
    pub(crate) fn count_partitions(&self) -> &[Partition] {
        self.by_count.as_ref().map_or(&[], NodeIndex::partitions)
    }

    /// Builds the index by replicas if it does not exist.
    pub(crate) fn ensure_count_index(&mut self) {
        if self.by_count.is_none() {
            self.by_count = Some(self.build(Self::count_entry));
        }
    }

    fn build(&self, entry: fn(&Self, NodeIx) -> (PartitionKey, Entry)) -> NodeIndex {
        let working = self.by_name_order().filter(|ix| takes_work(&self.records[ix.at()]));
        NodeIndex::build(self.records.len(), working.map(|ix| entry(self, ix)))
    }

    /// Partitioned by CPU limit: only where it is equal does CPU in use order nodes by projected CPU.
    fn cpu_entry(&self, ix: NodeIx) -> (PartitionKey, Entry) {
        let stats = self.stats(ix);
        let key = SortKey::new(stats.load.cpu_millis, stats.load.replicas, stats.rank);
        ((stats.class, stats.limits.cpu_millis), Entry { key, headroom: stats.headroom(), node: ix })
    }

    fn count_entry(&self, ix: NodeIx) -> (PartitionKey, Entry) {
        let stats = self.stats(ix);
        let key = SortKey::new(0, stats.load.replicas, stats.rank);
        ((stats.class, 0), Entry { key, headroom: stats.headroom(), node: ix })
    }

    /// Moves a node whose load changed to its new position in the indexes.
    pub(crate) fn reindex(&mut self, ix: NodeIx) {
        if self.layout == Layout::Current {
            self.remove_from_indexes(ix);
            self.add_to_indexes(ix);
        }
    }

    fn add_to_indexes(&mut self, ix: NodeIx) {
        if !takes_work(&self.records[ix.at()]) {
            return;
        }
        let (key, entry) = self.cpu_entry(ix);
        self.by_cpu.enter(key, entry);
        let (key, entry) = self.count_entry(ix);
        if let Some(by_count) = &mut self.by_count {
            by_count.enter(key, entry);
        }
    }

    fn remove_from_indexes(&mut self, ix: NodeIx) {
        self.by_cpu.leave(ix);
        if let Some(by_count) = &mut self.by_count {
            by_count.leave(ix);
        }
    }
}

impl NodeStats {
    const fn empty() -> Self {
        Self {
            load: Load { cpu_millis: 0, memory_bytes: 0, disk_bytes: 0, replicas: 0 },
            limits: Limits { cpu_millis: 0, memory_bytes: 0, disk_bytes: 0 },
            rank: 0,
            class: ClassIx(0),
        }
    }

    /// Free memory plus one, or zero where the node is overcommitted.
    pub(crate) const fn headroom(&self) -> u64 {
        match self.limits.memory_bytes.checked_sub(self.load.memory_bytes) {
            Some(free) => free.saturating_add(1),
            None => 0,
        }
    }

    /// CPU in use plus `more_millis`, in millionths of the allocatable CPU.
    pub(crate) fn projected_cpu(&self, more_millis: u64) -> u64 {
        projected_cpu(self.load.cpu_millis + more_millis, self.limits.cpu_millis)
    }
}

/// CPU in millionths of the allocatable CPU; a node without any counts as one thousandth of a core.
pub(crate) fn projected_cpu(used_millis: u64, limit_millis: u64) -> u64 {
    // The 64-bit division is several times faster and enough for any real machine; the 128-bit one is for the rest.
    if let Some(scaled) = used_millis.checked_mul(1_000_000) {
        return scaled / limit_millis.max(1);
    }
    let millionths = u128::from(used_millis) * 1_000_000 / u128::from(limit_millis.max(1));
    u64::try_from(millionths).unwrap_or(u64::MAX)
}

/// Whether a node takes new work at all: the `ready` filter, and the condition for being indexed.
pub(crate) fn takes_work(node: &Node) -> bool {
    let healthy = match node.health {
        Health::Ready => true,
        Health::Degraded => node.use_degraded == UseDegraded::Allowed,
        Health::Suspect | Health::Down => false,
    };
    let willing = match node.intent {
        Intent::Active => true,
        Intent::Paused | Intent::Draining | Intent::Removed => false,
    };
    healthy && willing && node.overlay == Overlay::Reachable && has_capacity(node)
}

/// Whether a node has memory to give out. CPU alone is not enough: it is soft, and nothing runs without memory.
pub(crate) fn has_capacity(node: &Node) -> bool {
    node.allocatable_memory() > 0
}

fn limits(node: &Node, config: &ClusterConfig) -> Limits {
    let cpu = u128::from(node.usable_cpu_millis()) * u128::from(config.cpu_overcommit_millionths) / 1_000_000;
    Limits {
        cpu_millis: u64::try_from(cpu).unwrap_or(u64::MAX),
        memory_bytes: node.allocatable_memory(),
        disk_bytes: node.allocatable_disk().unwrap_or(u64::MAX),
    }
}
