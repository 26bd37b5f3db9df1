//! Events in any order, repeated or missing: the view may be wrong then, but it never panics.

use longshore_model::{Event, GroupKey, StateIndex, Time};
use longshore_scheduler::{View, explain, plan};
use proptest::{collection::vec, prelude::*};

use super::{
    histories::{Step, history},
    random_services::{DEPLOYMENTS, SERVICES, group_key},
    world::{World, without_reasons},
};
use crate::proptest_config::cases;

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn no_order_of_events_makes_a_view_panic(steps in history(40), order in vec(any::<u16>(), 0..300)) {
        let mut world = World::default();
        let events: Vec<Event> = steps.iter().flat_map(|step| world.act(step)).collect();
        let mut view = View::new();
        for (at, which) in order.iter().enumerate() {
            if let Some(event) = usize::from(*which).checked_rem(events.len()).map(|which| &events[which]) {
                view.apply(event);
            }
            if at % 10 == 0 {
                let _ = plan(&mut view, StateIndex(0), Time(at as u64 * 60_000));
            }
            if at % 50 == 0 {
                for group in groups() {
                    let _ = explain(&mut view, &group, Time(at as u64 * 60_000));
                }
            }
        }
    }

    #[test]
    fn an_event_applied_twice_counts_once(steps in history(40)) {
        let mut world = World::default();
        let mut view = View::new();
        for step in &steps {
            for event in world.act(step) {
                view.apply(&event);
                // Two replicas may fail at the same instant, so two equal failure events are two failures.
                if !matches!(event, Event::FailureCounted { .. }) {
                    view.apply(&event);
                }
            }
            if matches!(step, Step::Decide) {
                let again = plan(&mut view, world.state.index(), world.now);
                // A reason is re-evaluated only when capacity may have appeared; a view that did not plan meanwhile
                // still has to.
                prop_assert_eq!(without_reasons(&world.plan()), without_reasons(&again));
            }
        }
    }
}

fn groups() -> impl Iterator<Item = GroupKey> {
    DEPLOYMENTS.into_iter().flat_map(|deployment| SERVICES.map(|service| group_key(deployment, service)))
}
