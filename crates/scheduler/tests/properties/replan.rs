//! A plan is an answer, not an event: asking twice gives the same one, and a plan that was applied leaves nothing to do.

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
use crate::cases::cases;

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn planning_twice_gives_the_same_plan_and_an_applied_plan_leaves_nothing_to_do(steps in history(60)) {
        live(&steps)?;
    }

    #[test]
    fn the_same_where_others_are_displaced_and_a_quota_binds(steps in tight_history(60)) {
        live(&steps)?;
    }

    #[test]
    fn a_plan_committed_twice_changes_nothing_more(steps in history(40)) {
        let mut world = World::after(&steps);
        let (plan, _) = world.decide();
        prop_assert_eq!(world.tell(Command::Commit(Box::new(plan))), vec![]);
    }

    #[test]
    fn a_cluster_left_alone_comes_to_rest(steps in history(40)) {
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
        prop_assert!(plan.is_empty(), "still not at rest: {:#?}", plan);
    }
}

/// Whether the plan gives a rollout up. What was wanted before is in the manifests, which only the state machine keeps: the
/// way back begins when it has said so.
fn turns_around(decided: &DeploymentPlan) -> bool {
    matches!(decided.change, RolloutChange::Abort(_))
}

/// Lives through a history, and asks twice and once more after each decision.
fn live(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut world = World::default();
    for step in steps {
        if !matches!(step, Step::Decide) {
            world.act(step);
            continue;
        }
        let plan = world.plan();
        prop_assert_eq!(&plan, &world.plan(), "the first plan changed the view");
        world.tell(Command::Commit(Box::new(plan.clone())));
        if plan.deployments.iter().any(turns_around) {
            world.decide_all();
        }
        let again = world.plan();
        prop_assert!(again.is_empty(), "there is more to do: {:#?}", again);
    }
    Ok(())
}
