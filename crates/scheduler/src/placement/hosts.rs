//! Pinned hosts: at most one replica on each, by name, and none at all unless all fit.

use super::Batch;
use crate::view::NodeIx;

/// Fills a batch from the pinned hosts that fit, or not at all.
pub(super) fn fill(batch: &mut Batch<'_>) {
    let hosts = batch.ask.spec.placement.hosts.iter();
    let known = hosts.filter_map(|name| batch.view.fleet.by_name.get(name).copied());
    let fitting: Vec<NodeIx> = known.filter(|node| batch.ask.accepts(batch.view, *node)).collect();
    if fitting.len() < batch.vacancies.len() {
        return;
    }
    // Faulty hosts are taken last; the sort is stable, so names decide otherwise.
    let (faulty, sound): (Vec<_>, Vec<_>) = fitting.into_iter().partition(|node| batch.ask.faulty.contains(node));
    for node in sound.into_iter().chain(faulty) {
        if batch.is_filled() {
            break;
        }
        batch.place_on(node);
    }
}
