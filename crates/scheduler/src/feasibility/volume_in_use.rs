//! Who holds a volume keeps others out: always where it is exclusive or belongs to another deployment, and in any
//! case while another slot of the same service is leaving. Held means not observed stopped, so a draining holder still counts.

use longshore_model::{Reason, Refusal, VolumeKey, replica::Wanted, volume::Sharing};

use super::{Filter, Nature, Scope, Site};
use crate::{
    ask::Ask,
    view::{View, volumes::Holder},
};

pub(super) const FILTER: Filter =
    Filter { reason: Reason::VolumeInUse, nature: Nature::Capacity, scope, check, explain };

fn scope(ask: &Ask) -> Scope {
    if ask.terms.volumes.is_empty() { Scope::Idle } else { Scope::Node }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    held(ask, site).is_none()
}

/// The first volume somebody else holds, and who.
fn held(ask: &Ask, site: &Site<'_>) -> Option<(VolumeKey, String)> {
    ask.terms.volumes.iter().find_map(|wanted| {
        let volume = site.view.volumes.get(&wanted.key)?;
        // A volume of another deployment allows one holder, so that not even two services of this one share it.
        let foreign = volume.owner.as_ref().is_some_and(|owner| *owner != ask.key.deployment);
        let sharing = if foreign { Sharing::Exclusive } else { wanted.sharing };
        let holders = volume.holders.iter().filter(|holder| keeps_out(ask, site.view, sharing, holder));
        let first = holders.map(|holder| holder.slot.printed(&site.view.group(holder.group).key)).min()?;
        Some((wanted.key.clone(), first))
    })
}

/// Whether a holder keeps the ask out. A generation of the very slot that asks does not: the reconciler gives a slot with
/// a volume its next generation only once the last has stopped. A slot that is leaving does.
fn keeps_out(ask: &Ask, view: &View, sharing: Sharing, holder: &Holder) -> bool {
    let other = view.group(holder.group);
    if holder.group == ask.group {
        let slot = other.slot_at(&holder.slot).ok().map(|at| &other.slots[at]);
        return slot.is_some_and(|slot| slot.wanted == Wanted::Stop);
    }
    let stranger = (&other.key.namespace, &other.key.deployment) != (&ask.key.namespace, &ask.key.deployment);
    stranger || sharing == Sharing::Exclusive || holder.sharing == Sharing::Exclusive
}

fn explain(ask: &Ask, site: &Site<'_>) -> Refusal {
    let (volume, holder) = held(ask, site).expect("only asked where a volume is held");
    Refusal::VolumeHeld { volume, holder }
}
