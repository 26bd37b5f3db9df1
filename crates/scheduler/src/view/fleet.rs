//! The nodes as dense columns, their classes, and the lanes that keep them in order.
//!
//! Owns: what each node offers and carries. Must not touch: which replica goes where.
//! Invariant: outside [`Fleet::refresh`]'s callers, lanes agree with loads; a node is in a lane if and only if it
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
    ladder::{ClassLane, Ladder, LaneKind},
};
use crate::{
    address::AddressPool,
    lanes::{Entry, LaneKey},
};

/// What a node carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) cpu_millis: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) disk_bytes: u64,
    /// Slots whose current generation is here.
    pub(crate) replicas: u32,
}

/// What a node offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) cpu_millis: u64,
    pub(crate) memory_bytes: u64,
    /// `u64::MAX` where the node reports no disk.
    pub(crate) disk_bytes: u64,
}

/// The hot facts of a node, side by side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) load: Load,
    pub(crate) limits: Limits,
    /// Position of the name among all names.
    pub(crate) rank: u32,
    pub(crate) class: ClassIx,
}

/// All nodes.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub(crate) by_name: BTreeMap<NodeName, NodeIx>,
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) seats: Vec<Seat>,
    pub(crate) addresses: Vec<AddressPool>,
    /// Host ports in use, with how many hold each: a port held twice by mishap is not free when one lets go.
    pub(crate) ports: BTreeMap<(NodeIx, longshore_model::replica::HostPort), u32>,
    pub(crate) devices: BTreeMap<(NodeIx, String), u64>,
    /// Slots of each group whose generations are here.
    pub(crate) tenants: Vec<BTreeMap<GroupIx, u32>>,
    /// When each node last took in a replica that was moved to even the load.
    pub(crate) received: Vec<Option<Time>>,
    pub(crate) classes: Classes,
    /// Lanes by CPU in use, for `spread`.
    by_cpu: Ladder,
    /// Lanes by replicas, for `pack`; kept only once somebody packs.
    by_count: Option<Ladder>,
    /// Nodes that are suspect or down.
    pub(crate) gone: BTreeSet<NodeIx>,
    /// Nodes that are down or drained, from which work leaves.
    pub(crate) unsettled: BTreeSet<NodeIx>,
    /// Nodes whose drain is not over.
    pub(crate) drained: BTreeSet<NodeIx>,
    free: Vec<NodeIx>,
    layout: Layout,
    /// Grows whenever class numbers change their meaning.
    pub(crate) class_epoch: u64,
}

/// Whether ranks, classes and lanes still hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Layout {
    #[default]
    Stale,
    Sound,
}

impl Fleet {
    /// Whether a node is down, so that nothing on it is counted on.
    pub(crate) fn is_down(&self, node: NodeIx) -> bool {
        self.node(node).health == Health::Down
    }

    pub(crate) fn node(&self, ix: NodeIx) -> &Arc<Node> {
        &self.nodes[ix.at()]
    }

    pub(crate) fn seat(&self, ix: NodeIx) -> &Seat {
        &self.seats[ix.at()]
    }

    /// Every node, in order of names.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = NodeIx> {
        self.by_name.values().copied()
    }

    /// Ranks, classes and lanes are worked out anew before the next decision.
    pub(crate) fn lay_out_again(&mut self) {
        self.layout = Layout::Stale;
    }

    /// Takes a node in, new or changed.
    pub(crate) fn put(&mut self, node: &Arc<Node>, config: &ClusterConfig) -> NodeIx {
        let known = self.by_name.get(&node.name).copied();
        let ix = known.unwrap_or_else(|| self.add(node));
        self.nodes[ix.at()] = Arc::clone(node);
        self.note_standing(ix, node);
        self.addresses[ix.at()].set_limit(node.capacity.addresses);
        self.seats[ix.at()].limits = limits(node, config);
        if self.layout == Layout::Sound {
            self.leave_lane(ix);
            self.seats[ix.at()].class = self.classes.classify(node);
            self.enter_lane(ix);
        }
        ix
    }

    /// Keeps the few nodes that need care apart from the many that do not.
    fn note_standing(&mut self, ix: NodeIx, node: &Node) {
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
        keep(|fleet| &mut fleet.gone, gone);
        keep(|fleet| &mut fleet.unsettled, node.health == Health::Down || draining);
        keep(|fleet| &mut fleet.drained, draining && unfinished);
    }

    fn add(&mut self, node: &Arc<Node>) -> NodeIx {
        self.layout = Layout::Stale;
        let ix = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Arc::clone(node));
            self.seats.push(Seat::empty());
            self.addresses.push(AddressPool::default());
            self.tenants.push(BTreeMap::new());
            self.received.push(None);
            NodeIx(u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX))
        });
        self.seats[ix.at()] = Seat::empty();
        self.addresses[ix.at()] = AddressPool::default();
        self.tenants[ix.at()] = BTreeMap::new();
        self.received[ix.at()] = None;
        self.by_name.insert(node.name.clone(), ix);
        ix
    }

    /// Forgets a node that carries nothing any more.
    pub(crate) fn forget(&mut self, name: &NodeName) -> Option<NodeIx> {
        let ix = self.by_name.remove(name)?;
        self.gone.remove(&ix);
        self.unsettled.remove(&ix);
        self.drained.remove(&ix);
        self.leave_lane(ix);
        self.free.push(ix);
        self.layout = Layout::Stale;
        Some(ix)
    }

    /// A generation of a group is no longer on a node.
    pub(crate) fn leave(&mut self, node: NodeIx, group: GroupIx) {
        let tenants = &mut self.tenants[node.at()];
        if let Some(count) = tenants.get_mut(&group) {
            *count -= 1;
            if *count == 0 {
                tenants.remove(&group);
            }
        }
    }

    /// Makes ranks, classes and lanes sound. Costs nodes × log nodes, and only after a node joined or left or a
    /// service asked about a label nobody asked about before.
    pub(crate) fn refresh(&mut self) {
        if self.layout == Layout::Sound {
            return;
        }
        self.layout = Layout::Sound;
        self.class_epoch += 1;
        self.classes.reset();
        let order: Vec<NodeIx> = self.in_order().collect();
        for (rank, ix) in order.into_iter().enumerate() {
            self.seats[ix.at()].rank = u32::try_from(rank).unwrap_or(u32::MAX);
            self.seats[ix.at()].class = self.classes.classify(&self.nodes[ix.at()]);
        }
        self.by_cpu = self.build(Self::cpu_entry);
        self.by_count = None;
    }

    /// The lanes by CPU in use.
    pub(crate) fn cpu_lanes(&self) -> &[ClassLane] {
        self.by_cpu.lanes()
    }

    /// The lanes by replicas, if somebody packs.
    pub(crate) fn count_lanes(&self) -> &[ClassLane] {
        self.by_count.as_ref().map_or(&[], Ladder::lanes)
    }

    /// Makes sure that there are lanes by replicas.
    pub(crate) fn keep_count_lanes(&mut self) {
        if self.by_count.is_none() {
            self.by_count = Some(self.build(Self::count_entry));
        }
    }

    fn build(&self, entry: fn(&Self, NodeIx) -> (LaneKind, Entry)) -> Ladder {
        let working = self.in_order().filter(|ix| takes_work(&self.nodes[ix.at()]));
        Ladder::build(self.nodes.len(), working.map(|ix| entry(self, ix)))
    }

    /// CPU in use orders nodes by projected CPU only where the limit is the same.
    fn cpu_entry(&self, ix: NodeIx) -> (LaneKind, Entry) {
        let seat = self.seat(ix);
        let key = LaneKey::new(seat.load.cpu_millis, seat.load.replicas, seat.rank);
        ((seat.class, seat.limits.cpu_millis), Entry { key, room: seat.room(), node: ix })
    }

    fn count_entry(&self, ix: NodeIx) -> (LaneKind, Entry) {
        let seat = self.seat(ix);
        let key = LaneKey::new(0, seat.load.replicas, seat.rank);
        ((seat.class, 0), Entry { key, room: seat.room(), node: ix })
    }

    /// Puts a node whose load changed at its new place in the lanes.
    pub(crate) fn reseat(&mut self, ix: NodeIx) {
        if self.layout == Layout::Sound {
            self.leave_lane(ix);
            self.enter_lane(ix);
        }
    }

    fn enter_lane(&mut self, ix: NodeIx) {
        if !takes_work(&self.nodes[ix.at()]) {
            return;
        }
        let (kind, entry) = self.cpu_entry(ix);
        self.by_cpu.enter(kind, entry);
        let (kind, entry) = self.count_entry(ix);
        if let Some(by_count) = &mut self.by_count {
            by_count.enter(kind, entry);
        }
    }

    fn leave_lane(&mut self, ix: NodeIx) {
        self.by_cpu.leave(ix);
        if let Some(by_count) = &mut self.by_count {
            by_count.leave(ix);
        }
    }
}

impl Seat {
    const fn empty() -> Self {
        Self {
            load: Load { cpu_millis: 0, memory_bytes: 0, disk_bytes: 0, replicas: 0 },
            limits: Limits { cpu_millis: 0, memory_bytes: 0, disk_bytes: 0 },
            rank: 0,
            class: ClassIx(0),
        }
    }

    /// Free memory plus one, or zero where more is used than there is.
    pub(crate) const fn room(&self) -> u64 {
        match self.limits.memory_bytes.checked_sub(self.load.memory_bytes) {
            Some(free) => free.saturating_add(1),
            None => 0,
        }
    }

    /// CPU in use with `more` added, in millionths of what is allocatable.
    pub(crate) fn projected_cpu(&self, more_millis: u64) -> u64 {
        projected_cpu(self.load.cpu_millis + more_millis, self.limits.cpu_millis)
    }
}

/// CPU in millionths of what is allocatable; a node without any counts as one thousandth of a core.
pub(crate) fn projected_cpu(used_millis: u64, limit_millis: u64) -> u64 {
    // The narrow division is several times faster and enough for any real machine; the wide one is for the rest.
    if let Some(scaled) = used_millis.checked_mul(1_000_000) {
        return scaled / limit_millis.max(1);
    }
    let millionths = u128::from(used_millis) * 1_000_000 / u128::from(limit_millis.max(1));
    u64::try_from(millionths).unwrap_or(u64::MAX)
}

/// Whether a node takes new work at all: the `ready` filter, and the door to the lanes.
pub(crate) fn takes_work(node: &Node) -> bool {
    let healthy = match node.health {
        Health::Ready => true,
        Health::Degraded => node.use_degraded == UseDegraded::Yes,
        Health::Suspect | Health::Down => false,
    };
    let willing = match node.intent {
        Intent::Active => true,
        Intent::Paused | Intent::Draining | Intent::Removed => false,
    };
    healthy && willing && node.overlay == Overlay::Reachable && has_capacity(node)
}

/// Whether a node reports anything to give.
pub(crate) fn has_capacity(node: &Node) -> bool {
    node.usable_cpu_millis() > 0 || node.allocatable_memory() > 0
}

fn limits(node: &Node, config: &ClusterConfig) -> Limits {
    let cpu = u128::from(node.usable_cpu_millis()) * u128::from(config.cpu_overcommit_millionths) / 1_000_000;
    Limits {
        cpu_millis: u64::try_from(cpu).unwrap_or(u64::MAX),
        memory_bytes: node.allocatable_memory(),
        disk_bytes: node.allocatable_disk().unwrap_or(u64::MAX),
    }
}
