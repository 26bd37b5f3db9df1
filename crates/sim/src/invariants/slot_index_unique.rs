//! A slot index is used once per service.

use longshore_model::{GroupKey, SlotIndex, SlotKey};

pub(super) const NAME: &str = "slot_index_unique";

pub(super) fn check(highest: Option<&SlotIndex>, group: &GroupKey, slot: &SlotKey, index: SlotIndex) -> Option<String> {
    let highest = highest.filter(|highest| **highest >= index)?;
    Some(format!("{} is opened although index {highest} was used before", slot.replica_id(group)))
}
