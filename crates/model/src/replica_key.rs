//! Which replica: the group, the slot in it, and the generation of the slot.
//!
//! Owns: the one key of a replica, and the same key inside a list that names the group once.
//! Must not touch: what a replica is or does.
//! Invariant: a key is never taken apart to be stored; what carries one keeps it whole.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Generation, GroupKey, SlotKey};

/// One generation of a slot: what an agent starts, watches and stops as one thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaKey {
    /// The group.
    pub group: GroupKey,
    /// The slot.
    pub slot: SlotKey,
    /// The generation of the slot.
    pub generation: Generation,
}

impl fmt::Display for ReplicaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} g{}", self.replica_id(), self.generation)
    }
}

impl ReplicaKey {
    /// The replica's id in the API and in tables, the same for all generations of its slot.
    pub fn replica_id(&self) -> String {
        self.slot.replica_id(&self.group)
    }
}

/// One generation of a slot whose group is named by what it is part of, such as a [`GroupPlan`](crate::GroupPlan).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SlotGeneration {
    /// The slot.
    pub slot: SlotKey,
    /// The generation of the slot.
    pub generation: Generation,
}

impl SlotGeneration {
    /// The key outside the group.
    pub fn in_group(self, group: &GroupKey) -> ReplicaKey {
        ReplicaKey { group: group.clone(), slot: self.slot, generation: self.generation }
    }
}

impl SlotKey {
    /// A generation of this slot.
    pub fn generation(&self, generation: Generation) -> SlotGeneration {
        SlotGeneration { slot: self.clone(), generation }
    }
}

impl GroupKey {
    /// A generation of one of this group's slots.
    pub fn replica(&self, slot: &SlotKey, generation: Generation) -> ReplicaKey {
        ReplicaKey { group: self.clone(), slot: slot.clone(), generation }
    }
}
