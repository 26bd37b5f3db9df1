//! Which replicas may be moved.
//!
//! Owns: the exclusions that hold at any pressure: stateful, global and batch services, services with rebalancing off,
//! and replicas that are not settled. Must not touch: pressures.
//! Invariant: a replica with data, or of a global service, is never a candidate.

use longshore_model::{
    ReplicaState, ServiceKind, ServiceSpec, SlotGeneration, replica::DesiredState, service::Rebalance,
};

use crate::{
    reconcile::slots,
    request::PlacementRequest,
    view::{
        GroupIx, NodeIx, View,
        groups::{Group, Replica, Slot},
    },
};

/// Whether the rebalancer may move replicas of a service.
pub(super) fn is_movable(spec: &ServiceSpec) -> bool {
    let counted = match spec.kind {
        ServiceKind::Service => true,
        // A moved global replica would be a second one on its new node; a moved job would start over.
        ServiceKind::System | ServiceKind::Batch | ServiceKind::Sysbatch => false,
    };
    let allowed = match spec.rebalance {
        Rebalance::On | Rebalance::OnJoin => true,
        Rebalance::Off => false,
    };
    counted && allowed && !spec.is_stateful()
}

/// The movable groups with replicas on a node, by name.
pub(super) fn groups_on(view: &View, node: NodeIx) -> Vec<GroupIx> {
    let tenants = view.nodes.groups_on[node.at()].keys().copied();
    let movable = |group: &Group| group.desired == DesiredState::Run && is_movable(&group.spec);
    let mut groups: Vec<GroupIx> = tenants.filter(|group| movable(view.group(*group))).collect();
    groups.sort_by(|a, b| view.group(*a).key.cmp(&view.group(*b).key));
    groups
}

/// The replica of a slot that may be moved: the slot's only one, running, with the current spec. `None` if a newer
/// generation was created and removed again: the last move or update failed, and another move would fail as well.
pub(super) fn settled<'a>(request: &PlacementRequest, slot: &'a Slot) -> Option<&'a Replica> {
    let [replica] = slot.replicas.as_slice() else { return None };
    let runs = replica.desired == DesiredState::Run && replica.state == ReplicaState::Running;
    let newest = slot.newest == replica.generation;
    (slot.desired == DesiredState::Run && newest && runs && !slots::is_outdated(request, replica)).then_some(replica)
}

/// The group's settled slots on a node, in order, each with its generation.
pub(super) fn slots_on(view: &View, request: &PlacementRequest, node: NodeIx) -> Vec<SlotGeneration> {
    let here = |slot: &Slot| {
        let replica = settled(request, slot).filter(|replica| replica.node == node)?;
        Some(slot.key.generation(replica.generation))
    };
    view.group(request.group).slots.iter().filter_map(here).collect()
}
