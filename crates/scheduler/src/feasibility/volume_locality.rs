//! A volume is local: only its home node can mount it.

use longshore_model::{NodeName, Reason, Refusal, VolumeKey};

use super::{CandidateNode, Filter, Nature, Scope};
use crate::request::PlacementRequest;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::VolumeLocalityNoNode, nature: Nature::Capacity, scope, check, explain };

fn scope(request: &PlacementRequest) -> Scope {
    if request.reservation.volumes.is_empty() { Scope::Idle } else { Scope::Node }
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    elsewhere(request, candidate).is_none()
}

/// The first volume whose home is another node.
fn elsewhere(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Option<(VolumeKey, NodeName)> {
    request.reservation.volumes.iter().find_map(|held| {
        let home = candidate.view.volumes.get(&held.key)?.home.as_ref()?;
        (*home != candidate.node.name).then(|| (held.key.clone(), home.clone()))
    })
}

fn explain(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Refusal {
    let (volume, home) = elsewhere(request, candidate).expect("explain is only called after check failed");
    Refusal::VolumeElsewhere { volume, home }
}
