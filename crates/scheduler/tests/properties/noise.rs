//! Events in any order, twice, or not at all: the view may be wrong then, but it never falls over.

use longshore_model::{Event, GroupKey, StateIndex, Time};
use longshore_scheduler::{View, explain, plan};
use proptest::{collection::vec, prelude::*};

use super::{
    histories::{Step, history},
    services::{DEPLOYMENTS, SERVICES, group_key},
    world::{World, without_reasons},
};
use crate::cases::cases;

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
    fn an_event_heard_twice_counts_once(steps in history(40)) {
        let mut world = World::default();
        let mut view = View::new();
        for step in &steps {
            for event in world.act(step) {
                view.apply(&event);
                // Two replicas may well fail in the same instant, so that two equal failures are two.
                if !matches!(event, Event::FailureCounted { .. }) {
                    view.apply(&event);
                }
            }
            if matches!(step, Step::Decide) {
                let again = plan(&mut view, world.state.index(), world.now);
                // A reason is only told anew when room may have appeared; a view that was not asked meanwhile has that ahead.
                prop_assert_eq!(without_reasons(&world.plan()), without_reasons(&again));
            }
        }
    }
}

fn groups() -> impl Iterator<Item = GroupKey> {
    DEPLOYMENTS.into_iter().flat_map(|deployment| SERVICES.map(|service| group_key(deployment, service)))
}
