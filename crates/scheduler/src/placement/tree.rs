//! The spread tree: balances the replicas of a service between branches, level by level.
//!
//! Each preference is a level; nodes without the label form their own branch. The next replica always goes to the node
//! with the smallest rank: fewest replicas of the service in its branch of each level, then on the node, and so on.
//! Only the branches on the path to the chosen node change, so each fork keeps its children in a heap and one placement
//! costs levels × log branches, independent of the number of nodes.
//!
//! Filling one sibling to the level of the next and then going round robin was refused: from an uneven start it
//! leaves nodes behind (nodes 0,0,0,0,3 and 8 more become 1,1,1,4,4 instead of 2,2,2,2,3).
//!
//! Owns: the levels. Invariant: moving a replica placed here from a fuller branch to an emptier one with capacity never
//! makes the two more even, among nodes that are not faulty.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use longshore_model::{Attribute, Node, Operator};
use smallvec::SmallVec;

use super::{
    Batch, affinity,
    leaf::{Leaf, Order},
    rank::TreeRank,
};
use crate::{
    feasibility::{is_eligible, skew},
    view::{NodeIx, classes},
};

/// A branch of the tree.
#[derive(Debug)]
enum Branch {
    Fork(Fork),
    Leaf(Leaf),
}

/// The branches of one level, in a heap with the best on top.
#[derive(Debug, Default)]
struct Fork {
    children: Vec<Child>,
    by_value: BTreeMap<Option<String>, usize>,
    order: BinaryHeap<Reverse<(TreeRank, usize)>>,
}

#[derive(Debug)]
struct Child {
    /// Slots of the service in this branch, also on nodes that take no new work.
    count: u32,
    /// Whether the branch has a node that the service could use if it had capacity.
    usable: bool,
    branch: Branch,
}

/// Places a batch: first on nodes that are not faulty for the service, then on faulty ones.
pub(super) fn fill(batch: &mut Batch<'_>) {
    let mut left = usize::MAX;
    while !batch.is_filled() && batch.pending_slots.len() < left {
        left = batch.pending_slots.len();
        fill_from(batch, NodeSet::Healthy);
        // Only with a skew limit can a placement allow nodes refused before; then the healthy nodes are tried again
        // first.
        let skewed = batch.request.spec.placement.max_skew.is_some();
        let stuck = !skewed || batch.pending_slots.len() == left;
        if stuck && !batch.is_filled() && !batch.request.faulty.is_empty() {
            fill_from(batch, NodeSet::Faulty);
        }
        if !skewed {
            return;
        }
    }
}

/// How many slots to place before the tree is rebuilt. A spread tree enforces the skew itself, but a placement on a
/// faulty node may allow healthy nodes again; a strategy without levels has to re-check every node after every
/// placement.
fn at_once(batch: &Batch<'_>, nodes: NodeSet) -> usize {
    let levelled = batch.request.spec.placement.strategy.is_spread() && nodes == NodeSet::Healthy;
    if batch.request.spec.placement.max_skew.is_none() || levelled { usize::MAX } else { 1 }
}

/// Which nodes a tree is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeSet {
    /// Nodes that are not faulty for the service.
    Healthy,
    Faulty,
}

fn fill_from(batch: &mut Batch<'_>, nodes: NodeSet) {
    let mut root = Branch::new(levels(batch));
    root.seed(batch);
    if batch.request.spec.placement.max_skew.is_some() {
        for node in batch.view.nodes.by_name_order().filter(|node| is_eligible(batch.request, batch.view, *node)) {
            root.mark_usable(levels(batch), batch.view.nodes.node(node));
        }
    }
    match nodes {
        NodeSet::Faulty => {
            for node in batch.request.faulty.clone() {
                root.add_node(batch, node);
            }
        }
        NodeSet::Healthy => root.add_healthy(batch),
    }
    root.sort();
    let enough = batch.pending_slots.len().saturating_sub(at_once(batch, nodes));
    while batch.pending_slots.len() > enough && root.best().is_some() {
        root.place_next(batch);
    }
}

/// The levels of the tree; only `spread` uses preferences.
fn levels<'a>(batch: &'a Batch<'_>) -> &'a [Attribute] {
    if batch.request.spec.placement.strategy.is_spread() { skew::levels(batch.request) } else { &[] }
}

impl Branch {
    fn new(levels: &[Attribute]) -> Self {
        if levels.is_empty() { Self::Leaf(Leaf::default()) } else { Self::Fork(Fork::default()) }
    }

    /// Adds the service's existing slots to the branch counts.
    fn seed(&mut self, batch: &Batch<'_>) {
        if levels(batch).is_empty() {
            return;
        }
        for node in batch.request.counts.nodes() {
            let known = batch.view.nodes.node(node);
            self.descend(levels(batch), known, batch.request.counts.get(node));
        }
    }

    fn add_healthy(&mut self, batch: &Batch<'_>) {
        if let Some(shortlist) = shortlist(batch) {
            for node in shortlist {
                self.add_node_if_healthy(batch, node);
            }
            return;
        }
        let by_count = batch.request.spec.placement.strategy.ranks_by_replica_count();
        let order = if by_count { Order::ByCount } else { Order::ByCpu };
        for (at, partition) in order.partitions(batch.view).iter().enumerate() {
            if !partition.nodes.is_empty() && batch.request.accepts_class(batch.view, partition.class) {
                let example = batch.view.nodes.classes.example(partition.class);
                self.descend(levels(batch), example, 0).add_partition(batch, order, at);
            }
        }
        for node in batch.request.counts.nodes() {
            self.add_node_if_healthy(batch, node);
        }
    }

    fn add_node_if_healthy(&mut self, batch: &Batch<'_>, node: NodeIx) {
        if !batch.request.faulty.contains(&node) {
            self.add_node(batch, node);
        }
    }

    fn add_node(&mut self, batch: &Batch<'_>, node: NodeIx) {
        if batch.request.accepts(batch.view, node) {
            let known = batch.view.nodes.node(node).clone();
            self.descend(levels(batch), &known, 0).add_node(batch, node);
        }
    }

    /// The leaf of a node, created if missing; `count` is added to every branch on the path.
    fn descend(&mut self, levels: &[Attribute], node: &Node, count: u32) -> &mut Leaf {
        match self {
            Self::Leaf(leaf) => leaf,
            Self::Fork(fork) => {
                let (level, below) = levels.split_first().expect("a fork has a level");
                let value = classes::value(node, level);
                let next = fork.children.len();
                let at = *fork.by_value.entry(value).or_insert(next);
                if at == next {
                    fork.children.push(Child { count: 0, usable: false, branch: Self::new(below) });
                }
                let child = &mut fork.children[at];
                child.count += count;
                child.branch.descend(below, node, count)
            }
        }
    }

    /// Marks the branches on the path of a node that the service could use.
    fn mark_usable(&mut self, levels: &[Attribute], node: &Node) {
        self.descend(levels, node, 0);
        let mut branch = self;
        for level in levels {
            let Self::Fork(fork) = branch else { return };
            let at = fork.by_value[&classes::value(node, level)];
            fork.children[at].usable = true;
            branch = &mut fork.children[at].branch;
        }
    }

    /// Builds the heap of every fork.
    fn sort(&mut self) {
        if let Self::Fork(fork) = self {
            for child in &mut fork.children {
                child.branch.sort();
            }
            fork.order = (0..fork.children.len()).filter_map(|at| fork.entry(at)).collect();
        }
    }

    fn best(&self) -> Option<TreeRank> {
        match self {
            Self::Leaf(leaf) => leaf.best().map(|leaf| TreeRank { branches: SmallVec::new(), leaf }),
            Self::Fork(fork) => fork.order.peek().map(|Reverse((rank, _))| rank.clone()),
        }
    }

    /// Places the next slot on the best node; returns whether one was placed.
    fn place_next(&mut self, batch: &mut Batch<'_>) -> bool {
        match self {
            Self::Leaf(leaf) => leaf.place_next(batch),
            Self::Fork(fork) => {
                let Some(Reverse((_, at))) = fork.order.pop() else { return false };
                if fork.exceeds_max_skew(batch, at) {
                    // The best branch is the lowest one with capacity, so the others exceed the skew as well.
                    fork.order.clear();
                    return false;
                }
                let placed = fork.children[at].branch.place_next(batch);
                if placed {
                    fork.children[at].count += 1;
                }
                let entry = fork.entry(at);
                fork.order.extend(entry);
                placed
            }
        }
    }
}

impl Fork {
    /// Whether one more slot in a branch would put it more than `max_skew` above the lowest.
    fn exceeds_max_skew(&self, batch: &Batch<'_>, at: usize) -> bool {
        let Some(limit) = batch.request.spec.placement.max_skew else { return false };
        let lowest = self.children.iter().filter(|child| child.usable).map(|child| child.count).min();
        lowest.is_some_and(|lowest| (self.children[at].count + 1).saturating_sub(lowest) > limit)
    }

    fn entry(&self, at: usize) -> Option<Reverse<(TreeRank, usize)>> {
        let mut rank = self.children[at].branch.best()?;
        rank.branches.insert(0, self.children[at].count);
        Some(Reverse((rank, at)))
    }
}

/// The nodes to rank one by one where the node index does not help: a volume has a home node, a constraint names the
/// node, the service must be near another, or the rank differs between nodes of one class.
fn shortlist(batch: &Batch<'_>) -> Option<Vec<NodeIx>> {
    let (view, request) = (&*batch.view, &*batch.request);
    let home = request.reservation.volumes.iter().find_map(|held| view.volumes.get(&held.key)?.home.as_ref());
    if let Some(home) = home {
        return Some(view.nodes.by_name.get(home).copied().into_iter().collect());
    }
    let named = request.spec.placement.constraints.iter().find(|constraint| {
        matches!(constraint.attribute, Attribute::Id | Attribute::Hostname) && constraint.operator == Operator::Equal
    });
    if let Some(named) = named {
        let matching = view.nodes.by_name.iter().filter(|(name, _)| name.as_str().eq_ignore_ascii_case(&named.value));
        return Some(matching.map(|(_, node)| *node).collect());
    }
    if let Some(companion_nodes) = request.companions.companion_nodes() {
        return Some(companion_nodes.iter().copied().collect());
    }
    let per_node = affinity::varies_within_class(request) || levels(batch).iter().any(Attribute::is_unique);
    per_node.then(|| view.nodes.by_name_order().collect())
}
