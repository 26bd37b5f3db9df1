//! Planning is idempotent: planning twice gives the same plan, and an applied plan leaves nothing to do.

use std::time::Duration;

use longshore_model::{
    Command,
    rollout::{DeploymentPlan, RolloutChange},
};
use proptest::prelude::*;

use super::{
    histories::{Step, history, tight_history},
    world::World,
};
use crate::proptest_config::cases;

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn planning_twice_gives_the_same_plan_and_an_applied_plan_leaves_nothing_to_do(steps in history(60)) {
        check_idempotence(&steps)?;
    }

    #[test]
    fn planning_is_idempotent_with_preemption_and_a_quota(steps in tight_history(60)) {
        check_idempotence(&steps)?;
    }

    #[test]
    fn a_plan_committed_twice_changes_nothing_more(steps in history(40)) {
        let mut world = World::after(&steps);
        let (plan, _) = world.decide();
        prop_assert_eq!(world.run(Command::Commit(Box::new(plan))), vec![]);
    }

    #[test]
    fn a_cluster_without_further_changes_converges(steps in history(40)) {
        let mut world = World::after(&steps);
        for _ in 0..200 {
            let (_, decided) = world.decide();
            let settled = world.act(&Step::Settle);
            if decided.is_empty() && settled.is_empty() {
                break;
            }
            world.now = world.now.after(Duration::from_mins(6));
        }
        let plan = world.plan();
        prop_assert!(plan.is_empty(), "not converged: {:#?}", plan);
    }
}

/// Whether the plan aborts a rollout. Only the state machine keeps the previous revision, so the rollback starts with
/// the plan after the abort is committed.
fn aborts_rollout(decided: &DeploymentPlan) -> bool {
    matches!(decided.change, RolloutChange::Abort(_))
}

/// Runs a history; at each decision plans twice before the commit and once after it.
fn check_idempotence(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut world = World::default();
    for step in steps {
        if !matches!(step, Step::Decide) {
            world.act(step);
            continue;
        }
        let plan = world.plan();
        prop_assert_eq!(&plan, &world.plan(), "the first plan changed the view");
        world.run(Command::Commit(Box::new(plan.clone())));
        if plan.deployments.iter().any(aborts_rollout) {
            world.decide_all();
        }
        let again = world.plan();
        prop_assert!(again.is_empty(), "there is more to do: {:#?}", again);
    }
    Ok(())
}
