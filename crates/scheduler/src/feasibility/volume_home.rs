//! While the home of a volume is away, its replica waits: started elsewhere it would start without its data.

use longshore_model::{Health, Intent, NodeName, Reason, Refusal, VolumeKey};

use super::{Filter, Nature, Scope, Site};
use crate::ask::Ask;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::VolumeHomeNodeOffline, nature: Nature::Capacity, scope, check, explain };

fn scope(ask: &Ask) -> Scope {
    if ask.terms.volumes.is_empty() { Scope::Idle } else { Scope::Node }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    offline(ask, site).is_none()
}

/// The first volume whose home is down or gone.
fn offline(ask: &Ask, site: &Site<'_>) -> Option<(VolumeKey, NodeName)> {
    ask.terms.volumes.iter().find_map(|held| {
        let home = site.view.volumes.get(&held.key)?.home.as_ref()?;
        let node = site.view.fleet.by_name.get(home).map(|node| site.view.fleet.node(*node));
        let away = node.is_none_or(|node| match node.health {
            Health::Down | Health::Suspect => true,
            Health::Ready | Health::Degraded => node.intent == Intent::Removed,
        });
        away.then(|| (held.key.clone(), home.clone()))
    })
}

fn explain(ask: &Ask, site: &Site<'_>) -> Refusal {
    let (volume, home) = offline(ask, site).expect("only asked where a home is away");
    Refusal::VolumeHomeOffline { volume, home }
}
