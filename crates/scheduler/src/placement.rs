//! Who should run it: one batch of identical replicas is given nodes, by the service's strategy.
//!
//! Owns: the order of choices. Must not touch: which slots need a node; that is the reconciler's.
//! Invariant: every slot handed in comes back with a node or stays among the unplaced, never both, never neither.

pub(crate) mod affinity;
mod binpack;
mod hash;
mod hosts;
mod leaf;
mod rank;
mod tree;

use longshore_model::{Generation, Placement, SlotKey, Strategy};

use crate::{
    address,
    ask::Ask,
    view::{NodeIx, View},
};

/// A slot to be placed, and the generation its decision makes.
#[derive(Clone, Debug)]
pub(crate) struct Vacancy {
    pub(crate) slot: SlotKey,
    pub(crate) generation: Generation,
}

/// A batch in the making: the view it reserves in, what is asked, and who is still without a node.
pub(crate) struct Batch<'a> {
    pub(crate) view: &'a mut View,
    pub(crate) ask: &'a mut Ask,
    vacancies: std::vec::IntoIter<Vacancy>,
    placed: Vec<Placement>,
}

impl Batch<'_> {
    /// Gives the next slot this node. What it takes counts for the rest of the pass.
    fn place_on(&mut self, node: NodeIx) {
        let Some(vacancy) = self.vacancies.next() else { return };
        let reserved = self.view.reserve(self.ask, &vacancy.slot, vacancy.generation, node);
        self.ask.put(node);
        let known = self.view.fleet.node(node);
        self.placed.push(Placement {
            slot: vacancy.slot,
            generation: vacancy.generation,
            node: known.name.clone(),
            address: address::address(self.view.config.cluster_prefix, known.number, reserved.host),
            new_volumes: reserved.new_volumes,
            devices: reserved.devices,
            terms: None,
            moved: None,
        });
    }

    fn is_filled(&self) -> bool {
        self.vacancies.len() == 0
    }
}

/// Places as many of the vacancies as fit, in their order; gives back the placements and who is left.
pub(crate) fn place(view: &mut View, ask: &mut Ask, vacancies: Vec<Vacancy>) -> (Vec<Placement>, Vec<Vacancy>) {
    view.fleet.refresh();
    if ask.spec.placement.strategy == Strategy::Pack {
        view.fleet.keep_count_lanes();
    }
    let wanted = vacancies.len();
    let mut batch = Batch { view, ask, vacancies: vacancies.into_iter(), placed: Vec::with_capacity(wanted) };
    match batch.ask.spec.placement.strategy {
        Strategy::Spread | Strategy::Pack | Strategy::Global => tree::fill(&mut batch),
        Strategy::Binpack => binpack::fill(&mut batch),
        Strategy::Hosts => hosts::fill(&mut batch),
        Strategy::Hash => hash::fill(&mut batch),
    }
    let (placed, left) = (batch.placed, batch.vacancies.collect());
    view.reserve_quota(ask, placed.len());
    view.settle_lanes();
    (placed, left)
}

/// Places one replica on a node already decided, if every filter lets it.
pub(crate) fn place_at(view: &mut View, ask: &mut Ask, vacancy: Vacancy, node: NodeIx) -> Result<Placement, Vacancy> {
    view.fleet.refresh();
    if !ask.accepts(view, node) {
        return Err(vacancy);
    }
    let mut batch = Batch { view, ask, vacancies: vec![vacancy].into_iter(), placed: Vec::with_capacity(1) };
    batch.place_on(node);
    let placed = batch.placed.pop();
    view.reserve_quota(ask, 1);
    view.settle_lanes();
    Ok(placed.expect("a batch of one with a node is placed"))
}
