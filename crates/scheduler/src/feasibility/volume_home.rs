//! While the home node of a volume is offline its replica waits: on another node it would start without its data.
//!
//! It also waits while an earlier generation of its service, told to stop, is on a node that is down with a volume of
//! its own: nobody has seen it stop, and what has data must not run twice, even if the two mount different volumes.

use longshore_model::{Health, Intent, NodeName, Reason, Refusal, VolumeKey, replica::occupies};

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

/// The first volume whose home node is offline or removed, or that a generation not seen stopped holds on a node that is
/// down.
fn offline(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Option<(VolumeKey, NodeName)> {
    home_offline(request, candidate).or_else(|| held_on_lost_node(request, candidate))
}

fn home_offline(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Option<(VolumeKey, NodeName)> {
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

/// The volume of an earlier generation that is on a node that is down. A service that mounts volumes has one replica, so
/// whichever of its slots that generation is of, it is the one that must not run twice.
fn held_on_lost_node(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Option<(VolumeKey, NodeName)> {
    let replicas = candidate.view.group(request.group).slots.iter().flat_map(|slot| &slot.replicas);
    let lost = replicas.filter(|replica| candidate.view.nodes.is_down(replica.node));
    let mut unseen = lost.filter(|replica| occupies(replica.reservation.kind, replica.state));
    unseen.find_map(|replica| {
        let held = replica.reservation.volumes.first()?;
        Some((held.key.clone(), candidate.view.nodes.node(replica.node).name.clone()))
    })
}

fn explain(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Refusal {
    let (volume, home) = offline(request, candidate).expect("explain is only called after check failed");
    Refusal::VolumeHomeOffline { volume, home }
}
