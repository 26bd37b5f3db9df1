//! A volume is local: only the node that holds it can mount it.

use longshore_model::{NodeName, Reason, Refusal, VolumeKey};

use super::{Filter, Nature, Scope, Site};
use crate::ask::Ask;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::VolumeLocalityNoNode, nature: Nature::Capacity, scope, check, explain };

fn scope(ask: &Ask) -> Scope {
    if ask.terms.volumes.is_empty() { Scope::Idle } else { Scope::Node }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    elsewhere(ask, site).is_none()
}

/// The first volume that lives on another node.
fn elsewhere(ask: &Ask, site: &Site<'_>) -> Option<(VolumeKey, NodeName)> {
    ask.terms.volumes.iter().find_map(|held| {
        let home = site.view.volumes.get(&held.key)?.home.as_ref()?;
        (*home != site.node.name).then(|| (held.key.clone(), home.clone()))
    })
}

fn explain(ask: &Ask, site: &Site<'_>) -> Refusal {
    let (volume, home) = elsewhere(ask, site).expect("only asked where a volume lives elsewhere");
    Refusal::VolumeElsewhere { volume, home }
}
