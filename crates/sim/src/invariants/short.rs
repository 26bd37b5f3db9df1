//! A rollout takes no more replicas away than it may: where the new generation goes first none, else `parallelism`.
//!
//! Looked at whenever a running generation of a stepping slot is told to stop: a newer one of the slot has run for the
//! monitor time, or an older one serves as it did before, or the old one had to go first and no more slots than
//! `parallelism` are without.

use std::time::Duration;

use longshore_model::{
    ReplicaState, Rollout, RuntimeCode, Slot, SlotKey, Time,
    replica::{Replica, Wanted},
    rollout::{StepKind, StepOutcome},
    service::{PortMode, UpdateOrder, UpdatePolicy},
};
use longshore_store::{Group, State};

use super::ledger::Tenant;

pub(super) const NAME: &str = "short";

/// How long room is waited for before the old one goes first.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn check(state: &State, stopped: &Tenant, now: Time) -> Option<String> {
    let Tenant { group: key, slot, generation } = stopped;
    let group = state.group(key).filter(|group| group.wanted == Wanted::Run)?;
    let rollout = state.deployment(&key.namespace, &key.deployment)?.rollout.as_ref()?;
    let known = group.slots.get(slot)?;
    if known.wanted == Wanted::Stop {
        return renamed_too_soon(group, rollout, known, now).map(|short| format!("{key} {short}"));
    }
    let steps = |slot: &Slot| slot.step.filter(|step| step.rollout == rollout.number && step.kind == StepKind::Changed);
    let step = steps(known)?;
    let policy = super::stepped::policy(group, rollout);
    // Once it is over, what moves proves itself as in any move; the plan that ended it may still have judged by its own rule.
    let monitor = if rollout.is_live() { policy.monitor } else { policy.monitor.min(group.spec.update.monitor) };
    let proved = |replica: &Replica| replica.since.after(monitor) <= now;
    let serves = |replica: &Replica| runs(replica) && (replica.generation < *generation || proved(replica));
    if known.replicas.iter().any(serves) {
        return None;
    }
    let printed = slot.printed(key);
    if step.outcome != StepOutcome::UnderWay || !goes_first(group, policy, now) {
        return Some(format!("{printed} was stopped before its successor had proved itself"));
    }
    // A slot that is not wanted any more, as its node is down or drained, is short of nothing.
    let wanted = group.slots.values().filter(|slot| slot.wanted == Wanted::Run);
    let stepping = wanted.filter(|slot| steps(slot).is_some_and(|it| it.outcome == StepOutcome::UnderWay));
    let short = stepping.filter(|slot| !slot.replicas.iter().any(runs)).count();
    let too_many = policy.parallelism != 0 && short > policy.parallelism as usize;
    too_many.then(|| format!("{short} slots of {key} are short, {} may be", policy.parallelism))
}

/// Looks at a service that becomes global, or stops to be, when one of its slots that are named as before goes: with those left
/// and those that have come it has as many as are wanted, or `parallelism` fewer where the old go first.
fn renamed_too_soon(group: &Group, rollout: &Rollout, closed: &Slot, now: Time) -> Option<String> {
    let is_old = |slot: &Slot| matches!(slot.key, SlotKey::Node(_)) != group.spec.kind.is_per_node();
    let is_job = |slot: &Slot| slot.replicas.iter().any(|replica| replica.assignment.terms.kind.is_job());
    if !is_old(closed) || is_job(closed) || group.spec.kind.is_job() {
        return None;
    }
    let has_come = |slot: &Slot| match slot.step.filter(|step| step.rollout == rollout.number) {
        Some(step) if step.outcome != StepOutcome::UnderWay => true,
        Some(step) if step.kind == StepKind::Added => false,
        // It had come before, and changes now.
        Some(_) | None => slot.replicas.iter().any(|replica| runs(replica) || is_given_up(group, replica)),
    };
    let (old, new): (Vec<&Slot>, Vec<&Slot>) =
        group.slots.values().filter(|slot| slot.wanted == Wanted::Run).partition(|slot| is_old(slot));
    let wanted = if group.spec.kind.is_per_node() { new.len() } else { group.spec.replicas as usize };
    let there = old.len() + new.into_iter().filter(|slot| has_come(slot)).count();
    let policy = super::stepped::policy(group, rollout);
    let short = wanted.saturating_sub(there);
    let may_be = if goes_first(group, policy, now) { policy.parallelism as usize } else { 0 };
    let unlimited = goes_first(group, policy, now) && policy.parallelism == 0;
    (short > may_be && !unlimited).then(|| format!("is short of {short} as it changes its mode, {may_be} may be"))
}

/// Whether one was given up and gets no other chance by being changed.
fn is_given_up(group: &Group, replica: &Replica) -> bool {
    let terms = &replica.assignment.terms;
    let is_as_wanted = (&terms.spec_hash, terms.restart_epoch) == (&group.spec.spec_hash, group.restart_epoch);
    is_as_wanted && replica.wanted == Wanted::Run && replica.code == Some(RuntimeCode::RestartExhausted)
}

fn runs(replica: &Replica) -> bool {
    replica.wanted == Wanted::Run && replica.state == ReplicaState::Running
}

/// Whether the old generation may have to go first.
fn goes_first(group: &Group, policy: &UpdatePolicy, now: Time) -> bool {
    let spec = &group.spec;
    let host_port = spec.ports.iter().any(|port| port.mode == PortMode::Host);
    let asked = [policy.order, spec.update.order].contains(&Some(UpdateOrder::StopFirst));
    let waited = group.rolling.no_room_since.is_some_and(|since| since.after(PATIENCE) <= now);
    asked || host_port || spec.volumes().next().is_some() || waited
}
