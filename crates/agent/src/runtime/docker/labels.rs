//! The labels that record which work a container was created for.
//!
//! Owns: their names, writing and reading them.
//! Invariant: written labels are read back as the same work, and a container without all of them is not ours.

use std::{collections::HashMap, time::Duration};

use bollard::models::ContainerSummary;
use longshore_model::{Attempt, Generation, GroupKey, ReplicaKey, SlotIndex, SlotKey, Time, Work};

use super::create::hash_map;
use crate::runtime::{DEFAULT_GRACE, ExistingReplica, Handle, StopSpec};

pub(super) const CLUSTER: &str = "longshore.cluster";
pub(super) const NODE: &str = "longshore.node";
const NAMESPACE: &str = "longshore.namespace";
const DEPLOYMENT: &str = "longshore.deployment";
const SERVICE: &str = "longshore.service";
const SLOT: &str = "longshore.slot";
const REPLICA: &str = "longshore.replica";
const GENERATION: &str = "longshore.generation";
const ATTEMPT: &str = "longshore.attempt";
const REVISION: &str = "longshore.revision";
const SPEC_HASH: &str = "longshore.spec_hash";
const PLACED_AT: &str = "longshore.placed_at_ms";
const STOP_SIGNAL: &str = "longshore.stop_signal";
const STOP_GRACE: &str = "longshore.stop_grace_ms";

/// All labels of a container. Ours override the manifest's, so that a manifest cannot disown its container by accident.
pub(super) fn of_work(work: &Work, cluster_id: &str, node: &str) -> HashMap<String, String> {
    let ReplicaKey { group, slot, generation } = &work.key;
    let stop = StopSpec::of(&work.spec.container, None);
    let own = [
        (CLUSTER, cluster_id.to_owned()),
        (NODE, node.to_owned()),
        (NAMESPACE, group.namespace.to_string()),
        (DEPLOYMENT, group.deployment.to_string()),
        (SERVICE, group.service.to_string()),
        (SLOT, format_slot(slot)),
        (REPLICA, slot.replica_id(group)),
        (GENERATION, generation.to_string()),
        (ATTEMPT, work.attempt.to_string()),
        (REVISION, work.revision.to_string()),
        (SPEC_HASH, work.assignment.reservation.spec_hash.to_string()),
        (PLACED_AT, work.assignment.placed_at.0.to_string()),
        (STOP_SIGNAL, stop.signal),
        (STOP_GRACE, stop.grace.as_millis().to_string()),
    ];
    let mut labels = hash_map(&work.spec.container.labels);
    labels.extend(own.map(|(name, value)| (name.to_owned(), value)));
    labels
}

/// Label filters that match exactly one generation of one slot.
pub(super) fn of_key(key: &ReplicaKey) -> [String; 5] {
    [
        format!("{NAMESPACE}={}", key.group.namespace),
        format!("{DEPLOYMENT}={}", key.group.deployment),
        format!("{SERVICE}={}", key.group.service),
        format!("{SLOT}={}", format_slot(&key.slot)),
        format!("{GENERATION}={}", key.generation),
    ]
}

/// The replica a container was created for. `None` if a label is missing or malformed.
pub(super) fn existing(container: &ContainerSummary) -> Option<ExistingReplica> {
    let labels = container.labels.as_ref()?;
    let grace =
        labels.get(STOP_GRACE).and_then(|millis| millis.parse().ok()).map_or(DEFAULT_GRACE, Duration::from_millis);
    Some(ExistingReplica {
        key: key(labels)?,
        attempt: Attempt(labels.get(ATTEMPT)?.parse().ok()?),
        spec_hash: labels.get(SPEC_HASH)?.clone(),
        placed_at: labels.get(PLACED_AT).and_then(|at| at.parse().ok()).map(Time),
        handle: Handle(container.id.clone()?),
        stop: StopSpec { signal: labels.get(STOP_SIGNAL)?.clone(), grace },
    })
}

pub(super) fn key(labels: &HashMap<String, String>) -> Option<ReplicaKey> {
    let text = |name: &str| labels.get(name).map(String::as_str);
    let group = GroupKey {
        namespace: text(NAMESPACE)?.into(),
        deployment: text(DEPLOYMENT)?.into(),
        service: text(SERVICE)?.into(),
    };
    let generation = Generation(text(GENERATION)?.parse().ok()?);
    Some(ReplicaKey { group, slot: parse_slot(text(SLOT)?)?, generation })
}

fn format_slot(slot: &SlotKey) -> String {
    match slot {
        SlotKey::Index(index) => format!("index:{index}"),
        SlotKey::Node(node) => format!("node:{node}"),
    }
}

fn parse_slot(slot: &str) -> Option<SlotKey> {
    match slot.split_once(':')? {
        ("index", index) => Some(SlotKey::Index(SlotIndex(index.parse().ok()?))),
        ("node", node) => Some(SlotKey::Node(node.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longshore_model::ServiceSpec;

    use super::*;
    use crate::desired_work::tests::work;

    fn container(labels: HashMap<String, String>) -> ContainerSummary {
        ContainerSummary { id: Some("abc".to_owned()), labels: Some(labels), ..ContainerSummary::default() }
    }

    #[test]
    fn written_labels_are_read_back() {
        let mut work = work(3, 2);
        for slot in [SlotKey::Index(SlotIndex(3)), SlotKey::Node("n:1".into())] {
            work.key.slot = slot;
            let existing = existing(&container(of_work(&work, "c1", "n1"))).unwrap();
            assert!(existing.matches(&work), "{existing:?}");
        }
    }

    #[test]
    fn a_container_of_a_previous_incarnation_of_the_slot_does_not_match() {
        let before = work(3, 1);
        let mut now = work(3, 1);
        now.assignment.placed_at = Time(5000);
        assert!(!existing(&container(of_work(&before, "c1", "n1"))).unwrap().matches(&now));
        let mut older = of_work(&before, "c1", "n1");
        older.remove(PLACED_AT);
        assert!(existing(&container(older)).unwrap().matches(&now), "an older agent did not write it");
    }

    #[test]
    fn a_manifest_cannot_override_the_ownership_labels() {
        let mut work = work(0, 1);
        let mut spec = ServiceSpec::default();
        spec.container.labels.insert(CLUSTER.to_owned(), "mine".to_owned());
        spec.container.labels.insert("team".to_owned(), "a".to_owned());
        work.spec = Arc::new(spec);
        let labels = of_work(&work, "c1", "n1");
        assert_eq!((labels[CLUSTER].as_str(), labels["team"].as_str()), ("c1", "a"));
    }

    #[test]
    fn a_container_without_one_of_the_labels_is_not_ours() {
        let all = of_work(&work(0, 1), "c1", "n1");
        for name in [NAMESPACE, DEPLOYMENT, SERVICE, SLOT, GENERATION, ATTEMPT, SPEC_HASH, STOP_SIGNAL] {
            let mut labels = all.clone();
            labels.remove(name);
            assert_eq!(existing(&container(labels)), None, "without {name}");
        }
    }
}
