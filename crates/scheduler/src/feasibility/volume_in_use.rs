//! Who holds a volume keeps others out: always where it is exclusive or belongs to another deployment, and in any
//! case a second replica of the same service. Held means not observed stopped, so a draining holder still counts.

use longshore_model::{Reason, Refusal, VolumeKey, volume::Sharing};

use super::{Filter, Nature, Scope, Site};
use crate::ask::Ask;

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
        let holder = site.view.volumes.get(&wanted.key)?.holders.iter().find(|holder| {
            let other = &site.view.group(holder.group).key;
            let stranger = (&other.namespace, &other.deployment) != (&ask.key.namespace, &ask.key.deployment);
            let exclusive = wanted.sharing == Sharing::Exclusive || holder.sharing == Sharing::Exclusive;
            exclusive || stranger || holder.group == ask.group
        })?;
        let group = &site.view.group(holder.group).key;
        Some((wanted.key.clone(), holder.slot.printed(group)))
    })
}

fn explain(ask: &Ask, site: &Site<'_>) -> Refusal {
    let (volume, holder) = held(ask, site).expect("only asked where a volume is held");
    Refusal::VolumeHeld { volume, holder }
}
