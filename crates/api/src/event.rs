//! Events for watchers.
//!
//! Owns: the public name of each kind of event, and its fields.
//! Must not touch: specs and secrets. An event names its subject; a client that wants more asks for it.

use longshore_model::{self as model, GroupKey, RuntimeCode, SlotKey, event::Subject};
use serde::{Deserialize, Serialize};

/// What one command changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Index of the state it led to; watching from here misses nothing.
    pub index: u64,
    /// What happened, in order.
    pub events: Vec<Event>,
}

/// One event of a replica's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Index of the state it led to.
    pub index: u64,
    /// When, in milliseconds since 1970; absent for an event that follows from the one before.
    pub at_ms: Option<u64>,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

impl HistoryEntry {
    /// An entry for an event about the replica; `None` for other events.
    pub fn of(group: &GroupKey, replica: &str, index: u64, event: &model::Event) -> Option<Self> {
        if !matches!(event.subject(), Subject::Service(about) if about == group) {
            return None;
        }
        let told = Event::from(event);
        let at = if let model::Event::Placed { assignment, .. } = event {
            Some(assignment.placed_at)
        } else if let model::Event::Observed { at, .. } | model::Event::Released { at, .. } = event {
            Some(*at)
        } else {
            None
        };
        (told.replica.as_deref() == Some(replica)).then(|| Self { index, at_ms: at.map(|at| at.0), event: told })
    }
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Kind of the event.
    pub kind: String,
    /// The namespace, for events about a deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The deployment it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    /// The service it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The replica it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
    /// The node it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The generation it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// The attempt it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The new state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The code of the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl From<&model::Event> for Event {
    fn from(event: &model::Event) -> Self {
        let mut told = Self { kind: kind(event).to_owned(), ..Self::default() };
        match event.subject() {
            Subject::Cluster => {}
            Subject::Deployment(namespace, deployment) => {
                told.namespace = Some(namespace.to_string());
                told.deployment = Some(deployment.to_string());
            }
            Subject::Service(group) => {
                told.namespace = Some(group.namespace.to_string());
                told.deployment = Some(group.deployment.to_string());
                told.service = Some(group.service.to_string());
            }
        }
        told.about_node(event);
        told.about_slot(event);
        told
    }
}

impl Event {
    fn replica(&mut self, group: &GroupKey, slot: &SlotKey) {
        self.replica = Some(slot.replica_id(group));
    }

    /// Fields of events about nodes, rollouts and rebalancing; other events have none of these.
    fn about_node(&mut self, event: &model::Event) {
        if let model::Event::NodeChanged(node) = event {
            let node = crate::Node::from(&**node);
            (self.node, self.state) = (Some(node.name), Some(format!("{}/{}", node.intent, node.health)));
        } else if let model::Event::NodeGone(node)
        | model::Event::NodeRemoved { node, .. }
        | model::Event::NodeForgotten(node)
        | model::Event::FailureCounted { node, .. }
        | model::Event::AddressCoolingDown { node, .. } = event
        {
            self.node = Some(node.to_string());
        } else if let model::Event::RolloutChanged { rollout, .. } = event {
            self.state = Some(rollout.state.as_str().to_owned());
        } else if let model::Event::Rebalanced(moved) = event {
            self.replica(&moved.key.group, &moved.key.slot);
            (self.node, self.generation) = (Some(moved.to.to_string()), Some(moved.key.generation.0));
        }
    }

    /// Fields of events about slots; other events have none of these.
    fn about_slot(&mut self, event: &model::Event) {
        if let model::Event::SlotOpened { group, slot, .. }
        | model::Event::SlotStepped { group, slot, .. }
        | model::Event::SlotWaits { group, slot, .. }
        | model::Event::SlotClosing { group, slot }
        | model::Event::SlotGone { group, slot }
        | model::Event::Rescheduled { group, slot, .. } = event
        {
            self.replica(group, slot);
        }
        // The generation that starts again is not there yet, so its event names the slot alone.
        if let model::Event::SlotStartsAgain(key) = event {
            self.replica(&key.group, &key.slot);
        } else if let model::Event::Placed { key, .. }
        | model::Event::Stopping(key)
        | model::Event::Restarting { key, .. }
        | model::Event::Observed { key, .. }
        | model::Event::Released { key, .. } = event
        {
            self.replica(&key.group, &key.slot);
            self.generation = Some(key.generation.0);
        }
        if let model::Event::SlotWaits { reason, .. } = event {
            self.code = Some(reason.code().to_owned());
        } else if let model::Event::Placed { assignment, .. } = event {
            self.node = Some(assignment.node.to_string());
        } else if let model::Event::Restarting { attempt, .. } = event {
            self.attempt = Some(attempt.0);
        } else if let model::Event::Observed { attempt, state, code, .. } = event {
            (self.attempt, self.state) = (Some(attempt.0), Some(state.as_str().to_owned()));
            self.code = code.map(RuntimeCode::code).map(str::to_owned);
        }
    }
}

/// Stable: watchers filter by these words. Add words, never rename one.
const fn kind(event: &model::Event) -> &'static str {
    match event {
        model::Event::Configured(_) => "configured",
        model::Event::NodeChanged(_) => "node_changed",
        model::Event::NodeGone(_) => "node_gone",
        model::Event::NodeRemoved { .. } => "node_removed",
        model::Event::NodeForgotten(_) => "node_forgotten",
        model::Event::EvacuationChanged(_) => "evacuation_changed",
        model::Event::GroupChanged { .. } => "service_changed",
        model::Event::GroupRolloutChanged { .. } => "service_rolls",
        model::Event::RolloutChanged { .. } => "rollout_changed",
        model::Event::DeploymentGone { .. } => "deployment_gone",
        model::Event::DeploymentStopped { .. } => "deployment_stopped",
        model::Event::SlotStartsAgain(_) => "replica_starts_again",
        model::Event::DeploymentStarted { .. } => "deployment_started",
        model::Event::GroupRemoved(_) => "service_unwanted",
        model::Event::GroupGone(_) => "service_gone",
        model::Event::SlotOpened { .. } => "replica_opened",
        model::Event::SlotStepped { .. } => "replica_stepped",
        model::Event::SlotWaits { .. } => "replica_waits",
        model::Event::SlotClosing { .. } => "replica_closing",
        model::Event::SlotGone { .. } => "replica_gone",
        model::Event::Placed { .. } => "placed",
        model::Event::Rebalanced(_) => "rebalanced",
        model::Event::EvenOutRequested(_) => "even_out_asked",
        model::Event::EvenOutDone(_) => "evened_out",
        model::Event::Stopping(_) => "stopping",
        model::Event::Restarting { .. } => "restarting",
        model::Event::Rescheduled { .. } => "rescheduled",
        model::Event::Collected { .. } => "collected",
        model::Event::Observed { .. } => "observed",
        model::Event::Released { .. } => "released",
        model::Event::FailureCounted { .. } => "failure_counted",
        model::Event::AddressCoolingDown { .. } => "address_resting",
        model::Event::VolumeCreated(_) => "volume_made",
        model::Event::VolumeGone(_) => "volume_gone",
        model::Event::SecretSet { .. } => "secret_set",
        model::Event::SecretGone { .. } => "secret_gone",
        model::Event::QuotaSet { .. } => "quota_set",
        model::Event::AccessChanged => "access_changed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_its_subject_and_nothing_it_is_not_about() {
        let group = GroupKey { namespace: "default".into(), deployment: "shop".into(), service: "web".into() };
        let slot = SlotKey::Index(model::SlotIndex(2));
        let stopping = model::Event::Stopping(group.replica(&slot, model::Generation(3)));
        let json = serde_json::to_string(&Event::from(&stopping)).unwrap();
        let expected = r#"{"kind":"stopping","namespace":"default","deployment":"shop","service":"web","replica":"shop-web-2","generation":3}"#;
        assert_eq!(json, expected);
    }
}
