//! An index of generations by node and address, so that checking a plan costs in proportion to the plan, not the
//! cluster.
//!
//! Owns: which generations are on each node and which have each address.
//! Must not touch: what they use. That is looked up in the state.
//! Invariant: after following every event since it was built, the index holds exactly the generations in the state. Its
//! check returns the same as a walk over all replicas.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
};

use longshore_model::{Event, NodeName, Plan, ReplicaKey, Time};

use super::{DroppedItem, Usage};
use crate::State;

/// The index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Locations {
    nodes: BTreeMap<NodeName, BTreeSet<ReplicaKey>>,
    addresses: BTreeMap<Ipv6Addr, Vec<ReplicaKey>>,
    /// When each address was last released. The state says whether it is still in cooldown.
    given_back: BTreeMap<Ipv6Addr, Time>,
}

impl Locations {
    /// Builds the index from a state.
    pub(crate) fn of(state: &State) -> Self {
        let mut locations = Self::default();
        for (group, slot, replica) in state.replicas() {
            let key = group.replica(&slot.key, replica.generation);
            locations.add(&replica.assignment.node, replica.assignment.address, key);
        }
        // In order of time, so that the latest release of an address wins.
        locations.given_back.extend(state.resting.keys().map(|(since, address)| (*address, *since)));
        locations
    }

    /// Applies the events of one command.
    pub(crate) fn follow(&mut self, events: &[Event]) {
        let mut released = None;
        for event in events {
            if let Event::Placed { key, assignment } = event {
                self.add(&assignment.node, assignment.address, key.clone());
            } else if let Event::Released { key, .. } = event {
                released = Some(key);
            } else if let Event::AddressCoolingDown { node, address, since } = event {
                // This event directly follows the release, and is the only one that names the node and the address.
                if let Some(key) = released.take() {
                    self.remove(node, *address, key);
                }
                self.given_back.insert(*address, *since);
            }
        }
    }

    fn add(&mut self, node: &NodeName, address: Ipv6Addr, key: ReplicaKey) {
        self.nodes.entry(node.clone()).or_default().insert(key.clone());
        // At most one generation uses an address at a time, except for terminal ones that are still shown.
        self.addresses.entry(address).or_insert_with(|| Vec::with_capacity(1)).push(key);
    }

    fn remove(&mut self, node: &NodeName, address: Ipv6Addr, key: &ReplicaKey) {
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

    /// Like [`drop_stale_placements`](super::drop_stale_placements), for the state whose events it has followed.
    pub(crate) fn drop_stale_placements(&self, state: &State, plan: &mut Plan) -> Vec<DroppedItem> {
        if plan.placements() == 0 {
            return Vec::new();
        }
        let mut taken = Usage::of_plan(state, plan);
        for key in self.candidates(&taken) {
            if let Some(replica) = state.replica(key) {
                taken.count(&key.group, replica);
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
        taken.drop_misfits(state, plan)
    }

    /// Every generation that may use something the plan uses, once each.
    fn candidates(&self, taken: &Usage) -> BTreeSet<&ReplicaKey> {
        // A replica that uses a volume runs on the volume's home node.
        let homes = taken.volumes.values().filter_map(|held| held.home.as_ref());
        let nodes: BTreeSet<&NodeName> = taken.memory.keys().chain(homes).collect();
        let there = nodes.into_iter().filter_map(|node| self.nodes.get(node)).flatten();
        let addressed = taken.addresses.keys().filter_map(|address| self.addresses.get(address)).flatten();
        there.chain(addressed).collect()
    }
}

#[cfg(test)]
mod tests;
