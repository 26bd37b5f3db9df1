//! A view rebuilt from the state decides and explains like the view that followed the events.
//!
//! A recorded reason may be outdated: it is refreshed when something could help the replica, not whenever another obstacle
//! appears. So recorded reasons are not compared, only the items that act, and the explanations computed now.

use longshore_model::{Plan, PlanItem, Time};
use longshore_scheduler::View;
use longshore_store::State;

pub(super) const NAME: &str = "rebuilt";

pub(super) fn check(state: &State, live: &mut View, now: Time) -> Vec<String> {
    let mut rebuilt = view_from_state(state);
    let mut messages = Vec::new();
    let decide = |view: &mut View| actions(longshore_scheduler::plan(view, state.index(), now));
    let (new, old) = (decide(&mut rebuilt), decide(live));
    if new != old {
        messages.push(format!("the rebuilt view decides {new:?}, the live one {old:?}"));
    }
    for (key, _) in state.groups() {
        let explain = |view: &mut View| longshore_scheduler::explain(view, key, now);
        let (new, old) = (explain(&mut rebuilt), explain(live));
        if new != old {
            messages.push(format!("{key}: the rebuilt view explains {new:?}, the live one {old:?}"));
        }
    }
    messages
}

/// The view of a leader that has nothing but the state.
pub(crate) fn view_from_state(state: &State) -> View {
    let mut view = View::default();
    for event in state.events() {
        view.apply(&event);
    }
    view
}

/// The items of a plan that act, without those that only record a reason.
pub(super) fn actions(plan: Plan) -> Vec<(String, PlanItem)> {
    let all = plan.groups.into_iter().flat_map(|part| {
        let group = part.group.to_string();
        part.items.into_iter().map(move |item| (group.clone(), item))
    });
    all.filter(|(_, item)| !matches!(item, PlanItem::Wait(_))).collect()
}
