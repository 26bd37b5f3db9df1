//! The audit log.

use longshore_model::{self as model, Actor, AuditEvent};
use serde::{Deserialize, Serialize};

use crate::AuditOutcome;

/// One audit record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Counted from 1, without gaps.
    pub number: u64,
    /// The state it led to, or was refused in.
    pub index: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who acted: `system`, `operator/NAME` or `node/NAME`.
    pub actor: String,
    /// What was done.
    pub action: String,
    /// What it was done to.
    pub subject: String,
    /// `done`, `unchanged` or `refused`.
    pub outcome: AuditOutcome,
    /// The error code, if it was refused; or the code of the failure that led to it.
    pub code: Option<String>,
}

impl From<&AuditEvent> for AuditEntry {
    fn from(event: &AuditEvent) -> Self {
        let actor = match &event.actor {
            Actor::System => "system".to_owned(),
            Actor::Operator(name) => format!("operator/{name}"),
            Actor::Node(node) => format!("node/{node}"),
        };
        let (outcome, code) = match &event.outcome {
            model::AuditOutcome::Done => (AuditOutcome::Done, event.code.clone()),
            model::AuditOutcome::Unchanged => (AuditOutcome::Unchanged, event.code.clone()),
            model::AuditOutcome::Refused(code) => (AuditOutcome::Refused, Some(code.clone())),
        };
        Self {
            number: event.number,
            index: event.index.0,
            at_ms: event.at.0,
            actor,
            action: event.action.as_str().to_owned(),
            subject: event.subject.clone(),
            outcome,
            code,
        }
    }
}
