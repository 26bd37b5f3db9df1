//! Who did what.

use longshore_model::{Actor, AuditEvent, AuditOutcome};
use serde::{Deserialize, Serialize};

/// One record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Counted from 1, without gaps.
    pub number: u64,
    /// The state it led to, or was refused in.
    pub index: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who: `system`, `operator/NAME` or `node/NAME`.
    pub actor: String,
    /// What.
    pub action: String,
    /// To whom.
    pub subject: String,
    /// `done`, `unchanged` or `refused`.
    pub outcome: String,
    /// The code of a refusal.
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
            AuditOutcome::Done => ("done", None),
            AuditOutcome::Unchanged => ("unchanged", None),
            AuditOutcome::Refused(code) => ("refused", Some(code.clone())),
        };
        Self {
            number: event.number,
            index: event.index.0,
            at_ms: event.at.0,
            actor,
            action: event.action.as_str().to_owned(),
            subject: event.subject.clone(),
            outcome: outcome.to_owned(),
            code,
        }
    }
}
