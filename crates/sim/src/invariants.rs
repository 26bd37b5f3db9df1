//! What must never happen, whatever the scenario: one file per rule.
//!
//! Owns: the ledger the rules are checked on, kept apart from the scheduler's own books on purpose.
//! Must not touch: the run. A broken rule is written down, and the run goes on.
//! Invariant: a rule looks only at what events told the ledger and at the state; the scheduler's view is asked only
//! whether it could be rebuilt.

mod address;
mod concurrency;
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
mod host_ports;
mod indices;
mod ledger;
mod max_per_node;
mod memory;
mod moves;
pub(crate) mod quiet;
mod rebuilt;
mod rest;
mod rolled_back;
mod short;
mod slot_count;
mod stepped;
mod succession;
mod tenure;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{GroupKey, Node, NodeName, Plan, Time, config::Preemption, replica::Wanted};
use longshore_scheduler::View;
use longshore_store::State;
use serde::Serialize;

use self::ledger::{Changes, Tenants};
pub(crate) use self::{ledger::Ledger, rebuilt::from_state};
use crate::machine::Machine;

/// A run that breaks a rule at every event would fill memory; the first cases are what anybody reads.
const MOST_KEPT: usize = 100;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Violation {
    /// When it was first seen.
    pub at_ms: u64,
    /// Which rule.
    pub invariant: &'static str,
    /// How.
    pub message: String,
}

/// The rules broken so far, each case once.
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

    pub(crate) fn into_list(self) -> Vec<Violation> {
        self.list
    }
}

/// A rule about one node and what is on it.
type NodeRule = (&'static str, fn(&Node, &Tenants) -> Vec<String>);

const NODE_RULES: &[NodeRule] = &[
    (memory::NAME, memory::check),
    (disk::NAME, disk::check),
    (devices::NAME, devices::check),
    (host_ports::NAME, host_ports::check),
];

impl Ledger {
    /// Checks everything the last events touched.
    pub(crate) fn check(&mut self, state: &State, now: Time, violations: &mut Violations) {
        let touched = self.take_touched();
        for name in &touched.nodes {
            let (Some(node), Some(tenants)) = (state.node(name), self.tenants(name)) else { continue };
            for (rule, check) in NODE_RULES {
                for message in check(node, tenants) {
                    violations.add(now, rule, message);
                }
            }
            for message in address::check_node(node, self.addresses_of(name), state.config().cluster_prefix) {
                violations.add(now, address::NAME, message);
            }
        }
        for message in touched.addresses.iter().filter_map(|address| address::check_unique(self, *address)) {
            violations.add(now, address::NAME, message);
        }
        for message in touched.volumes.iter().flat_map(|volume| volumes::check(self, state, volume)) {
            violations.add(now, volumes::NAME, message);
        }
        for (group, node) in &touched.placed {
            if let Some(message) = max_per_node::check(self, state, group, node) {
                violations.add(now, max_per_node::NAME, message);
            }
        }
        Self::check_changes(state, &touched.changes, now, violations);
        for message in touched.moved {
            violations.add(now, moves::NAME, message);
        }
        for message in touched.reopened {
            violations.add(now, indices::NAME, message);
        }
        for (group, slot) in &touched.slots {
            for message in generations::check(state, group, slot) {
                violations.add(now, generations::NAME, message);
            }
            for message in global::check(state, group, slot) {
                violations.add(now, global::NAME, message);
            }
        }
    }

    fn check_changes(state: &State, changes: &Changes, now: Time, violations: &mut Violations) {
        // Whoever is displaced for something more important is not taken away by a rollout.
        let taken_away = changes.stopped.iter().filter(|tenant| !may_be_displaced(state, &tenant.group));
        for message in taken_away.filter_map(|tenant| short::check(state, tenant, now)) {
            violations.add(now, short::NAME, message);
        }
        for key in &changes.begun {
            if let Some(message) = state.group(key).and_then(|group| concurrency::check(key, group)) {
                violations.add(now, concurrency::NAME, message);
            }
        }
        for (group, slot, rollout) in &changes.stepped {
            if let Some(message) = stepped::check(state, group, slot, *rollout, now) {
                violations.add(now, stepped::NAME, message);
            }
        }
        let back = changes.back.iter().flat_map(|(namespace, name)| rolled_back::check_back(state, namespace, name));
        for message in back.chain(changes.retried.iter().cloned()) {
            violations.add(now, rolled_back::NAME, message);
        }
    }

    /// Checks every node, address, volume and slot once more, from the state itself rather than from what was heard.
    pub(crate) fn check_everything(self, state: &State, now: Time, violations: &mut Violations) {
        let mut fresh = Self::default();
        for event in state.events() {
            fresh.take(&event, state);
        }
        fresh.forget_changes();
        fresh.check(state, now, violations);
        if fresh.books() != self.books() {
            violations.add(now, "events", "the events told another story than the state".to_owned());
        }
    }
}

/// Whether there is anybody for whom a service may be displaced. Whether it was is known to nobody but the scheduler.
fn may_be_displaced(state: &State, key: &GroupKey) -> bool {
    let Some(group) = state.group(key) else { return false };
    let mut others = state.groups().filter(|(_, other)| other.wanted == Wanted::Run);
    let allowed = state.config().preemption == Preemption::On;
    allowed && others.any(|(_, other)| other.spec.priority >= group.spec.priority.saturating_add(10))
}

/// Checks a plan against the state it was made from.
pub(crate) fn check_decision(state: &State, plan: &Plan, now: Time, violations: &mut Violations) {
    for message in eligible::check(state, plan) {
        violations.add(now, eligible::NAME, message);
    }
    for message in drained::check(state, plan) {
        violations.add(now, drained::NAME, message);
    }
    for message in dependencies::check(state, plan) {
        violations.add(now, dependencies::NAME, message);
    }
}

/// Checks that nothing the scheduler knows is known from following along only.
pub(crate) fn check_rebuilt(state: &State, view: &mut View, now: Time, violations: &mut Violations) {
    for message in rebuilt::check(state, view, now) {
        violations.add(now, rebuilt::NAME, message);
    }
}

/// Checks what really runs on the machines, whatever is believed of them.
pub(crate) fn check_machines(
    state: &State,
    machines: &BTreeMap<NodeName, Machine>,
    now: Time,
    violations: &mut Violations,
) {
    for message in fencing::check(state, machines) {
        violations.add(now, fencing::NAME, message);
    }
}

/// Checks that a leader who takes over at this very moment decides the same.
pub(crate) fn check_succession(state: &State, plan: &Plan, now: Time, violations: &mut Violations) {
    if let Some(message) = succession::check(state, plan, now) {
        violations.add(now, succession::NAME, message);
    }
}

/// Checks what must hold once nothing has happened for long.
pub(crate) fn check_rest(
    state: &State,
    machines: &BTreeMap<NodeName, Machine>,
    now: Time,
    violations: &mut Violations,
) {
    for message in rest::check(state, machines) {
        violations.add(now, rest::NAME, message);
    }
}

/// Notes that something was still being decided when all should have been quiet.
pub(crate) fn not_quiet(last_plan: Time, now: Time, violations: &mut Violations) {
    violations.add(now, quiet::NAME, quiet::message(last_plan));
}

/// Checks what must hold once a pass has been carried out.
pub(crate) fn check_settled(state: &State, now: Time, violations: &mut Violations) {
    for message in tenure::check(state) {
        violations.add(now, tenure::NAME, message);
    }
    for message in evacuated::check(state, now) {
        violations.add(now, evacuated::NAME, message);
    }
    for (key, group) in state.groups() {
        for message in explained::check(state, key, group) {
            violations.add(now, explained::NAME, message);
        }
        if let Some(message) = slot_count::check(key, group) {
            violations.add(now, slot_count::NAME, message);
        }
    }
}

#[cfg(test)]
mod tests;
