//! How a container says whose it is.
//!
//! Owns: the names of the labels and both directions of writing them.
//! Invariant: what was written is read back as the same work, and a container without all of it is not ours.

use std::{collections::HashMap, time::Duration};

use bollard::models::ContainerSummary;
use longshore_model::{Attempt, Generation, GroupKey, SlotIndex, SlotKey, Time, Work, WorkKey};

use crate::runtime::{Ending, Found, Handle};

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

/// All labels of a container. Ours win over the manifest's: a user must not be able to disown a container by accident.
pub(super) fn of_work(work: &Work, cluster_id: &str, node: &str) -> HashMap<String, String> {
    let WorkKey { group, slot, generation } = &work.key;
    let ending = Ending::of(&work.spec.container, None);
    let own = [
        (CLUSTER, cluster_id.to_owned()),
        (NODE, node.to_owned()),
        (NAMESPACE, group.namespace.to_string()),
        (DEPLOYMENT, group.deployment.to_string()),
        (SERVICE, group.service.to_string()),
        (SLOT, written(slot)),
        (REPLICA, slot.printed(group)),
        (GENERATION, generation.to_string()),
        (ATTEMPT, work.attempt.to_string()),
        (REVISION, work.revision.to_string()),
        (SPEC_HASH, work.assignment.terms.spec_hash.to_string()),
        (PLACED_AT, work.assignment.placed_at.0.to_string()),
        (STOP_SIGNAL, ending.signal),
        (STOP_GRACE, ending.grace.as_millis().to_string()),
    ];
    let mut labels: HashMap<String, String> =
        work.spec.container.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    labels.extend(own.map(|(name, value)| (name.to_owned(), value)));
    labels
}

/// Filters that only one generation of one slot passes.
pub(super) fn of_key(key: &WorkKey) -> [String; 5] {
    [
        format!("{NAMESPACE}={}", key.group.namespace),
        format!("{DEPLOYMENT}={}", key.group.deployment),
        format!("{SERVICE}={}", key.group.service),
        format!("{SLOT}={}", written(&key.slot)),
        format!("{GENERATION}={}", key.generation),
    ]
}

pub(super) fn found(container: &ContainerSummary) -> Option<Found> {
    let labels = container.labels.as_ref()?;
    let grace = labels
        .get(STOP_GRACE)
        .and_then(|millis| millis.parse().ok())
        .map_or(Duration::from_secs(10), Duration::from_millis);
    Some(Found {
        key: key(labels)?,
        attempt: Attempt(labels.get(ATTEMPT)?.parse().ok()?),
        spec_hash: labels.get(SPEC_HASH)?.clone(),
        placed_at: labels.get(PLACED_AT).and_then(|at| at.parse().ok()).map(Time),
        handle: Handle(container.id.clone()?),
        ending: Ending { signal: labels.get(STOP_SIGNAL)?.clone(), grace },
    })
}

pub(super) fn key(labels: &HashMap<String, String>) -> Option<WorkKey> {
    let text = |name: &str| labels.get(name).map(String::as_str);
    let group = GroupKey {
        namespace: text(NAMESPACE)?.into(),
        deployment: text(DEPLOYMENT)?.into(),
        service: text(SERVICE)?.into(),
    };
    let generation = Generation(text(GENERATION)?.parse().ok()?);
    Some(WorkKey { group, slot: read(text(SLOT)?)?, generation })
}

fn written(slot: &SlotKey) -> String {
    match slot {
        SlotKey::Index(index) => format!("index:{index}"),
        SlotKey::Node(node) => format!("node:{node}"),
    }
}

fn read(slot: &str) -> Option<SlotKey> {
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
    use crate::book::tests::work;

    fn container(labels: HashMap<String, String>) -> ContainerSummary {
        ContainerSummary { id: Some("abc".to_owned()), labels: Some(labels), ..ContainerSummary::default() }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let mut work = work(3, 2);
        for slot in [SlotKey::Index(SlotIndex(3)), SlotKey::Node("n:1".into())] {
            work.key.slot = slot;
            let found = found(&container(of_work(&work, "c1", "n1"))).unwrap();
            assert!(found.answers(&work), "{found:?}");
        }
    }

    #[test]
    fn what_was_made_for_a_former_life_of_a_replica_is_not_taken_for_this_one() {
        let then = work(3, 1);
        let mut now = work(3, 1);
        now.assignment.placed_at = Time(5000);
        assert!(!found(&container(of_work(&then, "c1", "n1"))).unwrap().answers(&now));
        let mut unsaid = of_work(&then, "c1", "n1");
        unsaid.remove(PLACED_AT);
        assert!(found(&container(unsaid)).unwrap().answers(&now), "an older agent did not write it");
    }

    #[test]
    fn a_manifest_cannot_overwrite_whose_a_container_is() {
        let mut work = work(0, 1);
        let mut spec = ServiceSpec::default();
        spec.container.labels.insert(CLUSTER.to_owned(), "mine".to_owned());
        spec.container.labels.insert("team".to_owned(), "a".to_owned());
        work.spec = Arc::new(spec);
        let labels = of_work(&work, "c1", "n1");
        assert_eq!((labels[CLUSTER].as_str(), labels["team"].as_str()), ("c1", "a"));
    }

    #[test]
    fn a_container_that_lacks_a_label_is_not_ours() {
        let all = of_work(&work(0, 1), "c1", "n1");
        for name in [NAMESPACE, DEPLOYMENT, SERVICE, SLOT, GENERATION, ATTEMPT, SPEC_HASH, STOP_SIGNAL] {
            let mut labels = all.clone();
            labels.remove(name);
            assert_eq!(found(&container(labels)), None, "without {name}");
        }
    }
}
