//! A node takes new work only if it is wanted, well, reachable, and has anything to give.

use longshore_model::{Health, Intent, Reason, Refusal, node::Overlay};

use super::{Filter, Nature, Scope, Site};
use crate::{
    ask::Ask,
    view::fleet::{has_capacity, takes_work},
};

pub(super) const FILTER: Filter =
    Filter { reason: Reason::NoNodesActive, nature: Nature::Readiness, scope, check, explain };

/// The lanes hold ready nodes only, but shortlists and explanations ask here.
fn scope(_: &Ask) -> Scope {
    Scope::Node
}

fn check(_: &Ask, site: &Site<'_>) -> bool {
    takes_work(site.node)
}

fn explain(_: &Ask, site: &Site<'_>) -> Refusal {
    let node = site.node;
    if !has_capacity(node) {
        Refusal::NoCapacity
    } else if node.overlay == Overlay::Cut && node.intent == Intent::Active && node.health == Health::Ready {
        Refusal::OverlayCut
    } else {
        Refusal::NotReady { intent: node.intent, health: node.health }
    }
}
