//! Nodes that are down: which replicas are replaced, which may reconnect, and when evacuation pauses.
//!
//! Owns: the mass-failure rule and the services' `disconnect` policies.
//! Invariant: a replica on a node that an operator confirmed lost is never expected to reconnect.

use longshore_model::{Health, Intent, Node, ServiceKind, ServiceSpec, Time, service::Replace};

use crate::view::{View, groups::Replica};

/// Whether more than half of the nodes are unreachable: then the fault is more likely on our side than theirs.
pub(crate) fn is_mass_failure(view: &View) -> bool {
    view.nodes.unreachable.len() * 2 > view.nodes.by_name.len()
}

/// Whether the cluster allows the replicas of a node that is down to be replaced.
pub(crate) fn is_evacuated(view: &View, node: &Node) -> bool {
    node.confirmed_lost.is_some() || !is_mass_failure(view)
}

/// When a service considers its replicas on a node that is down lost; `None` where it sets no `lost_after`.
fn lost_at(spec: &ServiceSpec, node: &Node) -> Option<Time> {
    spec.disconnect.lost_after.map(|wait| node.health_since.after(wait))
}

/// Whether a generation on a node that is down is not stopped, so that it can continue when the node returns.
pub(crate) fn may_reconnect(view: &View, spec: &ServiceSpec, replica: &Replica, now: Time) -> bool {
    let node = view.nodes.node(replica.node);
    if node.health != Health::Down || node.confirmed_lost.is_some() {
        return false;
    }
    match (lost_at(spec, node), spec.disconnect.replace) {
        (Some(until), Replace::WhenLost | Replace::Never) => now < until,
        (None, Replace::Never) => true,
        (None, Replace::WhenLost) => false,
    }
}

/// Whether a slot whose generation is on a node that is down gets no replacement for now.
pub(crate) fn is_replacement_held(view: &View, spec: &ServiceSpec, replica: &Replica, now: Time) -> bool {
    let node = view.nodes.node(replica.node);
    // Its terminal is gone, and whether its command may run twice is only known to whoever typed it.
    if spec.one_off.is_some() {
        return node.health == Health::Down;
    }
    let unreplaced = spec.disconnect.replace == Replace::Never && may_reconnect(view, spec, replica, now);
    node.health == Health::Down && (unreplaced || !is_evacuated(view, node))
}

/// When the answer for a generation could change without an event.
pub(super) fn next_change(view: &View, spec: &ServiceSpec, replica: &Replica, now: Time) -> Option<Time> {
    let node = view.nodes.node(replica.node);
    let lost = lost_at(spec, node).filter(|_| node.health == Health::Down);
    let job = spec.kind == ServiceKind::Batch && node.intent == Intent::Draining;
    let deadline = node.drain.as_ref().filter(|_| job).and_then(|drain| drain.deadline);
    lost.into_iter().chain(deadline).filter(|at| *at > now).min()
}
