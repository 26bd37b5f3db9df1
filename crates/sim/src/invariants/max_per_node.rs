//! A placement never puts more replicas of a service on a node than its manifest allows.
//!
//! Slots are counted, not generations: during a change two generations of one slot may share a node. A limit lowered
//! by a later manifest evicts nobody, so the rule is asked only when something is placed. What is left of a job's work that
//! has ended is none.

use std::collections::BTreeSet;

use longshore_model::{
    GroupKey, NodeName, ReplicaState, SlotKey,
    replica::{Replica, Wanted},
};
use longshore_store::State;

use super::ledger::Ledger;

pub(super) const NAME: &str = "max_per_node";

pub(super) fn check(ledger: &Ledger, state: &State, group: &GroupKey, node: &NodeName) -> Option<String> {
    let known = state.group(group)?;
    let mut limit = known.spec.placement.max_replicas_per_node?;
    // What is replaced as it was before a rollout keeps to the rule it had then.
    if let Some(held) = &known.rolling.held {
        limit = limit.max(held.spec.placement.max_replicas_per_node?);
    }
    let wanted = |slot: &SlotKey, generation| {
        known.slots.get(slot).is_some_and(|slot| {
            // What was given up for its check may run on.
            let exited = |replica: &Replica| {
                replica.state == ReplicaState::Completed || replica.details.contains_key("exit_code")
            };
            let ended = |replica: &Replica| {
                known.spec.kind.is_job() && exited(replica) && super::concurrency::has_ended(known, replica)
            };
            let counts = |replica: &Replica| replica.wanted == Wanted::Run && !ended(replica);
            slot.replicas.iter().any(|replica| replica.generation == generation && counts(replica))
        })
    };
    let slots: BTreeSet<&SlotKey> = ledger
        .tenants(node)?
        .keys()
        .filter(|tenant| tenant.group == *group && wanted(&tenant.slot, tenant.generation))
        .map(|tenant| &tenant.slot)
        .collect();
    let count = slots.len();
    (count as u64 > u64::from(limit)).then(|| format!("{node} has {count} of {group}, at most {limit} are allowed"))
}
