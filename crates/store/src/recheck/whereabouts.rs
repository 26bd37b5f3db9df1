//! Where to look, so that checking a plan costs what the plan touches and not what the cluster holds.
//!
//! Owns: which generations are on which node and have which address.
//! Must not touch: what they take there. Each is looked up in the state, which alone knows.
//! Invariant: whoever followed every event since the state was told knows every generation in it, and no other. The check
//! says the same as a walk over all replicas.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
};

use longshore_model::{Event, Generation, GroupKey, NodeName, Plan, SlotKey, Time};

use super::{DroppedItem, Taken};
use crate::State;

type Key = (GroupKey, SlotKey, Generation);

/// The register.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    nodes: BTreeMap<NodeName, BTreeSet<Key>>,
    addresses: BTreeMap<Ipv6Addr, Vec<Key>>,
    /// When an address was last given back; whether it still rests, the state knows.
    given_back: BTreeMap<Ipv6Addr, Time>,
}

impl Whereabouts {
    /// Of everything in a state.
    pub(crate) fn of(state: &State) -> Self {
        let mut whereabouts = Self::default();
        for (group, slot, replica) in state.replicas() {
            let key = (group.clone(), slot.key.clone(), replica.generation);
            whereabouts.add(&replica.assignment.node, replica.assignment.address, key);
        }
        // In order of time, so that the last one stays.
        whereabouts.given_back.extend(state.resting.keys().map(|(since, address)| (*address, *since)));
        whereabouts
    }

    /// Takes in what one command changed.
    pub(crate) fn follow(&mut self, events: &[Event]) {
        let mut released = None;
        for event in events {
            if let Event::Placed { group, slot, generation, assignment } = event {
                self.add(&assignment.node, assignment.address, (group.clone(), slot.clone(), *generation));
            } else if let Event::Released { group, slot, generation, .. } = event {
                released = Some((group.clone(), slot.clone(), *generation));
            } else if let Event::AddressResting { node, address, since } = event {
                // Told right after the release, and the only one to say where it was.
                if let Some(key) = released.take() {
                    self.remove(node, *address, &key);
                }
                self.given_back.insert(*address, *since);
            }
        }
    }

    fn add(&mut self, node: &NodeName, address: Ipv6Addr, key: Key) {
        self.nodes.entry(node.clone()).or_default().insert(key.clone());
        // One is all there ever is at a time, but for what has ended and is still shown.
        self.addresses.entry(address).or_insert_with(|| Vec::with_capacity(1)).push(key);
    }

    fn remove(&mut self, node: &NodeName, address: Ipv6Addr, key: &Key) {
        if let Some(there) = self.nodes.get_mut(node) {
            there.remove(key);
            if there.is_empty() {
                self.nodes.remove(node);
            }
        }
        if let Some(having) = self.addresses.get_mut(&address) {
            having.retain(|other| other != key);
            if having.is_empty() {
                self.addresses.remove(&address);
            }
        }
    }

    /// As [`recheck`](super::recheck), for the state this has followed.
    pub(crate) fn recheck(&self, state: &State, plan: &mut Plan) -> Vec<DroppedItem> {
        if plan.placements() == 0 {
            return Vec::new();
        }
        let mut taken = Taken::wanted(state, plan);
        for (group, slot, generation) in self.concerned(&taken) {
            let slot = state.group(group).and_then(|group| group.slots.get(slot));
            let replica = slot.and_then(|slot| slot.replicas.iter().find(|replica| replica.generation == *generation));
            if let Some(replica) = replica {
                taken.count(group, replica);
            }
        }
        let wanted: Vec<Ipv6Addr> = taken.addresses.keys().copied().collect();
        for address in wanted {
            if let Some(since) = self.given_back.get(&address)
                && state.resting.contains_key(&(*since, address))
            {
                taken.count_resting(state, plan, *since, address);
            }
        }
        taken.keep_what_fits(state, plan)
    }

    /// Every generation that may hold something the plan wants, once each.
    fn concerned(&self, taken: &Taken) -> BTreeSet<&Key> {
        // Whoever holds a volume is where the volume is.
        let homes = taken.volumes.values().filter_map(|held| held.home.as_ref());
        let nodes: BTreeSet<&NodeName> = taken.memory.keys().chain(homes).collect();
        let there = nodes.into_iter().filter_map(|node| self.nodes.get(node)).flatten();
        let addressed = taken.addresses.keys().filter_map(|address| self.addresses.get(address)).flatten();
        there.chain(addressed).collect()
    }
}

#[cfg(test)]
mod tests;
