//! A held volume blocks other replicas: always if it is exclusive or belongs to another deployment, and in any case
//! while another slot of the same service is stopping. A volume is held until its holder is observed stopped. A one-off
//! job neither blocks nor is blocked: it mounts what its deployment holds.

use longshore_model::{Reason, Refusal, VolumeKey, replica::DesiredState, volume::Sharing};

use super::{CandidateNode, Filter, Nature, Scope};
use crate::{
    request::PlacementRequest,
    view::{View, volumes::Holder},
};

pub(super) const FILTER: Filter =
    Filter { reason: Reason::VolumeInUse, nature: Nature::Capacity, scope, check, explain };

fn scope(request: &PlacementRequest) -> Scope {
    if request.reservation.volumes.is_empty() { Scope::Idle } else { Scope::Node }
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    held(request, candidate).is_none()
}

/// The first volume that another replica holds, and its holder.
fn held(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Option<(VolumeKey, String)> {
    request.reservation.volumes.iter().find_map(|wanted| {
        let volume = candidate.view.volumes.get(&wanted.key)?;
        // A volume of another deployment allows one holder: two services of this deployment may not share it either.
        let foreign = volume.owner.as_ref().is_some_and(|owner| *owner != request.key.deployment);
        let sharing = if foreign && wanted.sharing != Sharing::OneOff { Sharing::Exclusive } else { wanted.sharing };
        let holders = volume.holders.iter().filter(|holder| blocks(request, candidate.view, sharing, holder));
        let first = holders.map(|holder| holder.key.slot.replica_id(&candidate.view.group(holder.group).key)).min()?;
        Some((wanted.key.clone(), first))
    })
}

/// Whether a holder blocks the placement request. An older generation of the requesting slot does not: the reconciler
/// creates a slot's next generation only after the last one stopped. A stopping slot of the same group does.
fn blocks(request: &PlacementRequest, view: &View, sharing: Sharing, holder: &Holder) -> bool {
    let other = view.group(holder.group);
    if holder.group == request.group {
        let slot = other.slot_at(&holder.key.slot).ok().map(|at| &other.slots[at]);
        return slot.is_some_and(|slot| slot.desired == DesiredState::Stop);
    }
    if sharing == Sharing::OneOff || holder.sharing == Sharing::OneOff {
        return false;
    }
    let other_deployment =
        (&other.key.namespace, &other.key.deployment) != (&request.key.namespace, &request.key.deployment);
    other_deployment || sharing == Sharing::Exclusive || holder.sharing == Sharing::Exclusive
}

fn explain(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Refusal {
    let (volume, holder) = held(request, candidate).expect("explain is only called after check failed");
    Refusal::VolumeHeld { volume, holder }
}
