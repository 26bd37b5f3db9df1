//! A plan is an answer, not an event: asking twice gives the same one, and a plan that was applied leaves nothing to do.

use std::time::Duration;

use longshore_model::{Command, Event, Plan, PlanItem, command::Quota, config::Preemption};
use proptest::prelude::*;

use super::{
    histories::{Step, history},
    shapes::cases,
    world::World,
};

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn planning_twice_gives_the_same_plan_and_an_applied_plan_leaves_nothing_to_do(steps in history(60)) {
        let mut world = World::default();
        for step in &steps {
            if !matches!(step, Step::Decide) {
                world.act(step);
                continue;
            }
            let plan = world.plan();
            prop_assert_eq!(&plan, &world.plan(), "the first plan changed the view");
            let stops = items(&plan).any(|item| matches!(item, PlanItem::Stop { .. }));
            world.tell(Command::Commit(Box::new(plan)));
            // What is told to stop no longer counts against a quota, and what was only just placed can be displaced:
            // there a plan may make room for the next one.
            for _ in 0..rounds_allowed(&world) {
                world.decide();
            }
            let again = world.plan();
            // A slot between two generations does not ask for a node, which can change the reason of its siblings.
            let reworded = stops && items(&again).all(|item| matches!(item, PlanItem::Wait(_)));
            prop_assert!(again.is_empty() || reworded, "there is more to do: {:#?}", again);
        }
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

fn items(plan: &Plan) -> impl Iterator<Item = &PlanItem> {
    plan.groups.iter().flat_map(|group| &group.items)
}

fn rounds_allowed(world: &World) -> usize {
    let limited = |event: &Event| matches!(event, Event::QuotaSet { quota, .. } if *quota != Quota::default());
    let displacing = world.state.config().preemption == Preemption::On;
    if displacing || world.state.events().iter().any(limited) { 5 } else { 0 }
}
