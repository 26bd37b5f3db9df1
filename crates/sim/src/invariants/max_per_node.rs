//! A placement never puts more replicas of a service on a node than its manifest allows.
//!
//! Slots are counted, not generations: during an update two generations of one slot may share a node. A limit lowered by a
//! later manifest evicts nobody, so the rule is checked only when something is placed. Ended replicas of a job do not count.

use std::collections::BTreeSet;

use longshore_model::{
    GroupKey, NodeName, ReplicaState, SlotKey,
    replica::{DesiredState, Replica},
};
use longshore_store::State;

use super::shadow_state::ShadowState;

pub(super) const NAME: &str = "max_per_node";

pub(super) fn check(shadow: &ShadowState, state: &State, group: &GroupKey, node: &NodeName) -> Option<String> {
    let known = state.group(group)?;
    let mut limit = known.spec.placement.max_replicas_per_node?;
    // A slot whose step of the rollout has not come is replaced under the limit of the previous manifest.
    if let Some(held) = &known.rollout_position.previous {
        limit = limit.max(held.spec.placement.max_replicas_per_node?);
    }
    let counts_on_node = |slot: &SlotKey, generation| {
        known.slots.get(slot).is_some_and(|slot| {
            // A job replica given up because of its health check may still run.
            let exited = |replica: &Replica| {
                replica.state == ReplicaState::Completed || replica.details.contains_key("exit_code")
            };
            let ended = |replica: &Replica| {
                known.spec.kind.is_job() && exited(replica) && super::concurrency::has_ended(known, replica)
            };
            let counts = |replica: &Replica| replica.desired == DesiredState::Run && !ended(replica);
            slot.replicas.iter().any(|replica| replica.generation == generation && counts(replica))
        })
    };
    let slots: BTreeSet<&SlotKey> = shadow
        .occupants(node)?
        .keys()
        .filter(|key| key.group == *group && counts_on_node(&key.slot, key.generation))
        .map(|key| &key.slot)
        .collect();
    let count = slots.len();
    (count as u64 > u64::from(limit)).then(|| format!("{node} has {count} of {group}, at most {limit} are allowed"))
}
