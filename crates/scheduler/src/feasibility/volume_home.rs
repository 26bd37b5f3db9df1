//! While the home node of a volume is offline its replica waits: on another node it would start without its data.

use longshore_model::{Health, Intent, NodeName, Reason, Refusal, VolumeKey};

use super::{CandidateNode, Filter, Nature, Scope};
use crate::request::PlacementRequest;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::VolumeHomeNodeOffline, nature: Nature::Capacity, scope, check, explain };

fn scope(request: &PlacementRequest) -> Scope {
    if request.reservation.volumes.is_empty() { Scope::Idle } else { Scope::Node }
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    offline(request, candidate).is_none()
}

/// The first volume whose home node is offline or removed.
fn offline(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Option<(VolumeKey, NodeName)> {
    request.reservation.volumes.iter().find_map(|held| {
        let home = candidate.view.volumes.get(&held.key)?.home.as_ref()?;
        let node = candidate.view.nodes.by_name.get(home).map(|node| candidate.view.nodes.node(*node));
        let away = node.is_none_or(|node| match node.health {
            Health::Down | Health::Suspect => true,
            Health::Ready | Health::Degraded => node.intent == Intent::Removed,
        });
        away.then(|| (held.key.clone(), home.clone()))
    })
}

fn explain(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Refusal {
    let (volume, home) = offline(request, candidate).expect("explain is only called after check failed");
    Refusal::VolumeHomeOffline { volume, home }
}
