//! The work of this node as the control plane last sent it.
//!
//! Owns: the cursor rule, and the difference that a message of the feed makes.
//! Must not touch: what runs. This is the desired state, never the observed one.
//! Invariant: the cursor never goes back, and a stale message changes nothing.

use std::collections::BTreeMap;

use longshore_model::{Cursor, ReplicaKey, Work, WorkFeed};
use serde::{Deserialize, Serialize};

/// The work of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DesiredWork {
    cursor: Option<Cursor>,
    // A list on disk, because the key of a JSON object must be a string.
    #[serde(with = "as_list")]
    work: BTreeMap<ReplicaKey, Work>,
}

/// What a message changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FeedOutcome {
    /// Nothing: the message is older than what is known.
    Stale,
    /// The work was updated.
    Applied {
        /// New or different work.
        changed: Vec<Work>,
        /// Keys that are no longer this node's work.
        gone: Vec<ReplicaKey>,
    },
}

impl DesiredWork {
    pub(crate) fn cursor(&self) -> Option<Cursor> {
        self.cursor
    }

    pub(crate) fn work(&self) -> impl Iterator<Item = &Work> {
        self.work.values()
    }

    pub(crate) fn get(&self, key: &ReplicaKey) -> Option<&Work> {
        self.work.get(key)
    }

    pub(crate) fn apply(&mut self, message: WorkFeed) -> FeedOutcome {
        match message {
            // A snapshot with the known cursor is not stale: it proves that nothing was missed.
            WorkFeed::Snapshot { cursor, .. } if self.cursor > Some(cursor) => FeedOutcome::Stale,
            WorkFeed::Snapshot { cursor, work } => {
                self.cursor = Some(cursor);
                let work: BTreeMap<_, _> = work.into_iter().map(|work| (work.key.clone(), work)).collect();
                let old = std::mem::replace(&mut self.work, work);
                let gone = old.keys().filter(|key| !self.work.contains_key(key)).cloned().collect();
                let changed = self.work.values().filter(|work| old.get(&work.key) != Some(work)).cloned().collect();
                FeedOutcome::Applied { changed, gone }
            }
            WorkFeed::Changes { cursor, .. } if self.cursor >= Some(cursor) => FeedOutcome::Stale,
            WorkFeed::Changes { cursor, changed, gone } => {
                self.cursor = Some(cursor);
                for key in &gone {
                    self.work.remove(key);
                }
                for work in &changed {
                    self.work.insert(work.key.clone(), work.clone());
                }
                FeedOutcome::Applied { changed, gone }
            }
        }
    }
}

mod as_list {
    use super::{BTreeMap, Deserialize, ReplicaKey, Serialize, Work};

    pub(super) fn serialize<S: serde::Serializer>(work: &BTreeMap<ReplicaKey, Work>, to: S) -> Result<S::Ok, S::Error> {
        work.values().collect::<Vec<_>>().serialize(to)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<ReplicaKey, Work>, D::Error> {
        let list = Vec::<Work>::deserialize(from)?;
        Ok(list.into_iter().map(|work| (work.key.clone(), work)).collect())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{net::Ipv6Addr, sync::Arc};

    use longshore_model::{
        Assignment, Attempt, Desired, Generation, GroupKey, NodeName, RevisionNumber, ServiceSpec, SlotIndex, SlotKey,
        StateIndex, Time,
    };

    use super::*;

    pub(crate) fn work(index: u32, generation: u32) -> Work {
        let group = GroupKey { namespace: "default".into(), deployment: "shop".into(), service: "web".into() };
        let slot = SlotKey::Index(SlotIndex(index));
        Work {
            granted: None,
            key: ReplicaKey { group, slot, generation: Generation(generation) },
            attempt: Attempt(0),
            revision: RevisionNumber(1),
            spec: Arc::new(ServiceSpec::default()),
            assignment: Assignment {
                node: NodeName::from("n1"),
                address: Ipv6Addr::LOCALHOST,
                placed_at: Time(0),
                reservation: Arc::default(),
                devices: BTreeMap::new(),
            },
            desired: Desired::Run,
            networks: BTreeMap::new(),
            volumes: BTreeMap::new(),
        }
    }

    fn at(index: u64) -> Cursor {
        Cursor { incarnation: 0, index: StateIndex(index) }
    }

    fn keys(desired: &DesiredWork) -> Vec<String> {
        desired.work().map(|work| work.key.to_string()).collect()
    }

    #[test]
    fn a_snapshot_tells_which_work_is_gone() {
        let mut desired = DesiredWork::default();
        desired.apply(WorkFeed::Snapshot { cursor: at(1), work: vec![work(0, 1), work(1, 1)] });
        let outcome = desired.apply(WorkFeed::Snapshot { cursor: at(2), work: vec![work(1, 1), work(2, 1)] });
        assert_eq!(outcome, FeedOutcome::Applied { changed: vec![work(2, 1)], gone: vec![work(0, 1).key] });
    }

    #[test]
    fn stale_messages_of_a_lagging_server_change_nothing() {
        let mut desired = DesiredWork::default();
        desired.apply(WorkFeed::Snapshot { cursor: at(10), work: vec![work(0, 2)] });
        let before = desired.clone();
        assert_eq!(desired.apply(WorkFeed::Snapshot { cursor: at(9), work: vec![] }), FeedOutcome::Stale);
        let old = WorkFeed::Changes { cursor: at(10), changed: vec![], gone: vec![work(0, 2).key] };
        assert_eq!(desired.apply(old), FeedOutcome::Stale);
        assert_eq!(desired, before);
    }

    #[test]
    fn newer_changes_are_applied() {
        let mut desired = DesiredWork::default();
        desired.apply(WorkFeed::Snapshot { cursor: at(10), work: vec![work(0, 1)] });
        desired.apply(WorkFeed::Changes { cursor: at(11), changed: vec![work(0, 2)], gone: vec![work(0, 1).key] });
        assert_eq!(keys(&desired), ["shop-web-0 g2"]);
    }

    #[test]
    fn serialised_work_is_read_back() {
        let mut desired = DesiredWork::default();
        desired.apply(WorkFeed::Snapshot { cursor: at(3), work: vec![work(0, 1), work(7, 4)] });
        let text = serde_json::to_vec(&desired).unwrap();
        assert_eq!(serde_json::from_slice::<DesiredWork>(&text).unwrap(), desired);
    }
}
