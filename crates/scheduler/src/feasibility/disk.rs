//! The node has enough ephemeral disk, if it reports a disk size.

use longshore_model::{Reason, Refusal};

use super::{CandidateNode, Filter, Nature, Scope};
use crate::request::PlacementRequest;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::NoCapacityDisk, nature: Nature::Capacity, scope, check, explain };

fn scope(request: &PlacementRequest) -> Scope {
    if request.reservation.disk_bytes == 0 { Scope::Idle } else { Scope::Node }
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    free(candidate) >= request.reservation.disk_bytes
}

fn free(candidate: &CandidateNode<'_>) -> u64 {
    let stats = candidate.view.nodes.stats(candidate.ix);
    match stats.limits.disk_bytes {
        u64::MAX => u64::MAX,
        limit => limit.saturating_sub(stats.load.disk_bytes),
    }
}

fn explain(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Refusal {
    Refusal::Disk { needed: request.reservation.disk_bytes, free: free(candidate) }
}
