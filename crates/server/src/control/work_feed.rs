//! The work of one node, as a snapshot and then as changes.
//!
//! Owns: which generations are a node's work, and which of them changed.
//! Must not touch: the transport. Invariant: only services with events are looked at again, so that a busy cluster
//! costs an unaffected node nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{
    Cursor, Desired, GroupKey, NodeName, ReplicaKey, RevisionNumber, ServiceSpec, StateIndex, Work, WorkFeed,
    event::Subject,
    replica::{DesiredState, Replica},
};
use longshore_store::{Revision, State, replicated::Change};

/// What was sent to a node.
#[derive(Debug)]
pub(crate) struct NodeFeed {
    node: NodeName,
    sent: BTreeMap<ReplicaKey, Work>,
}

impl NodeFeed {
    /// Opens a feed: the snapshot of all work of a node.
    pub(crate) fn open(node: NodeName, state: &State) -> (Self, WorkFeed) {
        let groups: BTreeSet<&GroupKey> = state.replicas().map(|(group, _, _)| group).collect();
        let work = groups.into_iter().flat_map(|group| work_of(state, group, &node));
        let sent: BTreeMap<ReplicaKey, Work> = work.map(|work| (work.key.clone(), work)).collect();
        let snapshot =
            WorkFeed::Snapshot { cursor: cursor(state, state.index()), work: sent.values().cloned().collect() };
        (Self { node, sent }, snapshot)
    }

    /// What changed for the node up to `through`. The state may be newer: what it holds beyond is sent early, and is
    /// not sent again later.
    pub(crate) fn next_changes(
        &mut self,
        state: &State,
        through: StateIndex,
        since: &[Arc<Change>],
    ) -> Option<WorkFeed> {
        let (mut changed, mut gone) = (Vec::new(), Vec::new());
        for group in touched(since) {
            let now: BTreeMap<ReplicaKey, Work> =
                work_of(state, &group, &self.node).into_iter().map(|work| (work.key.clone(), work)).collect();
            gone.extend(self.sent.keys().filter(|key| key.group == group && !now.contains_key(key)).cloned());
            changed.extend(now.into_values().filter(|work| self.sent.get(&work.key) != Some(work)));
        }
        for key in &gone {
            self.sent.remove(key);
        }
        self.sent.extend(changed.iter().map(|work| (work.key.clone(), work.clone())));
        let any = !changed.is_empty() || !gone.is_empty();
        any.then(|| WorkFeed::Changes { cursor: cursor(state, through), changed, gone })
    }
}

/// The incarnation makes a recovered cluster newer, although its indices continue from an older state.
fn cursor(state: &State, index: StateIndex) -> Cursor {
    Cursor { incarnation: state.access().incarnation(), index }
}

fn touched(changes: &[Arc<Change>]) -> BTreeSet<GroupKey> {
    let events = changes.iter().flat_map(|change| &change.events);
    let groups = events.filter_map(|event| match event.subject() {
        Subject::Service(group) => Some(group.clone()),
        Subject::Cluster | Subject::Deployment(..) => None,
    });
    groups.collect()
}

fn work_of(state: &State, key: &GroupKey, node: &NodeName) -> Vec<Work> {
    let Some(group) = state.group(key) else { return Vec::new() };
    let replicas = group.slots.values().flat_map(|slot| slot.replicas.iter().map(move |replica| (slot, replica)));
    let here = replicas.filter(|(_, replica)| replica.assignment.node == *node);
    here.map(|(slot, replica)| {
        let key = ReplicaKey { group: key.clone(), slot: slot.key.clone(), generation: replica.generation };
        work(state, key, &group.spec, replica)
    })
    .collect()
}

fn work(state: &State, key: ReplicaKey, newest: &Arc<ServiceSpec>, replica: &Replica) -> Work {
    let number = replica.assignment.reservation.revision;
    let revision = revision(state, &key.group, number);
    let spec = revision.and_then(|kept| kept.spec.services.get(&key.group.service)).unwrap_or(newest);
    Work {
        attempt: replica.attempt,
        revision: number,
        spec: Arc::clone(spec),
        assignment: replica.assignment.clone(),
        desired: match replica.desired {
            DesiredState::Run => Desired::Run,
            DesiredState::Stop => Desired::Stop { grace: None },
        },
        networks: revision.map(|kept| kept.spec.networks.clone()).unwrap_or_default(),
        volumes: revision.map(|kept| kept.spec.volumes.clone()).unwrap_or_default(),
        granted: revision.and_then(|kept| kept.spec.granted.clone()),
        key,
    }
}

/// The manifest that a generation was created from, while it is kept.
fn revision<'a>(state: &'a State, group: &GroupKey, number: RevisionNumber) -> Option<&'a Revision> {
    state.deployment(&group.namespace, &group.deployment)?.revision(number)
}
