//! No replica is placed on a node that accepts no new work at the time of the decision.

use longshore_model::{
    Health, Intent, Node, Plan, PlanItem,
    node::{Overlay, UseDegraded},
};
use longshore_store::State;

pub(super) const NAME: &str = "eligible";

pub(super) fn check(state: &State, plan: &Plan) -> Vec<String> {
    let mut messages = Vec::new();
    for part in &plan.groups {
        for item in &part.items {
            let PlanItem::Place(placement) = item else { continue };
            let eligible = state.node(&placement.node).is_some_and(|node| accepts_new_work(node));
            if !eligible {
                let replica = placement.key.slot.replica_id(&part.group);
                messages.push(format!("{replica} is placed on {}, which accepts no new work", placement.node));
            }
        }
    }
    messages
}

fn accepts_new_work(node: &Node) -> bool {
    let healthy = match node.health {
        Health::Ready => true,
        Health::Degraded => node.use_degraded == UseDegraded::Allowed,
        Health::Suspect | Health::Down => false,
    };
    healthy && node.intent == Intent::Active && node.overlay == Overlay::Reachable
}
