//! After a pass, a service has as many desired slots as its spec asks for, and a removed one has none.

use longshore_model::{GroupKey, ServiceKind, Slot, SlotKey, replica::DesiredState};
use longshore_store::{Group, State};

pub(super) const NAME: &str = "slot_count";

pub(super) fn check(state: &State, key: &GroupKey, group: &Group) -> Option<String> {
    // The slots a stopped deployment lacks are opened when it is started.
    let stopped = state.is_stopped(key);
    // Slots of the old mode serve until the new ones do during a change of mode. The `rollout_availability` rule counts them.
    let is_of_current_mode = |slot: &Slot| group.spec.kind.is_per_node() || matches!(slot.key, SlotKey::Index(_));
    let open = group.slots.values().filter(|slot| slot.desired == DesiredState::Run);
    let open = open.filter(|slot| group.desired == DesiredState::Stop || is_of_current_mode(slot)).count();
    let asked = match group.desired {
        DesiredState::Stop => 0,
        // A global service follows the nodes. Which of them it fits is the scheduler's decision.
        DesiredState::Run if group.spec.kind.is_per_node() => open,
        // A job opens its slots within `max_concurrent`, and does not open a finished one again.
        DesiredState::Run if group.spec.kind == ServiceKind::Batch => {
            let left = group.spec.replicas.saturating_sub(group.collected.total()) as usize;
            let concurrent = group.spec.max_concurrent.map_or(left, |most| most as usize);
            let least = if stopped { 0 } else { concurrent.min(left) };
            if (least..=left).contains(&open) { open } else { left }
        }
        DesiredState::Run if stopped => open.min(group.spec.replicas as usize),
        // What ran once and ended with a node that was removed is done.
        DesiredState::Run if group.spec.may_end() => {
            group.spec.replicas.saturating_sub(group.collected.total()) as usize
        }
        DesiredState::Run => group.spec.replicas as usize,
    };
    (open != asked).then(|| format!("{key} has {open} slots, {asked} are desired"))
}
