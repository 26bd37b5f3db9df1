//! Replicas, as they were last seen.

use std::collections::BTreeMap;

use longshore_model::{
    GroupKey, ReplicaState, RuntimeCode, Slot,
    replica::{self, Detail, Details, Wanted},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One generation of a slot, or a slot that has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// Its printed id.
    pub id: String,
    /// Scope.
    pub namespace: String,
    /// Its deployment.
    pub deployment: String,
    /// Its service.
    pub service: String,
    /// Its node, if it has one.
    pub node: Option<String>,
    /// Its state.
    pub state: String,
    /// Why it is in that state, or why it has no node.
    pub code: Option<String>,
    /// Particulars of the code.
    pub details: BTreeMap<String, Value>,
    /// Which decision about the slot.
    pub generation: u32,
    /// Which start of it.
    pub attempt: u32,
    /// The manifest it follows.
    pub revision: u64,
    /// Restarts in this generation.
    pub restarts: u32,
    /// When the state began, in milliseconds since 1970; nothing while it waits for a node.
    pub since_ms: Option<u64>,
    /// Its overlay address.
    pub address: Option<String>,
}

impl Replica {
    /// A generation on its node.
    pub fn placed(group: &GroupKey, slot: &Slot, seen: &replica::Replica) -> Self {
        Self {
            node: Some(seen.assignment.node.to_string()),
            state: shown(seen).as_str().to_owned(),
            code: seen.code.map(RuntimeCode::code).map(str::to_owned),
            details: particulars(&seen.details),
            generation: seen.generation.0,
            attempt: seen.attempt.0,
            revision: seen.assignment.terms.revision.0,
            restarts: seen.restarts,
            since_ms: Some(seen.since.0),
            address: Some(seen.assignment.address.to_string()),
            ..Self::waiting(group, slot)
        }
    }

    /// The same, kept on its node by something its node cannot know.
    #[must_use]
    pub fn kept_by(mut self, code: RuntimeCode, details: &Details) -> Self {
        self.code = Some(code.code().to_owned());
        // Where it is reached stays true.
        self.details.extend(particulars(details));
        self
    }

    /// A slot without a node.
    pub fn waiting(group: &GroupKey, slot: &Slot) -> Self {
        Self {
            id: slot.key.printed(group),
            namespace: group.namespace.to_string(),
            deployment: group.deployment.to_string(),
            service: group.service.to_string(),
            node: None,
            state: "pending".to_owned(),
            code: slot.waiting.map(|reason| reason.code().to_owned()),
            details: particulars(&slot.waiting_details),
            generation: slot.newest.0,
            attempt: 0,
            revision: 0,
            restarts: 0,
            since_ms: None,
            address: None,
        }
    }
}

/// What it was last seen in; one that shall stop is draining from the moment that was decided. Its node says so a little
/// later, and whoever sends it requests must not wait for that.
fn shown(seen: &replica::Replica) -> ReplicaState {
    match (seen.wanted, seen.state) {
        (
            Wanted::Stop,
            ReplicaState::Pending
            | ReplicaState::Pulling
            | ReplicaState::Starting
            | ReplicaState::Running
            | ReplicaState::Degraded
            | ReplicaState::Draining,
        ) => ReplicaState::Draining,
        (
            Wanted::Stop,
            seen @ (ReplicaState::Stopped | ReplicaState::Failed | ReplicaState::Completed | ReplicaState::Lost),
        )
        | (Wanted::Run, seen) => seen,
    }
}

/// The model's particulars as JSON.
pub(crate) fn particulars(details: &Details) -> BTreeMap<String, Value> {
    let value = |detail: &Detail| match detail {
        Detail::Number(number) => Value::from(*number),
        Detail::Text(text) => Value::from(text.as_str()),
        Detail::List(list) => Value::from(list.clone()),
    };
    details.iter().map(|(name, detail)| (name.clone(), value(detail))).collect()
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv6Addr, sync::Arc};

    use longshore_model::{Assignment, Attempt, Generation, Time, replica::Terms};

    use super::*;

    fn seen(wanted: Wanted, state: ReplicaState) -> replica::Replica {
        replica::Replica {
            generation: Generation(1),
            attempt: Attempt(0),
            assignment: Assignment {
                node: "n1".into(),
                address: Ipv6Addr::LOCALHOST,
                placed_at: Time(0),
                terms: Arc::new(Terms::default()),
                devices: BTreeMap::new(),
            },
            wanted,
            state,
            code: None,
            details: Details::new(),
            since: Time(0),
            failures: 0,
            restarts: 0,
            before_loss: None,
            rival: None,
        }
    }

    #[test]
    fn what_shall_stop_is_draining_before_its_node_says_so_and_ended_once_it_has() {
        let word = |wanted, state| shown(&seen(wanted, state)).as_str();
        assert_eq!(word(Wanted::Run, ReplicaState::Running), "running");
        assert_eq!(word(Wanted::Stop, ReplicaState::Running), "draining");
        assert_eq!(word(Wanted::Stop, ReplicaState::Starting), "draining");
        assert_eq!(word(Wanted::Stop, ReplicaState::Failed), "failed");
        assert_eq!(word(Wanted::Stop, ReplicaState::Lost), "lost");
    }
}
