//! A plan is looked at once more before it is appended: does each placement still fit what is applied?
//!
//! Owns: memory, host ports, volumes and addresses of the nodes a plan names.
//! Must not touch: preference. What fits stays, whether or not it is still the best; what does not is dropped, and the
//! next pass decides anew.
//! Invariant: a plan whose placements all fit is returned as it was; what is kept fits together.

#[cfg(feature = "replicated")]
pub(crate) mod whereabouts;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
};

use longshore_model::{
    GroupKey, NodeName, Placement, Plan, PlanItem, Reason, SlotKey, Terms, Time, VolumeKey,
    replica::{HostPort, Replica, occupies},
    volume::Sharing,
};
use serde::{Deserialize, Serialize};

use crate::State;

/// A placement that no longer fits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedItem {
    /// The group.
    pub group: GroupKey,
    /// The slot that stays without the node.
    pub slot: SlotKey,
    /// What the node no longer has.
    pub reason: Reason,
}

/// Takes out of a plan every placement that no longer fits, and says why. Looks at every replica there is.
pub fn recheck(state: &State, plan: &mut Plan) -> Vec<DroppedItem> {
    if plan.placements() == 0 {
        return Vec::new();
    }
    let mut taken = Taken::wanted(state, plan);
    for (group, _, replica) in state.replicas() {
        taken.count(group, replica);
    }
    for (since, address) in state.resting.keys() {
        taken.count_resting(state, plan, *since, *address);
    }
    taken.keep_what_fits(state, plan)
}

/// What is taken of the things a plan wants; nothing else is counted.
#[derive(Default)]
struct Taken {
    memory: BTreeMap<NodeName, u64>,
    ports: BTreeSet<(NodeName, HostPort)>,
    addresses: BTreeMap<Ipv6Addr, Use>,
    volumes: BTreeMap<VolumeKey, Held>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Free,
    Taken,
}

#[derive(Default)]
struct Held {
    home: Option<NodeName>,
    holders: Vec<(GroupKey, Sharing)>,
}

impl Taken {
    /// Nothing yet, of what the plan wants.
    fn wanted(state: &State, plan: &Plan) -> Self {
        let mut taken = Self::default();
        for part in &plan.groups {
            for item in &part.items {
                if let PlanItem::Place(placement) = item {
                    taken.want(state, placement, placement.terms.as_ref().unwrap_or(&part.terms));
                }
            }
        }
        taken
    }

    fn keep_what_fits(mut self, state: &State, plan: &mut Plan) -> Vec<DroppedItem> {
        let mut dropped = Vec::new();
        for part in &mut plan.groups {
            let (group, terms) = (&part.group, &part.terms);
            part.items.retain(|item| {
                let PlanItem::Place(placement) = item else {
                    return true;
                };
                match self.take(state, group, placement, placement.terms.as_ref().unwrap_or(terms)) {
                    Ok(()) => true,
                    Err(reason) => {
                        dropped.push(DroppedItem { group: group.clone(), slot: placement.slot.clone(), reason });
                        false
                    }
                }
            });
        }
        plan.groups.retain(|part| !part.items.is_empty());
        dropped
    }

    fn want(&mut self, state: &State, placement: &Placement, terms: &Terms) {
        self.memory.insert(placement.node.clone(), 0);
        self.addresses.insert(placement.address, Use::Free);
        for held in &terms.volumes {
            let home = state.volume(&held.key).map(|volume| volume.home.clone());
            self.volumes.insert(held.key.clone(), Held { home, holders: Vec::new() });
        }
    }

    fn count(&mut self, group: &GroupKey, replica: &Replica) {
        let assignment = &replica.assignment;
        if !occupies(assignment.terms.kind, replica.state) {
            return;
        }
        if let Some(memory) = self.memory.get_mut(&assignment.node) {
            *memory = memory.saturating_add(assignment.terms.memory_total());
            self.ports.extend(assignment.terms.host_ports.iter().map(|port| (assignment.node.clone(), *port)));
        }
        if let Some(address) = self.addresses.get_mut(&assignment.address) {
            *address = Use::Taken;
        }
        for volume in &assignment.terms.volumes {
            if let Some(held) = self.volumes.get_mut(&volume.key) {
                held.holders.push((group.clone(), volume.sharing));
            }
        }
    }

    fn count_resting(&mut self, state: &State, plan: &Plan, since: Time, address: Ipv6Addr) {
        if plan.made_at.since(since) < state.config().address_cooldown
            && let Some(wanted) = self.addresses.get_mut(&address)
        {
            *wanted = Use::Taken;
        }
    }

    /// Takes what a placement needs, all or nothing.
    fn take(&mut self, state: &State, group: &GroupKey, placement: &Placement, terms: &Terms) -> Result<(), Reason> {
        let node = state.node(&placement.node).ok_or(Reason::NoNodesActive)?;
        let used = self.memory.get(&placement.node).copied().unwrap_or(0).saturating_add(terms.memory_total());
        if terms.memory_total() > 0 && used > node.allocatable_memory() {
            return Err(Reason::NoCapacityMemory);
        }
        let ports = terms.host_ports.iter().map(|port| (placement.node.clone(), *port));
        if ports.clone().any(|port| self.ports.contains(&port)) {
            return Err(Reason::HostPortInUse);
        }
        if self.addresses.get(&placement.address) == Some(&Use::Taken) {
            return Err(Reason::IpamExhausted);
        }
        self.volumes_allow(state, group, placement, terms)?;
        self.memory.insert(placement.node.clone(), used);
        self.ports.extend(ports);
        self.addresses.insert(placement.address, Use::Taken);
        for volume in &terms.volumes {
            let held = self.volumes.entry(volume.key.clone()).or_default();
            held.home.get_or_insert_with(|| placement.node.clone());
            held.holders.push((group.clone(), volume.sharing));
        }
        Ok(())
    }

    fn volumes_allow(
        &self,
        state: &State,
        group: &GroupKey,
        placement: &Placement,
        terms: &Terms,
    ) -> Result<(), Reason> {
        for wanted in &terms.volumes {
            let Some(held) = self.volumes.get(&wanted.key) else {
                continue;
            };
            if held.home.as_ref().is_some_and(|home| *home != placement.node) {
                return Err(Reason::VolumeLocalityNoNode);
            }
            let foreign = state.volume(&wanted.key).is_some_and(|volume| volume.owner != group.deployment);
            let keeps_out = |(other, sharing): &(GroupKey, Sharing)| {
                let stranger = (&other.namespace, &other.deployment) != (&group.namespace, &group.deployment);
                // A slot gets its next generation only once the last has stopped; the scheduler sees to that.
                let same = other == group;
                let exclusive = foreign || wanted.sharing == Sharing::Exclusive || *sharing == Sharing::Exclusive;
                !same && (stranger || exclusive)
            };
            if held.holders.iter().any(keeps_out) {
                return Err(Reason::VolumeInUse);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
