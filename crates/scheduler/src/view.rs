//! Everything the scheduler knows, indexed for deciding and kept up to date by events.
//!
//! Owns: the indexes and what is dirty. Must not touch: decisions.
//! Invariant: a view fed the events of a state from scratch answers every question like one that followed along.

pub(crate) mod classes;
mod companions;
mod dependents;
mod events;
pub(crate) mod fleet;
pub(crate) mod groups;
pub(crate) mod ladder;
pub(crate) mod occupancy;
mod promises;
pub(crate) mod reservation;
pub(crate) mod rollouts;
mod supposed;
pub(crate) mod usage;
pub(crate) mod volumes;

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use longshore_model::{
    ClusterConfig, DeploymentName, Evacuation, GroupKey, NamespaceName, NodeName, SecretName, Time, command::Quota,
    config::Preemption,
};

use crate::{ask::Counts, reconcile::absence};

use self::{fleet::Fleet, groups::Group, reservation::Journal, rollouts::Known, usage::Usage, volumes::Volumes};

/// Dense number of a node in the view. Not stable across views; never leaves the crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeIx(pub(crate) u32);

impl NodeIx {
    pub(crate) const fn at(self) -> usize {
        self.0 as usize
    }
}

/// Dense number of a group in the view. Not stable across views; never leaves the crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupIx(pub(crate) u32);

impl GroupIx {
    pub(crate) const fn at(self) -> usize {
        self.0 as usize
    }
}

/// The scheduler's picture of the cluster.
#[derive(Debug, Default)]
pub struct View {
    pub(crate) config: ClusterConfig,
    pub(crate) fleet: Fleet,
    pub(crate) groups: Vec<Option<Group>>,
    pub(crate) group_ids: BTreeMap<GroupKey, GroupIx>,
    pub(crate) volumes: Volumes,
    pub(crate) secrets: BTreeMap<(NamespaceName, SecretName), u64>,
    pub(crate) quotas: BTreeMap<NamespaceName, Quota>,
    pub(crate) usage: BTreeMap<NamespaceName, Usage>,
    /// Nodes that are gone and still in the books, with the instant they went.
    pub(crate) removed: BTreeMap<NodeName, Time>,
    /// Addresses given back, by the instant they were.
    pub(crate) resting: BTreeSet<(Time, NodeIx, u64)>,
    /// Groups something happened to since they were last decided.
    pub(crate) dirty: BTreeSet<GroupIx>,
    /// Groups with slots that have no node.
    pub(crate) waiting: BTreeSet<GroupIx>,
    /// Groups that look at where another group is, by that group.
    pub(crate) watchers: BTreeMap<GroupKey, BTreeSet<GroupIx>>,
    /// Groups that wait for another group, by that group.
    pub(crate) dependents: BTreeMap<GroupKey, BTreeSet<GroupIx>>,
    /// Groups that follow the nodes rather than a count.
    pub(crate) per_node: BTreeSet<GroupIx>,
    /// Groups whose answer changes at an instant without any event, by that instant.
    pub(crate) alarms: BTreeSet<(Time, GroupIx)>,
    /// The last rollout of each deployment that had one.
    pub(crate) rollouts: BTreeMap<(NamespaceName, DeploymentName), Known>,
    /// Deployments whose rollout may have ended although none of their groups is asked.
    pub(crate) rollouts_due: BTreeSet<(NamespaceName, DeploymentName)>,
    /// Whether room may have appeared somewhere, so that what waits is tried again.
    pub(crate) room_appeared: RoomAppeared,
    /// Groups that the last plan gave nodes to while others waited.
    pub(crate) promised: Vec<GroupIx>,
    /// Whether work is taken off nodes that are down, as last told.
    pub(crate) evacuation: Evacuation,
    /// Whether evacuation was held back when the view was last advanced.
    pub(crate) braked: Braked,
    pub(crate) journal: Journal,
    /// A column lent to each ask in turn, kept for its allocation.
    pub(crate) counts: Counts,
}

/// Whether anything happened that could help a waiting group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RoomAppeared {
    #[default]
    No,
    Yes,
}

/// Whether too many nodes are gone to take work off them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Braked {
    #[default]
    No,
    Yes,
}

impl View {
    /// A view of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn group(&self, group: GroupIx) -> &Group {
        self.groups[group.at()].as_ref().expect("a group number is only kept while the group exists")
    }

    pub(crate) fn group_mut(&mut self, group: GroupIx) -> &mut Group {
        self.groups[group.at()].as_mut().expect("a group number is only kept while the group exists")
    }

    /// Moves what is due by `now`: rested addresses become free, alarms ring.
    pub(crate) fn advance(&mut self, now: Time) {
        while let Some(&(since, node, host)) = self.resting.first()
            && since.after(self.config.address_cooldown) <= now
        {
            self.resting.pop_first();
            self.fleet.addresses[node.at()].free(host);
            self.room_appeared = RoomAppeared::Yes;
        }
        self.notice_brake();
        while let Some(&(at, group)) = self.alarms.first()
            && at <= now
        {
            self.alarms.pop_first();
            self.dirty.insert(group);
        }
        if self.room_appeared == RoomAppeared::Yes {
            self.room_appeared = RoomAppeared::No;
            self.dirty.extend(&self.waiting);
        }
        if self.config.preemption == Preemption::On && !self.dirty.is_empty() {
            // Room that is being made for somebody must be claimed in every pass that could give it away.
            self.dirty.extend(&self.waiting);
        }
        self.dirty.retain(|group| self.groups[group.at()].is_some());
    }

    /// When a group is to be asked again although nothing happened. What it said before is void: whoever has only the state
    /// would not know of it.
    pub(crate) fn set_alarm(&mut self, group: GroupIx, at: Option<Time>) {
        let last = std::mem::replace(&mut self.group_mut(group).alarm, at);
        if let Some(last) = last {
            self.alarms.remove(&(last, group));
        }
        if let Some(at) = at {
            self.alarms.insert((at, group));
        }
    }

    /// What is on nodes that are gone is looked at again when evacuation stops or may go on.
    fn notice_brake(&mut self) {
        let braked = if absence::is_braked(self) { Braked::Yes } else { Braked::No };
        if self.braked != braked {
            self.braked = braked;
            let gone: Vec<NodeIx> = self.fleet.gone.iter().copied().collect();
            self.dirty.extend(gone.iter().flat_map(|node| self.fleet.tenants[node.at()].keys()));
            self.dirty.extend(&self.per_node);
        }
    }

    /// Groups to be decided now, most important first, then by name, but behind the services they want to be with.
    pub(crate) fn take_dirty(&mut self) -> Vec<GroupIx> {
        let due = std::mem::take(&mut self.dirty).into_iter().collect();
        self.in_turn(due)
    }

    /// Groups in the order in which they are decided, whoever else is.
    pub(crate) fn in_turn(&self, mut groups: Vec<GroupIx>) -> Vec<GroupIx> {
        groups.sort_by(|a, b| self.order(*a, *b));
        self.behind_companions(groups)
    }

    /// By priority, then by name.
    pub(crate) fn order(&self, a: GroupIx, b: GroupIx) -> Ordering {
        let (a, b) = (self.group(a), self.group(b));
        b.spec.priority.cmp(&a.spec.priority).then_with(|| a.key.cmp(&b.key))
    }
}
