//! What must never happen, whatever the scenario: one file per rule.
//!
//! Owns: the [`ShadowState`] the rules are checked on, which shares nothing with the scheduler's view on purpose.
//! Must not touch: the run. A violation is recorded, and the run goes on.
//! Invariant: a rule reads only the shadow state and the state; the scheduler's view is used only to check that it could
//! be rebuilt.

mod address;
mod concurrency;
mod converged;
mod dependencies;
mod devices;
mod disk;
mod drained;
mod eligible;
mod evacuated;
mod explained;
mod fencing;
mod generations;
mod global;
mod held_version;
mod host_ports;
mod leader_change_diverges;
mod max_per_node;
mod memory;
mod moves;
pub(crate) mod quiet;
mod rebuilt;
mod rolled_back;
mod rollout_availability;
mod rollout_goes_on;
mod rollout_step_proven;
mod runs_on_lost_node;
mod shadow_state;
mod slot_count;
mod slot_index_unique;
mod stays_paused;
mod stopped;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{GroupKey, Node, NodeName, Plan, Time, replica::DesiredState, settings::Preemption};
use longshore_scheduler::View;
use longshore_store::State;
use serde::Serialize;

use self::shadow_state::{Occupants, Transitions};
pub(crate) use self::{rebuilt::view_from_state, shadow_state::ShadowState};
use crate::virtual_node::VirtualNode;

/// Violations kept. A run that breaks a rule at every event would fill memory, and the first cases are enough to debug.
const MOST_KEPT: usize = 100;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Violation {
    /// When it was first seen, in virtual milliseconds.
    pub at_ms: u64,
    /// The name of the rule.
    pub invariant: &'static str,
    /// What broke it.
    pub message: String,
}

/// The violations so far, each message once per rule.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    known: BTreeSet<(&'static str, String)>,
    list: Vec<Violation>,
}

impl Violations {
    fn add(&mut self, now: Time, invariant: &'static str, message: String) {
        if self.list.len() < MOST_KEPT && self.known.insert((invariant, message.clone())) {
            self.list.push(Violation { at_ms: now.0, invariant, message });
        }
    }

    fn extend(&mut self, now: Time, invariant: &'static str, messages: impl IntoIterator<Item = String>) {
        for message in messages {
            self.add(now, invariant, message);
        }
    }

    pub(crate) fn into_list(self) -> Vec<Violation> {
        self.list
    }
}

/// A rule about one node and the replicas that occupy it.
type NodeRule = (&'static str, fn(&Node, &Occupants) -> Vec<String>);

const NODE_RULES: &[NodeRule] = &[
    (memory::NAME, memory::check),
    (disk::NAME, disk::check),
    (devices::NAME, devices::check),
    (host_ports::NAME, host_ports::check),
];

impl ShadowState {
    /// Checks everything the last events dirty.
    pub(crate) fn check(&mut self, state: &State, now: Time, violations: &mut Violations) {
        let dirty = self.take_dirty();
        for name in &dirty.nodes {
            let (Some(node), Some(occupants)) = (state.node(name), self.occupants(name)) else { continue };
            for (rule, check) in NODE_RULES {
                violations.extend(now, rule, check(node, occupants));
            }
            violations.extend(
                now,
                address::NAME,
                address::check_node(node, self.addresses_of(name), state.config().address_plan()),
            );
        }
        violations.extend(
            now,
            address::NAME,
            dirty.addresses.iter().filter_map(|address| address::check_unique(self, *address)),
        );
        violations.extend(
            now,
            volumes::NAME,
            dirty.volumes.iter().flat_map(|volume| volumes::check(self, state, volume)),
        );
        for (group, node) in &dirty.placed {
            violations.extend(now, max_per_node::NAME, max_per_node::check(self, state, group, node));
        }
        Self::check_transitions(state, &dirty.transitions, now, violations);
        let goes_on = |begun| rollout_goes_on::check(state, self.failed_again(), begun);
        violations.extend(now, rollout_goes_on::NAME, dirty.transitions.begun.iter().filter_map(goes_on));
        violations.extend(now, held_version::NAME, dirty.transitions.held);
        violations.extend(now, stays_paused::NAME, self.check_paused(state));
        violations.extend(now, moves::NAME, dirty.bad_moves);
        violations.extend(now, slot_index_unique::NAME, dirty.reused_indices);
        for (group, slot) in &dirty.slots {
            violations.extend(now, generations::NAME, generations::check(state, group, slot));
            violations.extend(now, global::NAME, global::check(state, group, slot));
        }
    }

    fn check_transitions(state: &State, transitions: &Transitions, now: Time, violations: &mut Violations) {
        // A replica stopped to make room for one of higher priority was not stopped by a rollout.
        let by_rollout = transitions.stopped.iter().filter(|key| !may_be_preempted(state, &key.group));
        violations.extend(
            now,
            rollout_availability::NAME,
            by_rollout.filter_map(|key| rollout_availability::check(state, key, now)),
        );
        for key in &transitions.started {
            violations.extend(
                now,
                concurrency::NAME,
                state.group(key).and_then(|group| concurrency::check(key, group)),
            );
        }
        for (group, slot, rollout) in &transitions.stepped {
            violations.extend(
                now,
                rollout_step_proven::NAME,
                rollout_step_proven::check(state, group, slot, *rollout, now),
            );
        }
        let back = transitions
            .rolled_back
            .iter()
            .flat_map(|(namespace, name)| rolled_back::check_back(state, namespace, name));
        violations.extend(now, rolled_back::NAME, back.chain(transitions.retried.iter().cloned()));
    }

    /// Checks every node, address, volume and slot once more on a shadow state built from the final state, and that it
    /// equals the one built from the events.
    pub(crate) fn check_everything(self, state: &State, now: Time, violations: &mut Violations) {
        let mut fresh = Self::default();
        for event in state.events() {
            fresh.apply(&event, state);
        }
        fresh.clear_transitions();
        fresh.check(state, now, violations);
        if fresh.comparable() != self.comparable() {
            violations.add(now, "events", "the events do not add up to the state".to_owned());
        }
    }
}

/// Whether some other service has enough priority to preempt this one. Whether it did is known to the scheduler alone.
fn may_be_preempted(state: &State, key: &GroupKey) -> bool {
    let Some(group) = state.group(key) else { return false };
    let mut others = state.groups().filter(|(_, other)| other.desired == DesiredState::Run);
    let allowed = state.config().preemption == Preemption::On;
    allowed && others.any(|(_, other)| other.spec.priority >= group.spec.priority.saturating_add(10))
}

/// Checks a plan against the state it was made from.
pub(crate) fn check_decision(state: &State, plan: &Plan, now: Time, violations: &mut Violations) {
    violations.extend(now, eligible::NAME, eligible::check(state, plan));
    violations.extend(now, drained::NAME, drained::check(state, plan));
    violations.extend(now, dependencies::NAME, dependencies::check(state, plan));
}

/// Checks that a view rebuilt from the state decides and explains like the one that followed the events.
pub(crate) fn check_rebuilt(state: &State, view: &mut View, now: Time, violations: &mut Violations) {
    violations.extend(now, rebuilt::NAME, rebuilt::check(state, view, now));
}

/// Checks what really runs on the nodes, whatever the state says of them.
pub(crate) fn check_virtual_nodes(
    state: &State,
    virtual_nodes: &BTreeMap<NodeName, VirtualNode>,
    now: Time,
    violations: &mut Violations,
) {
    violations.extend(now, fencing::NAME, fencing::check(state, virtual_nodes));
}

/// Checks that a leader that takes over now makes the same plan.
pub(crate) fn check_leader_change(state: &State, plan: &Plan, now: Time, violations: &mut Violations) {
    violations.extend(now, leader_change_diverges::NAME, leader_change_diverges::check(state, plan, now));
}

/// Checks what must hold once the cluster has come to rest.
pub(crate) fn check_rest(
    state: &State,
    virtual_nodes: &BTreeMap<NodeName, VirtualNode>,
    now: Time,
    violations: &mut Violations,
) {
    violations.extend(now, converged::NAME, converged::check(state, virtual_nodes));
}

/// Records that a plan was still made after the cluster should have come to rest.
pub(crate) fn report_not_quiet(last_plan: Time, now: Time, violations: &mut Violations) {
    violations.add(now, quiet::NAME, quiet::message(last_plan));
}

/// Checks what must hold once the plan of a pass was committed.
pub(crate) fn check_settled(state: &State, now: Time, violations: &mut Violations) {
    violations.extend(now, runs_on_lost_node::NAME, runs_on_lost_node::check(state));
    violations.extend(now, evacuated::NAME, evacuated::check(state, now));
    for (key, group) in state.groups() {
        violations.extend(now, explained::NAME, explained::check(state, key, group));
        violations.extend(now, stopped::NAME, stopped::check(state, key, group));
        violations.extend(now, slot_count::NAME, slot_count::check(state, key, group));
    }
}

#[cfg(test)]
mod tests;
