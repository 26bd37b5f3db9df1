//! Nodes that are down: whose work is replaced, whose is waited for, and when to stop taking work off them at all.
//!
//! Owns: the mass-failure brake and the services' own word on nodes lost from sight.
//! Invariant: a node given up by an operator is waited for by nobody.

use longshore_model::{Health, Intent, Node, ServiceKind, ServiceSpec, Time, service::Replace};

use crate::view::{View, groups::Replica};

/// Whether so many nodes are out of sight that it is more likely us than them: more than half.
pub(crate) fn is_braked(view: &View) -> bool {
    view.fleet.gone.len() * 2 > view.fleet.by_name.len()
}

/// Whether what was on a node that is down shall be replaced, as far as the cluster is concerned.
pub(crate) fn is_evacuated(view: &View, node: &Node) -> bool {
    node.confirmed_lost.is_some() || !is_braked(view)
}

/// Until when a service waits for what it has on a node that is down; `None` where it does not wait, or for ever.
fn until(spec: &ServiceSpec, node: &Node) -> Option<Time> {
    spec.disconnect.lost_after.map(|wait| node.health_since.after(wait))
}

/// Whether a generation on a node that is down is not told to stop, so that it may go on when the node returns.
pub(crate) fn is_waited_for(view: &View, spec: &ServiceSpec, replica: &Replica, now: Time) -> bool {
    let node = view.fleet.node(replica.node);
    if node.health != Health::Down || node.confirmed_lost.is_some() {
        return false;
    }
    match (until(spec, node), spec.disconnect.replace) {
        (Some(until), Replace::Yes | Replace::No) => now < until,
        (None, Replace::No) => true,
        (None, Replace::Yes) => false,
    }
}

/// Whether a slot whose generation is on a node that is down gets no other for now.
pub(crate) fn is_held(view: &View, spec: &ServiceSpec, replica: &Replica, now: Time) -> bool {
    let node = view.fleet.node(replica.node);
    let unreplaced = spec.disconnect.replace == Replace::No && is_waited_for(view, spec, replica, now);
    node.health == Health::Down && (unreplaced || !is_evacuated(view, node))
}

/// When the answer about a generation could change without an event.
pub(super) fn next_change(view: &View, spec: &ServiceSpec, replica: &Replica, now: Time) -> Option<Time> {
    let node = view.fleet.node(replica.node);
    let lost = until(spec, node).filter(|_| node.health == Health::Down);
    let job = spec.kind == ServiceKind::Batch && node.intent == Intent::Draining;
    let deadline = node.drain.as_ref().filter(|_| job).and_then(|drain| drain.deadline);
    lost.into_iter().chain(deadline).filter(|at| *at > now).min()
}
