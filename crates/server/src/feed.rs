//! The work of one node, as a snapshot and as changes after it.
//!
//! Owns: which generations are a node's work, and what of that is news to it.
//! Must not touch: how it travels. Invariant: only services something happened to are looked at again, so that a busy
//! cluster costs a quiet node nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{
    Cursor, Desired, GroupKey, NodeName, RevisionNumber, ServiceSpec, StateIndex, Work, WorkFeed, WorkKey,
    event::Subject,
    replica::{Replica, Wanted},
};
use longshore_store::{Revision, State, replicated::Change};

/// What a node was told.
#[derive(Debug)]
pub(crate) struct NodeFeed {
    node: NodeName,
    told: BTreeMap<WorkKey, Work>,
}

impl NodeFeed {
    /// Everything there is for a node.
    pub(crate) fn open(node: NodeName, state: &State) -> (Self, WorkFeed) {
        let groups: BTreeSet<&GroupKey> = state.replicas().map(|(group, _, _)| group).collect();
        let work = groups.into_iter().flat_map(|group| work_of(state, group, &node));
        let told: BTreeMap<WorkKey, Work> = work.map(|work| (work.key.clone(), work)).collect();
        let snapshot =
            WorkFeed::Snapshot { cursor: cursor(state, state.index()), work: told.values().cloned().collect() };
        (Self { node, told }, snapshot)
    }

    /// What changed for the node up to `through`. The state may be newer: what it holds beyond is said early, and is no
    /// news when its turn comes.
    pub(crate) fn news(&mut self, state: &State, through: StateIndex, heard: &[Arc<Change>]) -> Option<WorkFeed> {
        let (mut changed, mut gone) = (Vec::new(), Vec::new());
        for group in touched(heard) {
            let now: BTreeMap<WorkKey, Work> =
                work_of(state, &group, &self.node).into_iter().map(|work| (work.key.clone(), work)).collect();
            gone.extend(self.told.keys().filter(|key| key.group == group && !now.contains_key(key)).cloned());
            changed.extend(now.into_values().filter(|work| self.told.get(&work.key) != Some(work)));
        }
        for key in &gone {
            self.told.remove(key);
        }
        self.told.extend(changed.iter().map(|work| (work.key.clone(), work.clone())));
        let news = !changed.is_empty() || !gone.is_empty();
        news.then(|| WorkFeed::Changes { cursor: cursor(state, through), changed, gone })
    }
}

/// A cluster that began again counts its indices on from an older one, and is newer all the same.
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
        let key = WorkKey { group: key.clone(), slot: slot.key.clone(), generation: replica.generation };
        work(state, key, &group.spec, replica)
    })
    .collect()
}

fn work(state: &State, key: WorkKey, newest: &Arc<ServiceSpec>, replica: &Replica) -> Work {
    let number = replica.assignment.terms.revision;
    let revision = revision(state, &key.group, number);
    let spec = revision.and_then(|kept| kept.spec.services.get(&key.group.service)).unwrap_or(newest);
    Work {
        attempt: replica.attempt,
        revision: number,
        spec: Arc::clone(spec),
        assignment: replica.assignment.clone(),
        desired: match replica.wanted {
            Wanted::Run => Desired::Run,
            Wanted::Stop => Desired::Stop { grace: None },
        },
        networks: revision.map(|kept| kept.spec.networks.clone()).unwrap_or_default(),
        volumes: revision.map(|kept| kept.spec.volumes.clone()).unwrap_or_default(),
        key,
    }
}

/// The manifest a generation follows, while it is kept.
fn revision<'a>(state: &'a State, group: &GroupKey, number: RevisionNumber) -> Option<&'a Revision> {
    state.deployment(&group.namespace, &group.deployment)?.revision(number)
}
