//! A leader replaced at any moment continues to the same end: whoever has only the state decides the same, now.
//!
//! What is decided is compared at every pass, so that by induction the whole rest of the run is the same.

use longshore_model::{DeploymentPlan, NodePlan, Plan, PlanItem, Time};
use longshore_store::State;

use super::rebuilt::{deeds, from_state};

pub(super) const NAME: &str = "succession";

pub(super) fn check(state: &State, plan: &Plan, now: Time) -> Option<String> {
    let successor = longshore_scheduler::plan(&mut from_state(state), state.index(), now);
    let (new, old) = (whole(successor), whole(plan.clone()));
    (new != old).then(|| format!("a new leader would decide {new:?}, the old one decides {old:?}"))
}

/// All that a plan does, to replicas, nodes and deployments.
fn whole(plan: Plan) -> (Vec<(String, PlanItem)>, Vec<NodePlan>, Vec<DeploymentPlan>) {
    let (nodes, deployments) = (plan.nodes.clone(), plan.deployments.clone());
    (deeds(plan), nodes, deployments)
}
