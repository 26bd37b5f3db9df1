//! Near and away rules between services of a deployment: which groups name which, where the named ones run, and in
//! which order groups are decided.
//!
//! Owns: the index of watchers. Must not touch: the filter, which is `feasibility/companions.rs`.
//! Invariant: a waiting group is tried again whenever a service it names gains or loses a replica. While a rollout has
//! not reached all of its slots, those that its previous spec names count too: slots are still placed with it.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use longshore_model::{GroupKey, ServiceName, ServiceSpec, replica::DesiredState};

use super::{GroupIx, NodeIx, View, groups::Group, occupancy};

/// The services a spec names in near and away rules.
fn companion_names(spec: &ServiceSpec) -> impl Iterator<Item = &ServiceName> {
    spec.placement.near.iter().chain(&spec.placement.away_from).map(|companion| &companion.service)
}

/// The services that a group's specs name: the spec in force, and the previous one while a rollout keeps it.
fn named_services(group: &Group) -> impl Iterator<Item = GroupKey> {
    group.specs_in_use().flat_map(companion_names).map(|service| group.key.sibling(service))
}

impl View {
    /// Registers a group as watcher of the services it names.
    pub(super) fn watch(&mut self, watcher: GroupIx) {
        for service in named_services(self.group(watcher)).collect::<Vec<_>>() {
            self.watchers.entry(service).or_default().insert(watcher);
        }
    }

    /// Removes the registration. Called before the group's specs change.
    pub(super) fn unwatch(&mut self, watcher: GroupIx) {
        for service in named_services(self.group(watcher)).collect::<Vec<_>>() {
            remove_edge(&mut self.watchers, &service, watcher);
        }
    }

    /// Marks the waiting watchers of a group dirty, after a replica of it was added or removed.
    pub(super) fn mark_watchers_dirty(&mut self, key: &GroupKey) {
        if self.watchers.is_empty() {
            return;
        }
        let watchers = self.watchers.get(key).into_iter().flatten();
        self.dirty.extend(watchers.filter(|watcher| self.waiting.contains(watcher)));
    }

    /// Whether any group names this one in a rule or depends on it.
    pub(crate) fn is_watched(&self, key: &GroupKey) -> bool {
        self.watchers.contains_key(key) || self.dependents.contains_key(key)
    }

    /// Nodes with a desired replica of the group, including the placements of this pass.
    pub(crate) fn nodes_running(&self, key: &GroupKey) -> BTreeSet<NodeIx> {
        let Some(&ix) = self.group_ids.get(key) else { return BTreeSet::new() };
        let group = self.group(ix);
        if group.desired == DesiredState::Stop {
            return BTreeSet::new();
        }
        let decided: BTreeMap<_, _> = self.journal.decided(ix).collect();
        let staying = group.desired_slots().filter(|slot| !decided.contains_key(&slot.key));
        let staying = staying.filter_map(|slot| slot.current());
        let staying = staying.filter(|replica| occupancy::occupies(group.spec.kind, replica.state)).map(|it| it.node);
        staying.chain(decided.values().copied()).collect()
    }

    /// Moves each group of an ordered list behind the groups it names. A named group inherits the priority of the most
    /// important group that needs it, so that no group is delayed by a less important one. In a cycle the first of the
    /// list goes first.
    ///
    /// Groups that are not due are ordered too and removed at the end: the order must not depend on which groups are
    /// due.
    pub(super) fn order_after_companions(&self, due: Vec<GroupIx>) -> Vec<GroupIx> {
        if self.watchers.is_empty() {
            return due;
        }
        let wanted: BTreeSet<GroupIx> = due.iter().copied().collect();
        let all = closure(due, |group| self.named_groups(group));
        let mut all: Vec<_> = all.into_iter().map(|ix| (self.priority_donor(ix), ix)).collect();
        all.sort_by(|a, b| self.order(a.0, b.0).then_with(|| self.order(a.1, b.1)));
        let all: Vec<GroupIx> = all.into_iter().map(|(_, ix)| ix).collect();
        let places: BTreeMap<GroupIx, usize> = all.iter().enumerate().map(|(place, ix)| (*ix, place)).collect();
        let waits_for = all.iter().map(|ix| self.named_groups(*ix).iter().map(|other| places[other]).collect());
        let mut queue = Queue::new(waits_for.collect());
        let order = std::iter::from_fn(|| queue.next()).map(|place| all[place]);
        order.filter(|ix| wanted.contains(ix)).collect()
    }

    /// Whether a group is decided before another, in every pass.
    pub(crate) fn precedes(&self, group: GroupIx, other: GroupIx) -> bool {
        match (self.names(group, other), self.names(other, group)) {
            (true, false) => return false,
            (false, true) => return true,
            (true, true) | (false, false) => {}
        }
        let by_need = self.order(self.priority_donor(group), self.priority_donor(other));
        by_need.then_with(|| self.order(group, other)) == Ordering::Less
    }

    /// The most important group that needs a group, itself included: a group inherits the priority of those that need
    /// it.
    pub(crate) fn priority_donor(&self, group: GroupIx) -> GroupIx {
        if self.watchers.is_empty() {
            return group;
        }
        let needing = closure(vec![group], |group| self.naming_groups(group));
        needing.into_iter().min_by(|a, b| self.order(*a, *b)).unwrap_or(group)
    }

    /// Whether a group names another, directly or through others.
    fn names(&self, group: GroupIx, other: GroupIx) -> bool {
        let named = || closure(self.named_groups(group), |group| self.named_groups(group));
        !self.watchers.is_empty() && named().contains(&other)
    }

    fn named_groups(&self, group: GroupIx) -> Vec<GroupIx> {
        let group = self.group(group);
        if group.desired == DesiredState::Stop {
            return Vec::new();
        }
        let others = named_services(group).filter(|other| *other != group.key);
        others.filter_map(|other| self.group_ids.get(&other).copied()).collect()
    }

    fn naming_groups(&self, group: GroupIx) -> Vec<GroupIx> {
        self.watchers.get(&self.group(group).key).into_iter().flatten().copied().collect()
    }
}

/// Removes a group from the groups listed for another, and that list once it is empty.
pub(super) fn remove_edge(index: &mut BTreeMap<GroupKey, BTreeSet<GroupIx>>, other: &GroupKey, group: GroupIx) {
    if let Some(groups) = index.get_mut(other) {
        groups.remove(&group);
        if groups.is_empty() {
            index.remove(other);
        }
    }
}

/// Groups, and all that are reachable from them.
fn closure(start: Vec<GroupIx>, next: impl Fn(GroupIx) -> Vec<GroupIx>) -> Vec<GroupIx> {
    let mut found: BTreeSet<GroupIx> = start.iter().copied().collect();
    let mut open = start;
    while let Some(group) = open.pop() {
        open.extend(next(group).into_iter().filter(|other| found.insert(*other)));
    }
    found.into_iter().collect()
}

/// Yields list positions, each after those it waits for and without unrelated ones in between.
struct Queue {
    waits_for: Vec<BTreeSet<usize>>,
    waited_for_by: Vec<Vec<usize>>,
    left: BTreeSet<usize>,
}

impl Queue {
    fn new(waits_for: Vec<BTreeSet<usize>>) -> Self {
        let mut waited_for_by = vec![Vec::new(); waits_for.len()];
        for (place, others) in waits_for.iter().enumerate() {
            for other in others {
                waited_for_by[*other].push(place);
            }
        }
        Self { left: (0..waits_for.len()).collect(), waits_for, waited_for_by }
    }

    fn next(&mut self) -> Option<usize> {
        let first = *self.left.first()?;
        let next = self.first_towards(first);
        self.left.remove(&next);
        self.waits_for[next].clear();
        for place in std::mem::take(&mut self.waited_for_by[next]) {
            self.waits_for[place].remove(&next);
        }
        Some(next)
    }

    /// The position to take next in order to reach `place`: itself, or the first of all it waits for that waits for
    /// none, or else the first of a cycle that waits for none outside.
    fn first_towards(&self, place: usize) -> usize {
        let mut needed = self.waited_for(place);
        needed.insert(place);
        let free = needed.iter().copied().find(|place| self.waits_for[*place].is_empty());
        let circle = || {
            needed.iter().copied().find(|place| {
                let reached = self.waited_for(*place);
                reached.iter().all(|other| self.waited_for(*other).contains(place))
            })
        };
        free.or_else(circle).unwrap_or(place)
    }

    /// Everything a position waits for, directly or through others.
    fn waited_for(&self, place: usize) -> BTreeSet<usize> {
        let mut found = self.waits_for[place].clone();
        let mut open: Vec<usize> = found.iter().copied().collect();
        while let Some(place) = open.pop() {
            open.extend(self.waits_for[place].iter().filter(|other| found.insert(**other)));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(waits_for: &[&[usize]]) -> Vec<usize> {
        let mut queue = Queue::new(waits_for.iter().map(|others| others.iter().copied().collect()).collect());
        std::iter::from_fn(|| queue.next()).collect()
    }

    #[test]
    fn positions_waited_for_come_first_with_no_others_in_between() {
        assert_eq!(order(&[&[], &[], &[]]), [0, 1, 2]);
        assert_eq!(order(&[&[2], &[], &[]]), [2, 0, 1]);
        assert_eq!(order(&[&[1], &[2], &[]]), [2, 1, 0]);
    }

    #[test]
    fn a_cycle_starts_with_its_first_position() {
        assert_eq!(order(&[&[1], &[0]]), [0, 1]);
        assert_eq!(order(&[&[1], &[2], &[1]]), [1, 0, 2]);
        assert_eq!(order(&[&[2], &[3], &[1], &[2], &[]]), [1, 2, 0, 3, 4]);
    }
}
