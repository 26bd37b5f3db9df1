//! After a pass, every slot that is wanted has a generation that shall run, or a reason why not.
//!
//! A generation on its way out counts for the second it takes: where two cannot coexist, the old one makes room first.

use longshore_model::{
    GroupKey, Health, ReplicaState, Slot,
    replica::{Replica, Wanted},
};
use longshore_store::{Group, State};

pub(super) const NAME: &str = "explained";

pub(super) fn check(state: &State, key: &GroupKey, group: &Group) -> Vec<String> {
    let open = group.slots.values().filter(|slot| slot.wanted == Wanted::Run);
    open.filter(|slot| !has_answer(state, slot))
        .map(|slot| format!("{} has neither a node nor a reason", slot.key.printed(key)))
        .collect()
}

fn has_answer(state: &State, slot: &Slot) -> bool {
    // One lost from sight is on its way out once its node is heard of again.
    let is_gone = |replica: &Replica| {
        let down = state.node(&replica.assignment.node).is_none_or(|node| node.health == Health::Down);
        replica.state == ReplicaState::Lost && down
    };
    let answers = |replica: &Replica| replica.wanted == Wanted::Run || !is_gone(replica);
    slot.waiting.is_some() || slot.replicas.iter().any(answers)
}
