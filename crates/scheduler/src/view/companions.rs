//! Services that look at where others of their deployment are: who watches whom, where the watched are, and who is
//! decided first.
//!
//! Owns: the index of watchers. Must not touch: verdicts, which `feasibility/companions.rs` gives.
//! Invariant: a waiting group is tried again whenever a service it names comes or goes.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{GroupKey, ServiceName, ServiceSpec, replica::Wanted};

use super::{GroupIx, NodeIx, View, groups::Group, occupancy};

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

    /// Whether any group looks at where this one is.
    pub(crate) fn is_watched(&self, key: &GroupKey) -> bool {
        !self.watchers.is_empty() && self.watchers.contains_key(key)
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
        let staying = staying.filter(|slot| !self.journal.has_departed(ix, &slot.key));
        let staying = staying.filter_map(|slot| slot.current());
        let staying = staying.filter(|replica| occupancy::occupies(group.spec.kind, replica.state)).map(|it| it.node);
        staying.chain(decided.values().copied()).collect()
    }

    /// Moves each group of an ordered list behind the groups it names. A circle has no right order: there the first of
    /// the list goes first.
    pub(super) fn behind_companions(&self, due: Vec<GroupIx>) -> Vec<GroupIx> {
        if self.watchers.is_empty() {
            return due;
        }
        // Groups that are named but not due take their places too: whether they are due must not change the order.
        let mut all = self.with_named(&due);
        self.sort_by_importance(&mut all);
        let places: BTreeMap<GroupIx, usize> = all.iter().enumerate().map(|(place, ix)| (*ix, place)).collect();
        let mut queue = Queue::new(all.iter().map(|ix| self.named_places(self.group(*ix), &places)).collect());
        let due: BTreeSet<GroupIx> = due.into_iter().collect();
        std::iter::from_fn(|| queue.next()).map(|place| all[place]).filter(|ix| due.contains(ix)).collect()
    }

    /// These groups, those they name, and so on.
    fn with_named(&self, groups: &[GroupIx]) -> Vec<GroupIx> {
        let mut all: BTreeSet<GroupIx> = groups.iter().copied().collect();
        let mut left = groups.to_vec();
        while let Some(group) = left.pop() {
            let group = self.group(group);
            let others = named(&group.spec).filter_map(|service| self.group_ids.get(&group.key.beside(service)));
            left.extend(others.copied().filter(|other| all.insert(*other)));
        }
        all.into_iter().collect()
    }

    fn named_places(&self, group: &Group, places: &BTreeMap<GroupIx, usize>) -> BTreeSet<usize> {
        let others = named(&group.spec).map(|service| group.key.beside(service)).filter(|other| *other != group.key);
        others.filter_map(|other| places.get(self.group_ids.get(&other)?).copied()).collect()
    }
}

/// Places of a list, each taken after those it waits for.
struct Queue {
    waits_for: Vec<BTreeSet<usize>>,
    waited_for_by: Vec<Vec<usize>>,
    ready: BTreeSet<usize>,
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
        let ready = (0..waits_for.len()).filter(|place| waits_for[*place].is_empty()).collect();
        Self { ready, left: (0..waits_for.len()).collect(), waits_for, waited_for_by }
    }

    fn next(&mut self) -> Option<usize> {
        let next = self.ready.pop_first().or_else(|| self.first_of_circle())?;
        self.left.remove(&next);
        for place in std::mem::take(&mut self.waited_for_by[next]) {
            self.waits_for[place].remove(&next);
            if self.waits_for[place].is_empty() && self.left.contains(&place) {
                self.ready.insert(place);
            }
        }
        Some(next)
    }

    /// Nobody is ready, so whoever is left waits, in the end, for a circle: the first of its members.
    fn first_of_circle(&self) -> Option<usize> {
        let mut path = vec![*self.left.first()?];
        loop {
            let next = *self.waits_for[*path.last()?].first()?;
            if let Some(start) = path.iter().position(|place| *place == next) {
                return path[start..].iter().min().copied();
            }
            path.push(next);
        }
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
    fn each_goes_behind_those_it_waits_for_and_otherwise_in_order() {
        assert_eq!(order(&[&[], &[], &[]]), [0, 1, 2]);
        assert_eq!(order(&[&[2], &[], &[]]), [1, 2, 0]);
        assert_eq!(order(&[&[1], &[2], &[]]), [2, 1, 0]);
    }

    #[test]
    fn the_first_of_a_circle_goes_first_and_who_waits_for_it_goes_after() {
        assert_eq!(order(&[&[1], &[0]]), [0, 1]);
        assert_eq!(order(&[&[1], &[2], &[1]]), [1, 0, 2]);
        assert_eq!(order(&[&[2], &[3], &[1], &[2], &[]]), [4, 1, 2, 0, 3]);
    }
}
