//! A view that followed every event and one rebuilt from the state give the same plans and explanations.
//!
//! A waiting group is re-evaluated only when capacity may have appeared, and its reason may be outdated meanwhile. So
//! plans are compared twice: without reasons, which finds a group that should have been re-evaluated, and in full after
//! both views were made to re-evaluate everything.

use longshore_model::Event;
use longshore_scheduler::{View, explain, plan};
use proptest::prelude::*;

use super::{
    histories::{Step, history},
    world::{World, without_reasons},
};
use crate::proptest_config::cases;

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn an_incremental_view_equals_a_rebuilt_one(before in history(50), after in history(20)) {
        let mut world = World::after(&before);
        let mut rebuilt = world.rebuilt();
        compare(&mut world, &mut rebuilt);
        for step in &after {
            if matches!(step, Step::Decide) {
                compare(&mut world, &mut rebuilt);
            }
            for event in world.act(step) {
                rebuilt.apply(&event);
            }
        }
        compare(&mut world, &mut rebuilt);
        let mut second = world.rebuilt();
        compare(&mut world, &mut second);
    }
}

fn compare(world: &mut World, rebuilt: &mut View) {
    let (index, now) = (world.state.index(), world.now);
    let (followed, rebuilt_plan) = (world.plan(), plan(rebuilt, index, now));
    assert_eq!(
        without_reasons(&followed),
        without_reasons(&rebuilt_plan),
        "followed (left) and rebuilt (right) differ"
    );
    let later = followed.wake_at.is_none_or(|mine| rebuilt_plan.wake_at.is_some_and(|theirs| mine > theirs));
    assert!(
        !later || rebuilt_plan.wake_at.is_none(),
        "would sleep too long: {:?}, not {:?}",
        followed.wake_at,
        rebuilt_plan.wake_at
    );

    let everything = Event::Configured(world.state.config().clone());
    world.view.apply(&everything);
    rebuilt.apply(&everything);
    let (followed, rebuilt_plan) = (world.plan(), plan(rebuilt, index, now));
    assert_eq!(followed.groups, rebuilt_plan.groups, "followed (left) and rebuilt (right) differ, all looked at");

    for (group, followed) in world.explain_all() {
        assert_eq!(followed, explain(rebuilt, &group, now), "{group} is explained differently");
    }
}
