//! A leader that starts from the state alone decides and explains like the one that followed along.
//!
//! A recorded reason may be older than the truth: it is refreshed when something could help, not whenever something
//! else got in the way. So what would be *done* is compared, and the explanations given now.

use longshore_model::{Plan, PlanItem, Time};
use longshore_scheduler::View;
use longshore_store::State;

pub(super) const NAME: &str = "rebuilt";

pub(super) fn check(state: &State, followed: &mut View, now: Time) -> Vec<String> {
    let mut rebuilt = from_state(state);
    let mut messages = Vec::new();
    let decide = |view: &mut View| deeds(longshore_scheduler::plan(view, state.index(), now));
    let (new, old) = (decide(&mut rebuilt), decide(followed));
    if new != old {
        messages.push(format!("from the state alone {new:?} is decided, after following along {old:?}"));
    }
    for (key, _) in state.groups() {
        let explain = |view: &mut View| longshore_scheduler::explain(view, key, now);
        let (new, old) = (explain(&mut rebuilt), explain(followed));
        if new != old {
            messages.push(format!("{key}: from the state alone {new:?} is explained, after following along {old:?}"));
        }
    }
    messages
}

/// What a leader knows who has nothing but the state.
pub(crate) fn from_state(state: &State) -> View {
    let mut view = View::default();
    for event in state.events() {
        view.apply(&event);
    }
    view
}

/// What a plan does, without the reasons it gives.
pub(super) fn deeds(plan: Plan) -> Vec<(String, PlanItem)> {
    let all = plan.groups.into_iter().flat_map(|part| {
        let group = part.group.to_string();
        part.items.into_iter().map(move |item| (group.clone(), item))
    });
    all.filter(|(_, item)| !matches!(item, PlanItem::Wait(_))).collect()
}
