//! Builds the model's [`ReplicaKey`] from the fields that events and the state keep apart.

use longshore_model::{Generation, GroupKey, ReplicaKey, SlotKey};

pub(crate) fn replica_key(group: &GroupKey, slot: &SlotKey, generation: Generation) -> ReplicaKey {
    ReplicaKey { group: group.clone(), slot: slot.clone(), generation }
}
