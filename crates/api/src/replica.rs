//! Replicas, as last reported.

use std::collections::BTreeMap;

use longshore_model::{
    self as model, BoundPort, GroupKey, RuntimeCode, Slot,
    replica::{self, DesiredState, Detail, Details},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Code, ReplicaState};

/// One generation of a slot, or a slot without one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// Its printed id.
    pub id: String,
    /// Its namespace.
    pub namespace: String,
    /// Its deployment.
    pub deployment: String,
    /// Its service.
    pub service: String,
    /// Its node, if it has one.
    pub node: Option<String>,
    /// Its state.
    pub state: ReplicaState,
    /// Why it is in that state, or has no node.
    pub code: Option<Code>,
    /// Details of the code.
    pub details: BTreeMap<String, Value>,
    /// Generation: grows with every placement of the slot.
    pub generation: u32,
    /// Attempt: grows with every restart of the generation.
    pub attempt: u32,
    /// The revision it was created from.
    pub revision: u64,
    /// Restarts in this generation.
    pub restarts: u32,
    /// When the state began, in milliseconds since 1970; absent while it has no node.
    pub since_ms: Option<u64>,
    /// Its overlay address.
    pub address: Option<String>,
    /// When it starts again by itself although its restarts are exhausted, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returns_at_ms: Option<u64>,
    /// Whether it ended and is not started again with the same spec: it completed, or failed for good.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
}

impl Replica {
    /// A generation on its node.
    pub fn placed(group: &GroupKey, slot: &Slot, seen: &replica::Replica) -> Self {
        Self {
            node: Some(seen.assignment.node.to_string()),
            state: shown(seen).into(),
            code: seen.code.map(Code::from),
            details: particulars(&seen.details),
            generation: seen.generation.0,
            attempt: seen.attempt.0,
            revision: seen.assignment.reservation.revision.0,
            restarts: seen.restarts,
            since_ms: Some(seen.since.0),
            address: Some(seen.assignment.address.to_string()),
            ..Self::waiting(group, slot)
        }
    }

    /// The ports that the engine has bound for it, on its node.
    pub fn bound_ports(&self) -> Vec<BoundPort> {
        let entries = self.details.get("ports").and_then(Value::as_array).into_iter().flatten();
        entries.filter_map(|entry| BoundPort::parse(entry.as_str()?)).collect()
    }

    /// The same row with the reason that keeps it on its node, which the node itself cannot know.
    #[must_use]
    pub fn kept_by(mut self, code: RuntimeCode, details: &Details) -> Self {
        self.code = Some(code.into());
        // Address and ports stay valid.
        self.details.extend(particulars(details));
        self
    }

    /// A slot without a node.
    pub fn waiting(group: &GroupKey, slot: &Slot) -> Self {
        Self {
            id: slot.key.replica_id(group),
            namespace: group.namespace.to_string(),
            deployment: group.deployment.to_string(),
            service: group.service.to_string(),
            node: None,
            state: ReplicaState::Pending,
            code: slot.waiting.map(Code::from),
            details: particulars(&slot.waiting_details),
            generation: slot.newest.0,
            attempt: 0,
            revision: 0,
            restarts: 0,
            since_ms: None,
            address: None,
            returns_at_ms: None,
            ended: false,
        }
    }

    /// A slot without a node because its deployment was stopped.
    pub fn stopped(group: &GroupKey, slot: &Slot) -> Self {
        Self { state: ReplicaState::Stopped, code: None, details: BTreeMap::new(), ..Self::waiting(group, slot) }
    }
}

/// The state to show. A replica that should stop counts as draining from that decision on: its node reports it a little
/// later, and load balancers must not wait for that.
fn shown(seen: &replica::Replica) -> model::ReplicaState {
    match (seen.desired, seen.state) {
        (
            DesiredState::Stop,
            model::ReplicaState::Pending
            | model::ReplicaState::Pulling
            | model::ReplicaState::Starting
            | model::ReplicaState::Running
            | model::ReplicaState::Degraded
            | model::ReplicaState::Draining,
        ) => model::ReplicaState::Draining,
        (
            DesiredState::Stop,
            seen @ (model::ReplicaState::Stopped
            | model::ReplicaState::Failed
            | model::ReplicaState::Completed
            | model::ReplicaState::Lost),
        )
        | (DesiredState::Run, seen) => seen,
    }
}

/// The model's details as JSON.
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

    use longshore_model::{
        Assignment, Attempt, Generation, Time,
        replica::{Reservation, RestartHistory},
    };

    use super::*;

    fn seen(desired: DesiredState, state: model::ReplicaState) -> replica::Replica {
        replica::Replica {
            generation: Generation(1),
            attempt: Attempt(0),
            assignment: Assignment {
                node: "n1".into(),
                address: Ipv6Addr::LOCALHOST,
                placed_at: Time(0),
                reservation: Arc::new(Reservation::default()),
                devices: BTreeMap::new(),
            },
            desired,
            state,
            code: None,
            details: Details::new(),
            since: Time(0),
            failures: 0,
            restarts: 0,
            history: RestartHistory::default(),
            before_loss: None,
            replaced_by: None,
        }
    }

    #[test]
    fn a_replica_that_should_stop_is_draining_until_its_node_reports_the_end() {
        let word = |desired, state| shown(&seen(desired, state)).as_str();
        assert_eq!(word(DesiredState::Run, model::ReplicaState::Running), "running");
        assert_eq!(word(DesiredState::Stop, model::ReplicaState::Running), "draining");
        assert_eq!(word(DesiredState::Stop, model::ReplicaState::Starting), "draining");
        assert_eq!(word(DesiredState::Stop, model::ReplicaState::Failed), "failed");
        assert_eq!(word(DesiredState::Stop, model::ReplicaState::Lost), "lost");
    }
}
