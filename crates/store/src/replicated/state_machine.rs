//! The replicated state machine: the state, the audit log, and the answers kept for repeated
//! requests (idempotency).
//!
//! Owns: how one batch of proposals changes all three.
//! Must not touch: clocks, disk, network. Times come with the proposals.
//! Invariant: the same batches in the same order give the same state machine, the same answers and the same changes.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use longshore_model::{Actor, AuditAction, AuditEvent, AuditOutcome, Command, StateIndex};
use serde::{Deserialize, Serialize};

use super::{
    Applied, Change, Dedup, Fingerprint, IdempotencyKey, Outcome, Proposal, encoding::EncodingError,
    fair_eviction::ActorCounts, record::Payload,
};
use crate::{
    State,
    audit::{audited, audited_event},
};

/// Audit records kept. Whoever has the most loses its oldest first.
const AUDIT_KEPT: usize = 10_000;
/// Answers kept for repeated requests: ten seconds' worth at a thousand keyed requests a second.
const ANSWERS_KEPT: usize = 10_000;

/// The contents of one log entry. Each item is encoded by its proposer, so that the group commit only concatenates
/// bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Batch {
    pub(crate) items: Vec<Payload>,
}

/// One proposal of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Item {
    pub(crate) proposal: Proposal,
    /// Set if the item is a part of a plan that was too large for one entry.
    #[serde(default)]
    pub(crate) part: Option<PlanPart>,
}

/// Which part of a plan an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlanPart {
    /// Number of the plan, counted by the leader that split it.
    pub(crate) plan: u64,
    pub(crate) part: u32,
    pub(crate) parts: u32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StateMachine {
    pub(crate) state: State,
    audit: VecDeque<Arc<AuditEvent>>,
    audited: u64,
    answers: BTreeMap<IdempotencyKey, RecordedAnswer>,
    /// Keys, oldest first.
    answer_order: VecDeque<IdempotencyKey>,
    #[serde(skip)]
    audit_counts: ActorCounts,
    #[serde(skip)]
    answer_counts: ActorCounts,
}

/// The answer to a request with an idempotency key.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct RecordedAnswer {
    fingerprint: Fingerprint,
    applied: Arc<Applied>,
    /// Who asked; unknown in answers of older versions.
    #[serde(default)]
    actor: Actor,
}

impl StateMachine {
    pub(crate) fn apply(&mut self, batch: &Batch, changes: &mut Vec<Change>) -> Result<Vec<Applied>, EncodingError> {
        batch
            .items
            .iter()
            .map(|item| {
                let item: Item = super::encoding::decode(&item.0)?;
                self.apply_one(item.proposal, changes)
            })
            .collect()
    }

    fn apply_one(&mut self, proposal: Proposal, changes: &mut Vec<Change>) -> Result<Applied, EncodingError> {
        let Some(key) = proposal.key.clone() else {
            return Ok(self.apply_command(proposal, changes));
        };
        let fingerprint = match proposal.request {
            Some(request) => request,
            None => fingerprint(&proposal.command)?,
        };
        if let Some(given) = self.answers.get(&key) {
            return Ok(given.replay(fingerprint, self.state.index()));
        }
        let actor = proposal.actor.clone();
        let applied = self.apply_command(proposal, changes);
        self.record_answer(key, RecordedAnswer { fingerprint, applied: Arc::new(applied.clone()), actor });
        Ok(applied)
    }

    fn apply_command(&mut self, proposal: Proposal, changes: &mut Vec<Change>) -> Applied {
        let Proposal { command, actor, at, key: _, request: _ } = proposal;
        let (audited, is_decision) = (audited(&command), matches!(command, Command::Commit(_)));
        let mut failures = Vec::new();
        let outcome = match self.state.apply(command) {
            Ok(events) if events.is_empty() => Outcome::Unchanged,
            Ok(events) => {
                // Others are consequences of a command that is audited itself.
                if is_decision {
                    failures.extend(events.iter().filter_map(audited_event));
                }
                changes.push(Change { index: self.state.index(), events });
                Outcome::Changed
            }
            Err(refusal) => Outcome::Refused(refusal),
        };
        let index = self.state.index();
        let event = |action, subject, outcome, code| AuditEvent {
            number: 0,
            index,
            at,
            actor: actor.clone(),
            action,
            subject,
            outcome,
            code,
        };
        if let Some((action, subject)) = audited {
            let outcome = audit_outcome(action, &outcome);
            self.record(event(action, subject, outcome, None));
        }
        for (action, subject, code) in failures {
            self.record(event(action, subject, AuditOutcome::Done, Some(code)));
        }
        Applied { index: self.state.index(), outcome, dedup: Dedup::New, dropped: Vec::new() }
    }

    /// Appends a record under the next number.
    fn record(&mut self, event: AuditEvent) {
        self.audit_counts.sync(self.audit.len(), self.audit.iter().map(|event| &event.actor));
        self.audited += 1;
        self.audit_counts.add(event.actor.clone());
        self.audit.push_back(Arc::new(AuditEvent { number: self.audited, ..event }));
        while self.audit.len() > AUDIT_KEPT
            && let Some(actor) = self.audit_counts.largest().cloned()
        {
            let oldest = self.audit.iter().position(|event| event.actor == actor).unwrap_or(0);
            self.audit.remove(oldest);
            self.audit_counts.remove(&actor);
        }
    }

    fn record_answer(&mut self, key: IdempotencyKey, answered: RecordedAnswer) {
        let Self { answers, answer_order, answer_counts, .. } = self;
        answer_counts.sync(answers.len(), answers.values().map(|answer| &answer.actor));
        answer_counts.add(answered.actor.clone());
        answers.insert(key.clone(), answered);
        answer_order.push_back(key);
        while answer_order.len() > ANSWERS_KEPT
            && let Some(actor) = answer_counts.largest().cloned()
        {
            let is_theirs = |key: &IdempotencyKey| answers.get(key).is_none_or(|answer| answer.actor == actor);
            let oldest = answer_order.iter().position(is_theirs).unwrap_or(0);
            if let Some(key) = answer_order.remove(oldest) {
                answers.remove(&key);
            }
            answer_counts.remove(&actor);
        }
    }

    /// Whether a request with this key was answered.
    pub(crate) fn has_answered(&self, key: &IdempotencyKey) -> bool {
        self.answers.contains_key(key)
    }

    /// The newest audit records, oldest first.
    pub(crate) fn newest_audit(&self, most: usize) -> Vec<Arc<AuditEvent>> {
        self.audit.range(self.audit.len().saturating_sub(most)..).cloned().collect()
    }

    /// Audit records after a number, oldest first.
    pub(crate) fn audit_after(&self, number: u64, most: usize) -> Vec<Arc<AuditEvent>> {
        let skip = self.audit.partition_point(|event| event.number <= number);
        self.audit.range(skip..).take(most).cloned().collect()
    }
}

impl RecordedAnswer {
    fn replay(&self, fingerprint: Fingerprint, now: StateIndex) -> Applied {
        if self.fingerprint == fingerprint {
            return Applied { dedup: Dedup::Repeated, ..Applied::clone(&self.applied) };
        }
        Applied { index: now, outcome: Outcome::KeyReused, dedup: Dedup::New, dropped: Vec::new() }
    }
}

fn audit_outcome(action: AuditAction, outcome: &Outcome) -> AuditOutcome {
    match outcome {
        Outcome::Changed => AuditOutcome::Done,
        // These requests take effect outside of the state, so `Unchanged` means done.
        Outcome::Unchanged if matches!(action, AuditAction::ExecRequested | AuditAction::BackupTaken) => {
            AuditOutcome::Done
        }
        Outcome::Unchanged => AuditOutcome::Unchanged,
        Outcome::Refused(refusal) => AuditOutcome::Refused(refusal.code().to_owned()),
        Outcome::KeyReused => AuditOutcome::Refused("idempotency_key_reused".to_owned()),
    }
}

fn fingerprint(command: &Command) -> Result<Fingerprint, EncodingError> {
    Ok(Fingerprint::whole(&super::encoding::encode(command)?))
}

#[cfg(test)]
mod tests {
    use longshore_model::{NodeName, Time};

    use super::*;

    fn ask(machine: &mut StateMachine, who: &str, key: &str) -> Applied {
        let command = Command::Label { node: NodeName::from("n1"), labels: BTreeMap::new() };
        let actor = Actor::Operator(who.to_owned());
        let key = Some(IdempotencyKey::new(key).unwrap());
        machine.apply_one(Proposal { command, key, request: None, actor, at: Time(1) }, &mut Vec::new()).unwrap()
    }

    #[test]
    fn a_caller_that_asks_without_end_washes_out_only_its_own_records_and_answers() {
        let mut machine = StateMachine::default();
        for number in 0..50 {
            ask(&mut machine, "ops", &format!("ops-{number}"));
        }
        for number in 0..2 * AUDIT_KEPT {
            ask(&mut machine, "tenant", &format!("tenant-{number}"));
        }
        assert_eq!((machine.audit.len(), machine.answers.len()), (AUDIT_KEPT, ANSWERS_KEPT));
        let of_ops = |event: &&Arc<AuditEvent>| event.actor == Actor::Operator("ops".to_owned());
        assert_eq!(machine.audit.iter().filter(of_ops).count(), 50);
        assert_eq!(ask(&mut machine, "ops", "ops-0").dedup, Dedup::Repeated);
        assert_eq!(ask(&mut machine, "tenant", "tenant-0").dedup, Dedup::New);
        // The same holds for a machine that was read from a snapshot.
        machine.audit_counts = ActorCounts::default();
        machine.answer_counts = ActorCounts::default();
        ask(&mut machine, "tenant", "another");
        assert_eq!(machine.audit.iter().filter(of_ops).count(), 50);
        let after = machine.audit_after(40, 3);
        assert_eq!(after.iter().map(|event| event.number).collect::<Vec<_>>(), [41, 42, 43]);
    }
}
