//! Services that look at where others of their deployment are: who watches whom, where the watched are, and who is
//! decided first.
//!
//! Owns: the index of watchers. Must not touch: verdicts, which `feasibility/companions.rs` gives.
//! Invariant: a waiting group is tried again whenever a service it names comes or goes.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use longshore_model::{GroupKey, ServiceName, ServiceSpec, replica::Wanted};

use super::{GroupIx, NodeIx, View, occupancy};

/// The services a spec wants to be near or away from.
fn named(spec: &ServiceSpec) -> impl Iterator<Item = &ServiceName> {
    spec.placement.near.iter().chain(&spec.placement.away_from).map(|companion| &companion.service)
}

impl View {
    /// Begins to tell a group when the services it names come or go.
    pub(super) fn watch(&mut self, watcher: GroupIx, key: &GroupKey, spec: &ServiceSpec) {
        for service in named(spec) {
            self.watchers.entry(key.beside(service)).or_default().insert(watcher);
        }
    }

    /// Ends it.
    pub(super) fn unwatch(&mut self, watcher: GroupIx, key: &GroupKey, spec: &ServiceSpec) {
        for service in named(spec) {
            let other = key.beside(service);
            if let Some(watchers) = self.watchers.get_mut(&other) {
                watchers.remove(&watcher);
                if watchers.is_empty() {
                    self.watchers.remove(&other);
                }
            }
        }
    }

    /// A replica of the group came or went: who waits for that is tried again.
    pub(super) fn tell_watchers(&mut self, key: &GroupKey) {
        if self.watchers.is_empty() {
            return;
        }
        let watchers = self.watchers.get(key).into_iter().flatten();
        self.dirty.extend(watchers.filter(|watcher| self.waiting.contains(watcher)));
    }

    /// Whether any group looks at where this one is, or waits for it.
    pub(crate) fn is_watched(&self, key: &GroupKey) -> bool {
        self.watchers.contains_key(key) || self.dependents.contains_key(key)
    }

    /// Nodes that have a wanted replica of the group, by what this pass has decided so far.
    pub(crate) fn whereabouts(&self, key: &GroupKey) -> BTreeSet<NodeIx> {
        let Some(&ix) = self.group_ids.get(key) else { return BTreeSet::new() };
        let group = self.group(ix);
        if group.wanted == Wanted::Stop {
            return BTreeSet::new();
        }
        let decided: BTreeMap<_, _> = self.journal.decided(ix).collect();
        let staying = group.wanted_slots().filter(|slot| !decided.contains_key(&slot.key));
        let staying = staying.filter_map(|slot| slot.current());
        let staying = staying.filter(|replica| occupancy::occupies(group.spec.kind, replica.state)).map(|it| it.node);
        staying.chain(decided.values().copied()).collect()
    }

    /// Moves each group of an ordered list behind the groups it names. Who is named comes forward with the most important
    /// that needs it, so that nobody is held up by what matters less. A circle has no right order: there the first of the
    /// list goes first.
    ///
    /// Groups that are not due are ordered too and left out in the end: the order must not depend on who is due.
    pub(super) fn behind_companions(&self, due: Vec<GroupIx>) -> Vec<GroupIx> {
        if self.watchers.is_empty() {
            return due;
        }
        let wanted: BTreeSet<GroupIx> = due.iter().copied().collect();
        let all = closure(due, |group| self.named_groups(group));
        let mut all: Vec<_> = all.into_iter().map(|ix| (self.most_important_in_need(ix), ix)).collect();
        all.sort_by(|a, b| self.order(a.0, b.0).then_with(|| self.order(a.1, b.1)));
        let all: Vec<GroupIx> = all.into_iter().map(|(_, ix)| ix).collect();
        let places: BTreeMap<GroupIx, usize> = all.iter().enumerate().map(|(place, ix)| (*ix, place)).collect();
        let waits_for = all.iter().map(|ix| self.named_groups(*ix).iter().map(|other| places[other]).collect());
        let mut queue = Queue::new(waits_for.collect());
        let order = std::iter::from_fn(|| queue.next()).map(|place| all[place]);
        order.filter(|ix| wanted.contains(ix)).collect()
    }

    /// Whether a group is decided before another, in whatever pass.
    pub(crate) fn precedes(&self, group: GroupIx, other: GroupIx) -> bool {
        match (self.needs(group, other), self.needs(other, group)) {
            (true, false) => return false,
            (false, true) => return true,
            (true, true) | (false, false) => {}
        }
        let by_need = self.order(self.most_important_in_need(group), self.most_important_in_need(other));
        by_need.then_with(|| self.order(group, other)) == Ordering::Less
    }

    /// The most important group that needs a group, itself included. What is needed matters as much as who needs it.
    pub(crate) fn most_important_in_need(&self, group: GroupIx) -> GroupIx {
        if self.watchers.is_empty() {
            return group;
        }
        let needing = closure(vec![group], |group| self.naming_groups(group));
        needing.into_iter().min_by(|a, b| self.order(*a, *b)).unwrap_or(group)
    }

    /// Whether a group names another, or one that does, and so on.
    fn needs(&self, group: GroupIx, other: GroupIx) -> bool {
        let company = || closure(self.named_groups(group), |group| self.named_groups(group));
        !self.watchers.is_empty() && company().contains(&other)
    }

    fn named_groups(&self, group: GroupIx) -> Vec<GroupIx> {
        let group = self.group(group);
        if group.wanted == Wanted::Stop {
            return Vec::new();
        }
        let others = named(&group.spec).map(|service| group.key.beside(service)).filter(|other| *other != group.key);
        others.filter_map(|other| self.group_ids.get(&other).copied()).collect()
    }

    fn naming_groups(&self, group: GroupIx) -> Vec<GroupIx> {
        self.watchers.get(&self.group(group).key).into_iter().flatten().copied().collect()
    }
}

/// Groups, and all that can be reached from them.
fn closure(start: Vec<GroupIx>, next: impl Fn(GroupIx) -> Vec<GroupIx>) -> Vec<GroupIx> {
    let mut found: BTreeSet<GroupIx> = start.iter().copied().collect();
    let mut open = start;
    while let Some(group) = open.pop() {
        open.extend(next(group).into_iter().filter(|other| found.insert(*other)));
    }
    found.into_iter().collect()
}

/// Places of a list, each taken after those it waits for, and these before anybody else.
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

    /// Who is to be taken next so that a place can be: itself, or the first of all it waits for that waits for nobody, or
    /// else the first of a circle that waits for nobody else.
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

    /// All that a place waits for, in the end.
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
    fn those_waited_for_go_first_and_nobody_else_comes_in_between() {
        assert_eq!(order(&[&[], &[], &[]]), [0, 1, 2]);
        assert_eq!(order(&[&[2], &[], &[]]), [2, 0, 1]);
        assert_eq!(order(&[&[1], &[2], &[]]), [2, 1, 0]);
    }

    #[test]
    fn the_first_of_a_circle_goes_first_and_who_waits_for_it_goes_after() {
        assert_eq!(order(&[&[1], &[0]]), [0, 1]);
        assert_eq!(order(&[&[1], &[2], &[1]]), [1, 0, 2]);
        assert_eq!(order(&[&[2], &[3], &[1], &[2], &[]]), [1, 2, 0, 3, 4]);
    }
}
