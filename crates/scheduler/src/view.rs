//! The scheduler's state: the cluster, indexed for decisions and kept up to date by events.
//!
//! Owns: the indexes and the set of dirty groups. Must not touch: decisions.
//! Invariant: a view built from the events of a state answers like one that followed the state from the start.

pub(crate) mod classes;
mod companions;
mod dependents;
mod events;
pub(crate) mod groups;
pub(crate) mod journal;
pub(crate) mod node_table;
pub(crate) mod occupancy;
mod outstanding;
pub(crate) mod rollouts;
mod speculation;
pub(crate) mod usage;
pub(crate) mod volumes;

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use longshore_model::{
    ClusterConfig, DeploymentName, Evacuation, GroupKey, NamespaceName, NodeName, SecretName, Time, command::Quota,
    settings::Preemption,
};

use crate::{reconcile::node_loss, request::Counts};

use self::{
    groups::Group, journal::Journal, node_table::NodeTable, rollouts::RolloutProgress, usage::Usage, volumes::Volumes,
};

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

/// The scheduler's model of the cluster.
#[derive(Debug, Default)]
pub struct View {
    pub(crate) config: ClusterConfig,
    pub(crate) nodes: NodeTable,
    pub(crate) groups: Vec<Option<Group>>,
    pub(crate) group_ids: BTreeMap<GroupKey, GroupIx>,
    pub(crate) volumes: Volumes,
    pub(crate) secrets: BTreeMap<(NamespaceName, SecretName), u64>,
    pub(crate) quotas: BTreeMap<NamespaceName, Quota>,
    pub(crate) usage: BTreeMap<NamespaceName, Usage>,
    /// Removed nodes whose record is still kept, with the time of removal.
    pub(crate) removed: BTreeMap<NodeName, Time>,
    /// Released addresses in cooldown, by the time of release.
    pub(crate) cooling_addresses: BTreeSet<(Time, NodeIx, u64)>,
    /// Groups with an event since they were last decided.
    pub(crate) dirty: BTreeSet<GroupIx>,
    /// Groups with slots that have no node.
    pub(crate) waiting: BTreeSet<GroupIx>,
    /// Groups with a near or away rule that names another group, by that group.
    pub(crate) watchers: BTreeMap<GroupKey, BTreeSet<GroupIx>>,
    /// Groups that depend on another group, by that group.
    pub(crate) dependents: BTreeMap<GroupKey, BTreeSet<GroupIx>>,
    /// Groups with one replica per node instead of a count.
    pub(crate) per_node: BTreeSet<GroupIx>,
    /// Groups to be decided again at a time although no event happens, by that time.
    pub(crate) wakeups: BTreeSet<(Time, GroupIx)>,
    /// The last rollout of each deployment that had one.
    pub(crate) rollouts: BTreeMap<(NamespaceName, DeploymentName), RolloutProgress>,
    /// Deployments whose rollout may have ended although none of their groups is dirty.
    pub(crate) rollouts_due: BTreeSet<(NamespaceName, DeploymentName)>,
    /// Deployments that an operator stopped.
    pub(crate) stopped: BTreeSet<(NamespaceName, DeploymentName)>,
    /// Whether capacity may have been freed since the last pass, so that waiting groups are tried again.
    pub(crate) capacity_freed: bool,
    /// Groups that the last plan placed while others waited.
    pub(crate) outstanding_groups: Vec<GroupIx>,
    /// Whether work is moved off nodes that are down, as last decided.
    pub(crate) evacuation: Evacuation,
    /// Whether evacuation was paused when the view was last advanced.
    pub(crate) mass_failure: bool,
    pub(crate) journal: Journal,
    /// Reused by each [`PlacementRequest`](crate::request::PlacementRequest), to save the allocation.
    pub(crate) counts: Counts,
}

impl View {
    /// An empty view.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn group(&self, group: GroupIx) -> &Group {
        self.groups[group.at()].as_ref().expect("a group index is only kept while the group exists")
    }

    pub(crate) fn group_mut(&mut self, group: GroupIx) -> &mut Group {
        self.groups[group.at()].as_mut().expect("a group index is only kept while the group exists")
    }

    /// Applies what is due by `now`: addresses whose cooldown is over become free, groups whose wake-up is due become
    /// dirty.
    pub(crate) fn advance(&mut self, now: Time) {
        while let Some(&(since, node, host)) = self.cooling_addresses.first()
            && since.after(self.config.address_cooldown) <= now
        {
            self.cooling_addresses.pop_first();
            self.nodes.addresses[node.at()].free(host);
            self.capacity_freed = true;
        }
        self.check_mass_failure();
        while let Some(&(at, group)) = self.wakeups.first()
            && at <= now
        {
            self.wakeups.pop_first();
            self.dirty.insert(group);
        }
        if self.capacity_freed {
            self.capacity_freed = false;
            self.dirty.extend(&self.waiting);
        }
        if self.config.preemption == Preemption::On && !self.dirty.is_empty() {
            // Capacity that is being freed for a preemptor must be claimed in every pass that could give it away.
            self.dirty.extend(&self.waiting);
        }
        self.dirty.retain(|group| self.groups[group.at()].is_some());
    }

    /// Sets the time at which a group is decided again without an event. An earlier time of the group is dropped: a
    /// view rebuilt from the state would not know it.
    pub(crate) fn set_wake_at(&mut self, group: GroupIx, at: Option<Time>) {
        let last = std::mem::replace(&mut self.group_mut(group).wake_at, at);
        if let Some(last) = last {
            self.wakeups.remove(&(last, group));
        }
        if let Some(at) = at {
            self.wakeups.insert((at, group));
        }
    }

    /// Marks the groups on unreachable nodes dirty when evacuation pauses or resumes.
    fn check_mass_failure(&mut self) {
        let mass_failure = node_loss::is_mass_failure(self);
        if self.mass_failure != mass_failure {
            self.mass_failure = mass_failure;
            let gone: Vec<NodeIx> = self.nodes.unreachable.iter().copied().collect();
            self.dirty.extend(gone.iter().flat_map(|node| self.nodes.groups_on[node.at()].keys()));
            self.dirty.extend(&self.per_node);
        }
    }

    /// Groups to decide now, in [`View::decision_order`].
    pub(crate) fn take_dirty(&mut self) -> Vec<GroupIx> {
        let due = std::mem::take(&mut self.dirty).into_iter().collect();
        self.decision_order(due)
    }

    /// Sorts groups by priority, then name, each after the services it names in near and away rules. The order of two
    /// groups does not depend on which others are in the list.
    pub(crate) fn decision_order(&self, mut groups: Vec<GroupIx>) -> Vec<GroupIx> {
        groups.sort_by(|a, b| self.order(*a, *b));
        self.order_after_companions(groups)
    }

    /// By priority, then by name.
    pub(crate) fn order(&self, a: GroupIx, b: GroupIx) -> Ordering {
        let (a, b) = (self.group(a), self.group(b));
        b.spec.priority.cmp(&a.spec.priority).then_with(|| a.key.cmp(&b.key))
    }
}
