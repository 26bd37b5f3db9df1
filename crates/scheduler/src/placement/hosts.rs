//! Pinned hosts: at most one replica on each, by name, and none at all unless all fit.

use super::Batch;
use crate::view::NodeIx;

/// Fills a batch from the pinned hosts that fit, or not at all.
pub(super) fn fill(batch: &mut Batch<'_>) {
    let chosen = choose(batch);
    if chosen.len() == batch.vacancies.len() {
        for node in chosen {
            batch.place_on(node);
        }
    }
}

/// As many hosts as are wanted, if there are so many. Each choice counts for the next, as one may use up what another
/// needs; nothing of that stays.
fn choose(batch: &mut Batch<'_>) -> Vec<NodeIx> {
    let hosts = batch.ask.spec.placement.hosts.iter();
    let known = hosts.filter_map(|name| batch.view.fleet.by_name.get(name).copied());
    // Faulty hosts are taken last; within both, names decide.
    let (faulty, sound): (Vec<_>, Vec<_>) = known.partition(|node| batch.ask.faulty.contains(node));
    let mut chosen = Vec::with_capacity(batch.vacancies.len());
    for node in sound.into_iter().chain(faulty) {
        if chosen.len() < batch.vacancies.len() && batch.ask.accepts(batch.view, node) {
            batch.ask.counts.add(node);
            chosen.push(node);
        }
    }
    for node in &chosen {
        batch.ask.counts.remove_from(Some(*node));
    }
    chosen
}
