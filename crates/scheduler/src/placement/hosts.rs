//! `hosts`: at most one replica on each pinned host, in name order, and none at all unless the whole batch fits.

use super::Batch;
use crate::view::NodeIx;

/// Places the whole batch on pinned hosts, or nothing.
pub(super) fn fill(batch: &mut Batch<'_>) {
    let chosen = choose(batch);
    if chosen.len() == batch.pending_slots.len() {
        for node in chosen {
            batch.place_on(node);
        }
    }
}

/// Up to as many fitting hosts as there are pending slots. Each choice is counted while the next is checked, because it
/// may use up what the next needs; the counts are restored before returning.
fn choose(batch: &mut Batch<'_>) -> Vec<NodeIx> {
    let hosts = batch.request.spec.placement.hosts.iter();
    let known = hosts.filter_map(|name| batch.view.nodes.by_name.get(name).copied());
    // Faulty hosts come last; within both sets the name decides.
    let (faulty, healthy): (Vec<_>, Vec<_>) = known.partition(|node| batch.request.faulty.contains(node));
    let mut chosen = Vec::with_capacity(batch.pending_slots.len());
    for node in healthy.into_iter().chain(faulty) {
        if chosen.len() < batch.pending_slots.len() && batch.request.accepts(batch.view, node) {
            batch.request.counts.add(node);
            chosen.push(node);
        }
    }
    for node in &chosen {
        batch.request.counts.remove_from(Some(*node));
    }
    chosen
}
