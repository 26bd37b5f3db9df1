//! Which replicas may be moved at all.
//!
//! Owns: who is left alone whatever the pressure: data, daemons, jobs, whoever asked, and whatever is not settled.
//! Must not touch: pressures. Invariant: a replica with data, or of a global service, is never a candidate.

use longshore_model::{
    Generation, ReplicaState, ServiceKind, ServiceSpec, SlotKey, replica::Wanted, service::Rebalance,
};

use crate::{
    ask::Ask,
    reconcile::slots,
    view::{
        GroupIx, NodeIx, View,
        groups::{Group, Replica, Slot},
    },
};

/// Whether replicas of a service may be moved to even the load.
pub(super) fn is_movable(spec: &ServiceSpec) -> bool {
    let counted = match spec.kind {
        ServiceKind::Service => true,
        // On another node a global one would be the second; a job would begin again from nothing.
        ServiceKind::System | ServiceKind::Batch | ServiceKind::Sysbatch => false,
    };
    let allowed = match spec.rebalance {
        Rebalance::On | Rebalance::OnJoin => true,
        Rebalance::Off => false,
    };
    counted && allowed && !spec.is_stateful()
}

/// The groups with something on a node that may be moved, by name.
pub(super) fn groups_on(view: &View, node: NodeIx) -> Vec<GroupIx> {
    let tenants = view.fleet.tenants[node.at()].keys().copied();
    let movable = |group: &Group| group.wanted == Wanted::Run && is_movable(&group.spec);
    let mut groups: Vec<GroupIx> = tenants.filter(|group| movable(view.group(*group))).collect();
    groups.sort_by(|a, b| view.group(*a).key.cmp(&view.group(*b).key));
    groups
}

/// The generation of a slot that may be moved: it runs, alone, and as its service is now. Where a newer one was made and
/// taken back, the last move or change did not work out, and moving it again would not either.
pub(super) fn settled<'a>(ask: &Ask, slot: &'a Slot) -> Option<&'a Replica> {
    let [replica] = slot.replicas.as_slice() else { return None };
    let runs = replica.wanted == Wanted::Run && replica.state == ReplicaState::Running;
    let newest = slot.newest == replica.generation;
    (slot.wanted == Wanted::Run && newest && runs && !slots::is_outdated(ask, replica)).then_some(replica)
}

/// Settled slots of a group on a node, in order, each with its generation.
pub(super) fn slots_on(view: &View, ask: &Ask, node: NodeIx) -> Vec<(SlotKey, Generation)> {
    let here = |slot: &Slot| {
        let replica = settled(ask, slot).filter(|replica| replica.node == node)?;
        Some((slot.key.clone(), replica.generation))
    };
    view.group(ask.group).slots.iter().filter_map(here).collect()
}
