//! Chooses nodes for one batch of identical replicas, by the service's strategy.
//!
//! Owns: the order of choices. Must not touch: which slots need a node; the reconciler decides that.
//! Invariant: every slot passed in is returned either with a node or as unplaced.

pub(crate) mod affinity;
mod binpack;
mod hash;
mod hosts;
mod leaf;
mod rank;
mod tree;

use longshore_model::{Placement, SlotGeneration, Strategy};

use crate::{
    request::PlacementRequest,
    view::{NodeIx, View},
};

/// A slot to be placed, and the generation that the placement creates.
pub(crate) type PendingSlot = SlotGeneration;

/// A batch being placed: the view to reserve in, the placement request, and the slots still without a node.
pub(crate) struct Batch<'a> {
    pub(crate) view: &'a mut View,
    pub(crate) request: &'a mut PlacementRequest,
    pending_slots: std::vec::IntoIter<PendingSlot>,
    placed: Vec<Placement>,
}

impl Batch<'_> {
    /// Places the next slot on the node and reserves its resources for the rest of the pass.
    fn place_on(&mut self, node: NodeIx) {
        let Some(pending) = self.pending_slots.next() else { return };
        let reserved = self.view.reserve(self.request, &pending, node);
        self.request.count_slot(node);
        let known = self.view.nodes.node(node);
        self.placed.push(Placement {
            key: pending,
            node: known.name.clone(),
            address: self.view.config.address_plan().replica_ipv6(known.address_block(), reserved.host),
            new_volumes: reserved.new_volumes,
            devices: reserved.devices,
            reservation: None,
            moved: None,
        });
    }

    fn is_filled(&self) -> bool {
        self.pending_slots.len() == 0
    }
}

/// Places as many pending slots as fit, in their order; returns the placements and the slots left over.
pub(crate) fn place(
    view: &mut View,
    request: &mut PlacementRequest,
    pending_slots: Vec<PendingSlot>,
) -> (Vec<Placement>, Vec<PendingSlot>) {
    view.nodes.refresh();
    if request.spec.placement.strategy.ranks_by_replica_count() {
        view.nodes.ensure_count_index();
    }
    let wanted = pending_slots.len();
    let mut batch =
        Batch { view, request, pending_slots: pending_slots.into_iter(), placed: Vec::with_capacity(wanted) };
    match batch.request.spec.placement.strategy {
        Strategy::Spread | Strategy::LeastLoaded | Strategy::Global => tree::fill(&mut batch),
        Strategy::Binpack => binpack::fill(&mut batch),
        Strategy::Hosts => hosts::fill(&mut batch),
        Strategy::Hash => hash::fill(&mut batch),
    }
    let (placed, left) = (batch.placed, batch.pending_slots.collect());
    view.reserve_quota(request, placed.len());
    view.reindex_changed();
    (placed, left)
}

/// Places one replica on a given node; returns the slot as an error if a filter refuses the node.
pub(crate) fn place_at(
    view: &mut View,
    request: &mut PlacementRequest,
    pending: PendingSlot,
    node: NodeIx,
) -> Result<Placement, PendingSlot> {
    view.nodes.refresh();
    if !request.accepts(view, node) {
        return Err(pending);
    }
    let mut batch = Batch { view, request, pending_slots: vec![pending].into_iter(), placed: Vec::with_capacity(1) };
    batch.place_on(node);
    let placed = batch.placed.pop();
    view.reserve_quota(request, 1);
    view.reindex_changed();
    Ok(placed.expect("a batch of one with a node is placed"))
}
