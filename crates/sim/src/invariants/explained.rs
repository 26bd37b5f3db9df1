//! After a pass, every slot that is wanted has a generation that shall run, or a reason why not.
//!
//! A generation on its way out counts for the second it takes: where two cannot coexist, the old one makes room first.

use longshore_model::{
    GroupKey, ReplicaState, Slot,
    replica::{Replica, Wanted},
};
use longshore_store::Group;

pub(super) const NAME: &str = "explained";

pub(super) fn check(key: &GroupKey, group: &Group) -> Vec<String> {
    let open = group.slots.values().filter(|slot| slot.wanted == Wanted::Run);
    open.filter(|slot| !has_answer(slot))
        .map(|slot| format!("{} has neither a node nor a reason", slot.key.printed(key)))
        .collect()
}

fn has_answer(slot: &Slot) -> bool {
    let answers = |replica: &Replica| replica.wanted == Wanted::Run || replica.state != ReplicaState::Lost;
    slot.waiting.is_some() || slot.replicas.iter().any(answers)
}
