//! Once a node is down and nobody is told to wait for it, no slot counts on it: it has another generation, or says why
//! not.
//!
//! Stateful slots say why not. Under the brake, and for services that wait for their nodes, nothing is demanded.

use longshore_model::{Evacuation, Health, ServiceSpec, Slot, Time, replica::Wanted, service::Replace};
use longshore_store::State;

pub(super) const NAME: &str = "evacuated";

pub(super) fn check(state: &State, now: Time) -> Vec<String> {
    if *state.evacuation() != Evacuation::Free {
        return Vec::new();
    }
    let mut messages = Vec::new();
    for (key, group) in state.groups().filter(|(_, group)| group.wanted == Wanted::Run) {
        // Until its step has come a slot follows what was before, and what of a job is not yet its turn waits for it.
        let before = group.rolling.held.as_ref().map(|held| &held.spec.disconnect);
        if before.is_some_and(|before| before.replace == Replace::No) || group.spec.max_concurrent.is_some() {
            continue;
        }
        let slots = group.slots.values().filter(|slot| slot.wanted == Wanted::Run && slot.waiting.is_none());
        for slot in slots.filter(|slot| counts_on_the_lost(state, &group.spec, slot, now)) {
            messages.push(format!("{} counts on a node that is down", slot.key.printed(key)));
        }
    }
    messages
}

fn counts_on_the_lost(state: &State, spec: &ServiceSpec, slot: &Slot, now: Time) -> bool {
    let Some(newest) = slot.replicas.iter().rev().find(|replica| replica.wanted == Wanted::Run) else { return false };
    // One that ended, well or for good, stays ended.
    if newest.state != longshore_model::ReplicaState::Lost {
        return false;
    }
    let Some(node) = state.node(&newest.assignment.node) else { return true };
    let waited_for = match (spec.disconnect.lost_after, spec.disconnect.replace) {
        (_, Replace::Yes) => false,
        (Some(wait), Replace::No) => now < node.health_since.after(wait),
        (None, Replace::No) => true,
    };
    let excused = spec.kind.is_per_node() && spec.disconnect.lost_after.is_some();
    node.health == Health::Down && !excused && (node.confirmed_lost.is_some() || !waited_for)
}
