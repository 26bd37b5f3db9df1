//! After a pass, a service has as many slots as were asked for, and one that is not wanted has none that is.

use longshore_model::{GroupKey, ServiceKind, Slot, SlotKey, replica::Wanted};
use longshore_store::Group;

pub(super) const NAME: &str = "slot_count";

pub(super) fn check(key: &GroupKey, group: &Group) -> Option<String> {
    // Those named as before a change of mode serve until their successors do, and are counted by the rule on shortage.
    let named = |slot: &Slot| group.spec.kind.is_per_node() || matches!(slot.key, SlotKey::Index(_));
    let open = group.slots.values().filter(|slot| slot.wanted == Wanted::Run);
    let open = open.filter(|slot| group.wanted == Wanted::Stop || named(slot)).count();
    let asked = match group.wanted {
        Wanted::Stop => 0,
        // A global service follows the nodes; which of them it fits is the scheduler's to say.
        Wanted::Run if group.spec.kind.is_per_node() => open,
        // A job opens its slots as their turn comes, and does not open again what is done.
        Wanted::Run if group.spec.kind == ServiceKind::Batch => {
            let left = group.spec.replicas.saturating_sub(group.collected.total()) as usize;
            let at_once = group.spec.max_concurrent.map_or(left, |most| most as usize);
            if (at_once.min(left)..=left).contains(&open) { open } else { left }
        }
        Wanted::Run => group.spec.replicas as usize,
    };
    (open != asked).then(|| format!("{key} has {open} slots, {asked} are wanted"))
}
