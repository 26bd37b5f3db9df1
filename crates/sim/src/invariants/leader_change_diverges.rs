//! A leader change never changes a decision: a view rebuilt from the state makes the same plan at the same time.
//!
//! Plans are compared at every pass, so that by induction the whole rest of the run is the same.

use longshore_model::{DeploymentPlan, NodePlan, Plan, PlanItem, Time};
use longshore_store::State;

use super::rebuilt::{actions, view_from_state};

pub(super) const NAME: &str = "leader_change_diverges";

pub(super) fn check(state: &State, plan: &Plan, now: Time) -> Option<String> {
    let by_new_leader = longshore_scheduler::plan(&mut view_from_state(state), state.index(), now);
    let (new, old) = (all_actions(by_new_leader), all_actions(plan.clone()));
    (new != old).then(|| format!("a new leader would decide {new:?}, the old one decides {old:?}"))
}

/// What a plan does to replicas, nodes and deployments.
fn all_actions(plan: Plan) -> (Vec<(String, PlanItem)>, Vec<NodePlan>, Vec<DeploymentPlan>) {
    let (nodes, deployments) = (plan.nodes.clone(), plan.deployments.clone());
    (actions(plan), nodes, deployments)
}
