//! The spread tree: replicas of a service are levelled between branches, level by level, like water.
//!
//! Each preference is a level; a node without the label is in a branch of its own. The next replica always goes to
//! the node with the smallest rank: fewest of the service in its branch of each level, then on the node, and so on.
//! Because only the branches on the way to the chosen node change, each fork keeps its children in a heap and one
//! placement costs levels × log branches, whatever the number of nodes.
//!
//! Filling one sibling to the level of the next and then going round robin was refused: from an uneven start it
//! leaves nodes behind (nodes 0,0,0,0,3 and 8 more become 1,1,1,4,4 instead of 2,2,2,2,3).
//!
//! Owns: the levels. Invariant: no replica placed here could move from a fuller to an emptier branch that has room,
//! among nodes not faulty, and leave both more level.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use longshore_model::{Attribute, Node, Operator, Strategy};
use smallvec::SmallVec;

use super::{
    Batch, affinity,
    leaf::{Leaf, Order, Taken},
    rank::TreeRank,
};
use crate::{
    feasibility::{is_domain, skew},
    view::{NodeIx, classes},
};

/// A branch of the tree.
#[derive(Debug)]
enum Branch {
    Fork(Fork),
    Leaf(Leaf),
}

/// Branches of one level, best first.
#[derive(Debug, Default)]
struct Fork {
    children: Vec<Child>,
    by_value: BTreeMap<Option<String>, usize>,
    order: BinaryHeap<Reverse<(TreeRank, usize)>>,
}

#[derive(Debug)]
struct Child {
    /// Slots of the service below, on nodes that take new work or not.
    count: u32,
    /// Whether the service could use a node below, if it had room.
    usable: bool,
    branch: Branch,
}

/// Fills a batch: first from the nodes not faulty for the service, then from the faulty ones.
pub(super) fn fill(batch: &mut Batch<'_>) {
    let mut left = usize::MAX;
    while !batch.is_filled() && batch.vacancies.len() < left {
        left = batch.vacancies.len();
        fill_from(batch, Healthy::Only);
        // Only a skew can allow after a placement what it forbade before; then the sound nodes are asked again first.
        let skewed = batch.ask.spec.placement.max_skew.is_some();
        let stuck = !skewed || batch.vacancies.len() == left;
        if stuck && !batch.is_filled() && !batch.ask.faulty.is_empty() {
            fill_from(batch, Healthy::Faulty);
        }
        if !skewed {
            return;
        }
    }
}

/// How many to place before the tree is made anew. A tree of levels keeps the skew by itself, but a faulty node may let
/// the others have the next one; without levels every placement may change who is let.
fn at_once(batch: &Batch<'_>, which: Healthy) -> usize {
    let levelled = batch.ask.spec.placement.strategy == Strategy::Spread && which == Healthy::Only;
    if batch.ask.spec.placement.max_skew.is_none() || levelled { usize::MAX } else { 1 }
}

/// Which nodes a tree is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Healthy {
    Only,
    Faulty,
}

fn fill_from(batch: &mut Batch<'_>, which: Healthy) {
    let mut root = Branch::new(levels(batch));
    root.seed(batch);
    if batch.ask.spec.placement.max_skew.is_some() {
        for node in batch.view.fleet.in_order().filter(|node| is_domain(batch.ask, batch.view, *node)) {
            root.mark_usable(levels(batch), batch.view.fleet.node(node));
        }
    }
    match which {
        Healthy::Faulty => {
            for node in batch.ask.faulty.clone() {
                root.add_node(batch, node);
            }
        }
        Healthy::Only => root.add_healthy(batch),
    }
    root.sort();
    let enough = batch.vacancies.len().saturating_sub(at_once(batch, which));
    while batch.vacancies.len() > enough && root.best().is_some() {
        root.take(batch);
    }
}

/// Only `spread` looks at preferences.
fn levels<'a>(batch: &'a Batch<'_>) -> &'a [Attribute] {
    match batch.ask.spec.placement.strategy {
        Strategy::Spread => skew::levels(batch.ask),
        Strategy::Pack | Strategy::Hosts | Strategy::Global | Strategy::Binpack | Strategy::Hash => &[],
    }
}

impl Branch {
    fn new(levels: &[Attribute]) -> Self {
        if levels.is_empty() { Self::Leaf(Leaf::default()) } else { Self::Fork(Fork::default()) }
    }

    /// Counts what the service already has into the branches.
    fn seed(&mut self, batch: &Batch<'_>) {
        if levels(batch).is_empty() {
            return;
        }
        for node in batch.ask.counts.nodes() {
            let known = batch.view.fleet.node(node);
            self.descend(levels(batch), known, batch.ask.counts.get(node));
        }
    }

    fn add_healthy(&mut self, batch: &Batch<'_>) {
        if let Some(shortlist) = shortlist(batch) {
            for node in shortlist {
                self.add_node_if_healthy(batch, node);
            }
            return;
        }
        let order = match batch.ask.spec.placement.strategy {
            Strategy::Pack => Order::ByCount,
            Strategy::Spread | Strategy::Hosts | Strategy::Global | Strategy::Binpack | Strategy::Hash => Order::ByCpu,
        };
        for (at, lane) in order.lanes(batch.view).iter().enumerate() {
            if !lane.lane.is_empty() && batch.ask.accepts_class(batch.view, lane.class) {
                let example = batch.view.fleet.classes.example(lane.class);
                self.descend(levels(batch), example, 0).add_lane(batch, order, at);
            }
        }
        for node in batch.ask.counts.nodes() {
            self.add_node_if_healthy(batch, node);
        }
    }

    fn add_node_if_healthy(&mut self, batch: &Batch<'_>, node: NodeIx) {
        if !batch.ask.faulty.contains(&node) {
            self.add_node(batch, node);
        }
    }

    fn add_node(&mut self, batch: &Batch<'_>, node: NodeIx) {
        if batch.ask.accepts(batch.view, node) {
            let known = batch.view.fleet.node(node).clone();
            self.descend(levels(batch), &known, 0).add_node(batch, node);
        }
    }

    /// The leaf a node belongs to, made if it is the first; `count` is added on the way.
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

    /// Notes that the service could use a node in these branches.
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

    /// Puts the children of every fork in order.
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

    fn take(&mut self, batch: &mut Batch<'_>) -> Taken {
        match self {
            Self::Leaf(leaf) => leaf.take(batch),
            Self::Fork(fork) => {
                let Some(Reverse((_, at))) = fork.order.pop() else { return Taken::Nobody };
                if fork.is_too_uneven(batch, at) {
                    // The best branch is the lowest that has room, so the others are too high as well.
                    fork.order.clear();
                    return Taken::Nobody;
                }
                let taken = fork.children[at].branch.take(batch);
                if taken == Taken::One {
                    fork.children[at].count += 1;
                }
                let entry = fork.entry(at);
                fork.order.extend(entry);
                taken
            }
        }
    }
}

impl Fork {
    /// Whether one more in a branch would put it too far above the lowest.
    fn is_too_uneven(&self, batch: &Batch<'_>, at: usize) -> bool {
        let Some(limit) = batch.ask.spec.placement.max_skew else { return false };
        let lowest = self.children.iter().filter(|child| child.usable).map(|child| child.count).min();
        lowest.is_some_and(|lowest| (self.children[at].count + 1).saturating_sub(lowest) > limit)
    }

    fn entry(&self, at: usize) -> Option<Reverse<(TreeRank, usize)>> {
        let mut rank = self.children[at].branch.best()?;
        rank.branches.insert(0, self.children[at].count);
        Some(Reverse((rank, at)))
    }
}

/// The nodes to look at one by one, where lanes cannot help: a volume has a home, a constraint names the node, the
/// service must be near another, or what is compared differs from node to node.
fn shortlist(batch: &Batch<'_>) -> Option<Vec<NodeIx>> {
    let (view, ask) = (&*batch.view, &*batch.ask);
    let home = ask.terms.volumes.iter().find_map(|held| view.volumes.get(&held.key)?.home.as_ref());
    if let Some(home) = home {
        return Some(view.fleet.by_name.get(home).copied().into_iter().collect());
    }
    let named = ask.spec.placement.constraints.iter().find(|constraint| {
        matches!(constraint.attribute, Attribute::Id | Attribute::Hostname) && constraint.operator == Operator::Equal
    });
    if let Some(named) = named {
        let matching = view.fleet.by_name.iter().filter(|(name, _)| name.as_str().eq_ignore_ascii_case(&named.value));
        return Some(matching.map(|(_, node)| *node).collect());
    }
    if let Some(haunts) = ask.company.haunts() {
        return Some(haunts.iter().copied().collect());
    }
    let personal = affinity::is_personal(ask) || levels(batch).iter().any(Attribute::is_unique);
    personal.then(|| view.fleet.in_order().collect())
}
