//! A view that followed every event and one that was told the state from scratch give the same answers.
//!
//! A group that waits is only asked again when room may have appeared. Its reason may go out of date meanwhile, so
//! plans are compared twice: without reasons as they are, which finds a group that should have been asked again, and
//! in full after both views were told to look at everything.

use longshore_model::Event;
use longshore_scheduler::{View, explain, plan};
use proptest::prelude::*;

use super::{
    histories::{Step, history},
    world::{World, without_reasons},
};
use crate::cases::cases;

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
        let mut afresh = world.rebuilt();
        compare(&mut world, &mut afresh);
    }
}

fn compare(world: &mut World, rebuilt: &mut View) {
    let (index, now) = (world.state.index(), world.now);
    let (followed, told) = (world.plan(), plan(rebuilt, index, now));
    assert_eq!(without_reasons(&followed), without_reasons(&told), "followed (left) and rebuilt (right) differ");
    let later = followed.wake_at.is_none_or(|mine| told.wake_at.is_some_and(|theirs| mine > theirs));
    assert!(!later || told.wake_at.is_none(), "would sleep too long: {:?}, not {:?}", followed.wake_at, told.wake_at);

    let everything = Event::Configured(world.state.config().clone());
    world.view.apply(&everything);
    rebuilt.apply(&everything);
    let (followed, told) = (world.plan(), plan(rebuilt, index, now));
    assert_eq!(followed.groups, told.groups, "followed (left) and rebuilt (right) differ, all looked at");

    for (group, followed) in world.explain_all() {
        assert_eq!(followed, explain(rebuilt, &group, now), "{group} is explained in two ways");
    }
}
