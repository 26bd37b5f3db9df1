//! Once no more steps come, the scheduler stops making plans: the last plan is empty, unless it only starts again what is
//! started again without end.

use longshore_model::{Plan, PlanItem, ServiceSpec, Time};
use longshore_store::State;

pub(crate) const NAME: &str = "quiet";

pub(super) fn message(last_plan: Time) -> String {
    format!("a plan was still made at {last_plan}, long after the last step")
}

/// Whether a plan does more than to start again, or give up until then, what its restart policy never gives up for good.
pub(crate) fn is_a_change(state: &State, plan: &Plan) -> bool {
    let only_restarts = plan.groups.iter().all(|part| {
        let endless = state.group(&part.group).is_some_and(|group| is_restarted_without_end(&group.spec));
        let restarts = |item: &PlanItem| matches!(item, PlanItem::Restart { .. } | PlanItem::GiveUp { .. });
        endless && part.items.iter().all(restarts)
    });
    !only_restarts || !plan.nodes.is_empty() || !plan.deployments.is_empty()
}

/// Whether a service that fails is started again for ever.
pub(super) fn is_restarted_without_end(spec: &ServiceSpec) -> bool {
    spec.returns_after_exhaustion() || spec.restart.max_attempts == Some(u32::MAX)
}
