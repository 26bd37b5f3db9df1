//! Everything that is replicated: the state, the record of who did what, and the answers already given.
//!
//! Owns: how one batch of proposals changes all three.
//! Must not touch: clocks, disk, network. Times come with the proposals.
//! Invariant: the same batches in the same order give the same machine, the same answers and the same changes.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use longshore_model::{AuditAction, AuditEvent, AuditOutcome, Command, StateIndex};
use serde::{Deserialize, Serialize};

use super::{
    Applied, Change, Fingerprint, IdempotencyKey, Novelty, Outcome, Proposal, encoding::EncodingError, record::Payload,
};
use crate::{State, audit::audited};

/// Records of who did what that are kept.
const AUDIT_KEPT: usize = 10_000;
/// Answers kept for those who ask again: at a thousand keyed requests a second, still ten seconds.
const ANSWERS_KEPT: usize = 10_000;

/// What one entry of the log asks for: items, each encoded on its own, so that whoever proposes encodes and the one
/// proposer only puts together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Batch {
    pub(crate) items: Vec<Payload>,
}

/// One proposal of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Item {
    pub(crate) proposal: Proposal,
    /// Set where a plan was too large for one entry.
    #[serde(default)]
    pub(crate) part: Option<PlanPart>,
}

/// Which part of a plan an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlanPart {
    /// The plan, by a number of the leader that cut it.
    pub(crate) plan: u64,
    pub(crate) part: u32,
    pub(crate) parts: u32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    pub(crate) state: State,
    audit: VecDeque<Arc<AuditEvent>>,
    audited: u64,
    answers: BTreeMap<IdempotencyKey, Answered>,
    /// Keys by age.
    answer_order: VecDeque<IdempotencyKey>,
}

/// An answer given under a key.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Answered {
    fingerprint: Fingerprint,
    applied: Arc<Applied>,
}

impl Machine {
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
            return Ok(self.carry_out(proposal, changes));
        };
        let fingerprint = match proposal.asked {
            Some(asked) => asked,
            None => fingerprint(&proposal.command)?,
        };
        if let Some(given) = self.answers.get(&key) {
            return Ok(given.again(fingerprint, self.state.index()));
        }
        let applied = self.carry_out(proposal, changes);
        self.remember(key, Answered { fingerprint, applied: Arc::new(applied.clone()) });
        Ok(applied)
    }

    fn carry_out(&mut self, proposal: Proposal, changes: &mut Vec<Change>) -> Applied {
        let Proposal { command, actor, at, key: _, asked: _ } = proposal;
        let audited = audited(&command);
        let outcome = match self.state.apply(command) {
            Ok(events) if events.is_empty() => Outcome::Unchanged,
            Ok(events) => {
                changes.push(Change { index: self.state.index(), events });
                Outcome::Changed
            }
            Err(refusal) => Outcome::Refused(refusal),
        };
        if let Some((action, subject)) = audited {
            let outcome = audit_outcome(action, &outcome);
            let index = self.state.index();
            self.audited += 1;
            self.record(AuditEvent { number: self.audited, index, at, actor, action, subject, outcome });
        }
        Applied { index: self.state.index(), outcome, novelty: Novelty::New, dropped: Vec::new() }
    }

    fn record(&mut self, event: AuditEvent) {
        self.audit.push_back(Arc::new(event));
        while self.audit.len() > AUDIT_KEPT {
            self.audit.pop_front();
        }
    }

    fn remember(&mut self, key: IdempotencyKey, answered: Answered) {
        self.answers.insert(key.clone(), answered);
        self.answer_order.push_back(key);
        while self.answer_order.len() > ANSWERS_KEPT
            && let Some(oldest) = self.answer_order.pop_front()
        {
            self.answers.remove(&oldest);
        }
    }

    /// Whether a request under this key has its answer.
    pub(crate) fn has_answered(&self, key: &IdempotencyKey) -> bool {
        self.answers.contains_key(key)
    }

    /// The newest records, oldest first.
    pub(crate) fn newest_audit(&self, most: usize) -> Vec<Arc<AuditEvent>> {
        self.audit.range(self.audit.len().saturating_sub(most)..).cloned().collect()
    }

    /// Records after a number, oldest first.
    pub(crate) fn audit_after(&self, number: u64, most: usize) -> Vec<Arc<AuditEvent>> {
        let forgotten = self.audited - self.audit.len() as u64;
        let skip = usize::try_from(number.saturating_sub(forgotten)).unwrap_or(usize::MAX).min(self.audit.len());
        self.audit.range(skip..).take(most).cloned().collect()
    }
}

impl Answered {
    fn again(&self, fingerprint: Fingerprint, now: StateIndex) -> Applied {
        if self.fingerprint == fingerprint {
            return Applied { novelty: Novelty::Repeated, ..Applied::clone(&self.applied) };
        }
        Applied { index: now, outcome: Outcome::KeyReused, novelty: Novelty::New, dropped: Vec::new() }
    }
}

fn audit_outcome(action: AuditAction, outcome: &Outcome) -> AuditOutcome {
    match outcome {
        Outcome::Changed => AuditOutcome::Done,
        // What was asked for happens outside of the state; that it was asked for is done.
        Outcome::Unchanged if matches!(action, AuditAction::ExecAsked | AuditAction::BackupTaken) => AuditOutcome::Done,
        Outcome::Unchanged => AuditOutcome::Unchanged,
        Outcome::Refused(refusal) => AuditOutcome::Refused(refusal.code().to_owned()),
        Outcome::KeyReused => AuditOutcome::Refused("idempotency_key_reused".to_owned()),
    }
}

fn fingerprint(command: &Command) -> Result<Fingerprint, EncodingError> {
    Ok(Fingerprint::whole(&super::encoding::encode(command)?))
}
