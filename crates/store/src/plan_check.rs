//! Checks, before a plan is appended, that each placement still fits the applied state.
//!
//! Owns: the check of memory, host ports, volumes and addresses on the nodes that a plan names.
//! Must not touch: ranking. A placement that fits is kept even if a better one exists now. One that does not fit is
//! dropped, and the next scheduler pass decides again.
//! Invariant: a plan whose placements all fit is unchanged, and the placements kept fit together.

#[cfg(feature = "replicated")]
pub(crate) mod locations;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
};

use longshore_model::{
    GroupKey, NodeName, Placement, Plan, PlanItem, Reason, Reservation, SlotKey, Time, VolumeKey,
    replica::{HostPort, Replica, occupies},
    volume::Sharing,
};
use serde::{Deserialize, Serialize};

use crate::State;

/// A placement that was dropped because it no longer fits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedItem {
    /// The group.
    pub group: GroupKey,
    /// The slot that stays unplaced.
    pub slot: SlotKey,
    /// What the node lacks.
    pub reason: Reason,
}

/// Removes every placement that no longer fits and returns them with the reason. Visits every replica of the state.
pub fn drop_stale_placements(state: &State, plan: &mut Plan) -> Vec<DroppedItem> {
    if plan.placements() == 0 {
        return Vec::new();
    }
    let mut taken = Usage::of_plan(state, plan);
    for (group, _, replica) in state.replicas() {
        taken.count(group, replica);
    }
    for (since, address) in state.resting.keys() {
        taken.count_resting(state, plan, *since, *address);
    }
    taken.drop_misfits(state, plan)
}

/// Current usage of the nodes, addresses and volumes that a plan uses. Nothing else is counted.
#[derive(Default)]
struct Usage {
    memory: BTreeMap<NodeName, u64>,
    ports: BTreeSet<(NodeName, HostPort)>,
    addresses: BTreeMap<Ipv6Addr, AddressUse>,
    volumes: BTreeMap<VolumeKey, VolumeUse>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AddressUse {
    Free,
    Taken,
}

#[derive(Default)]
struct VolumeUse {
    home: Option<NodeName>,
    holders: Vec<(GroupKey, Sharing)>,
}

impl Usage {
    /// Zero usage of everything that the plan uses.
    fn of_plan(state: &State, plan: &Plan) -> Self {
        let mut taken = Self::default();
        for part in &plan.groups {
            for item in &part.items {
                if let PlanItem::Place(placement) = item {
                    taken.want(state, placement, placement.reservation.as_ref().unwrap_or(&part.reservation));
                }
            }
        }
        taken
    }

    fn drop_misfits(mut self, state: &State, plan: &mut Plan) -> Vec<DroppedItem> {
        let mut dropped = Vec::new();
        for part in &mut plan.groups {
            let (group, reservation) = (&part.group, &part.reservation);
            part.items.retain(|item| {
                let PlanItem::Place(placement) = item else {
                    return true;
                };
                match self.take(state, group, placement, placement.reservation.as_ref().unwrap_or(reservation)) {
                    Ok(()) => true,
                    Err(reason) => {
                        dropped.push(DroppedItem { group: group.clone(), slot: placement.key.slot.clone(), reason });
                        false
                    }
                }
            });
        }
        plan.groups.retain(|part| !part.items.is_empty());
        dropped
    }

    fn want(&mut self, state: &State, placement: &Placement, reservation: &Reservation) {
        self.memory.insert(placement.node.clone(), 0);
        self.addresses.insert(placement.address, AddressUse::Free);
        for held in &reservation.volumes {
            let home = state.volume(&held.key).map(|volume| volume.home.clone());
            self.volumes.insert(held.key.clone(), VolumeUse { home, holders: Vec::new() });
        }
    }

    fn count(&mut self, group: &GroupKey, replica: &Replica) {
        let assignment = &replica.assignment;
        if !occupies(assignment.reservation.kind, replica.state) {
            return;
        }
        if let Some(memory) = self.memory.get_mut(&assignment.node) {
            *memory = memory.saturating_add(assignment.reservation.memory_total());
            self.ports.extend(assignment.reservation.host_ports.iter().map(|port| (assignment.node.clone(), *port)));
        }
        if let Some(address) = self.addresses.get_mut(&assignment.address) {
            *address = AddressUse::Taken;
        }
        for volume in &assignment.reservation.volumes {
            if let Some(held) = self.volumes.get_mut(&volume.key) {
                held.holders.push((group.clone(), volume.sharing));
            }
        }
    }

    fn count_resting(&mut self, state: &State, plan: &Plan, since: Time, address: Ipv6Addr) {
        if plan.made_at.since(since) < state.config().address_cooldown
            && let Some(wanted) = self.addresses.get_mut(&address)
        {
            *wanted = AddressUse::Taken;
        }
    }

    /// Reserves everything a placement needs, or returns the first reason why it does not fit and reserves nothing.
    fn take(
        &mut self,
        state: &State,
        group: &GroupKey,
        placement: &Placement,
        reservation: &Reservation,
    ) -> Result<(), Reason> {
        let node = state.node(&placement.node).ok_or(Reason::NoNodesActive)?;
        let used = self.memory.get(&placement.node).copied().unwrap_or(0).saturating_add(reservation.memory_total());
        if reservation.memory_total() > 0 && used > node.allocatable_memory() {
            return Err(Reason::NoCapacityMemory);
        }
        let ports = reservation.host_ports.iter().map(|port| (placement.node.clone(), *port));
        if ports.clone().any(|port| self.ports.contains(&port)) {
            return Err(Reason::HostPortInUse);
        }
        if self.addresses.get(&placement.address) == Some(&AddressUse::Taken) {
            return Err(Reason::IpamExhausted);
        }
        self.check_volumes(state, group, placement, reservation)?;
        self.memory.insert(placement.node.clone(), used);
        self.ports.extend(ports);
        self.addresses.insert(placement.address, AddressUse::Taken);
        for volume in &reservation.volumes {
            let held = self.volumes.entry(volume.key.clone()).or_default();
            held.home.get_or_insert_with(|| placement.node.clone());
            held.holders.push((group.clone(), volume.sharing));
        }
        Ok(())
    }

    fn check_volumes(
        &self,
        state: &State,
        group: &GroupKey,
        placement: &Placement,
        reservation: &Reservation,
    ) -> Result<(), Reason> {
        for wanted in &reservation.volumes {
            let Some(held) = self.volumes.get(&wanted.key) else {
                continue;
            };
            if held.home.as_ref().is_some_and(|home| *home != placement.node) {
                return Err(Reason::VolumeLocalityNoNode);
            }
            let owned_by_other = state.volume(&wanted.key).is_some_and(|volume| volume.owner != group.deployment);
            let blocks = |(other, sharing): &(GroupKey, Sharing)| {
                let other_deployment = (&other.namespace, &other.deployment) != (&group.namespace, &group.deployment);
                // The scheduler gives a slot its next generation only after the last one has stopped, so a group never
                // blocks itself.
                let same = other == group;
                let exclusive =
                    owned_by_other || wanted.sharing == Sharing::Exclusive || *sharing == Sharing::Exclusive;
                // A one-off job mounts what its deployment holds, as a command run there by hand would.
                let beside = wanted.sharing == Sharing::OneOff || *sharing == Sharing::OneOff;
                !same && !beside && (other_deployment || exclusive)
            };
            if held.holders.iter().any(blocks) {
                return Err(Reason::VolumeInUse);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
