//! The last rollout of each deployment, and which groups still have work in it.
//!
//! Owns: that record. Must not touch: what follows from it.
//! Invariant: a group not listed in `unfinished` was decided since the rollout changed and had nothing left to do; so a
//! pass visits the dirty groups only, never all groups of a deployment.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{
    DeploymentName, Generation, GroupKey, NamespaceName, Rollout, ServiceName, replica::Details,
    rollout::RolloutFailure, service::FailureAction,
};

use super::{GroupIx, View};

/// A rollout and the groups with work left in it.
#[derive(Debug)]
pub(crate) struct RolloutProgress {
    pub(crate) rollout: Arc<Rollout>,
    pub(crate) unfinished: BTreeMap<GroupIx, GroupProgress>,
}

/// A group's progress in the rollout of its deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupProgress {
    /// Steps are under way or still to come.
    Working,
    /// Its canaries have changed; the other slots wait for promotion.
    AwaitsPromotion,
    /// More of its steps failed than its policy tolerates.
    TooManyFailures { failure: RolloutFailure, action: FailureAction },
    /// It has no work left.
    Finished,
}

impl View {
    /// The live rollout that a group is part of.
    pub(crate) fn rollout_of(&self, key: &GroupKey) -> Option<&Arc<Rollout>> {
        let group = self.rollouts.get(&(key.namespace.clone(), key.deployment.clone()))?;
        Some(&group.rollout).filter(|rollout| rollout.is_live())
    }

    /// The groups of a deployment.
    pub(crate) fn groups_of(
        &self,
        namespace: &NamespaceName,
        deployment: &DeploymentName,
    ) -> impl Iterator<Item = GroupIx> {
        let first =
            GroupKey { namespace: namespace.clone(), deployment: deployment.clone(), service: ServiceName::from("") };
        let (namespace, deployment) = (namespace.clone(), deployment.clone());
        let of_it = move |key: &GroupKey| key.namespace == namespace && key.deployment == deployment;
        self.group_ids.range(first..).take_while(move |(key, _)| of_it(key)).map(|(_, ix)| *ix)
    }

    /// Whether the deployment of a group was stopped.
    pub(crate) fn is_stopped(&self, key: &GroupKey) -> bool {
        !self.stopped.is_empty() && self.stopped.contains(&(key.namespace.clone(), key.deployment.clone()))
    }

    /// Forgets a removed deployment.
    pub(super) fn deployment_gone(&mut self, namespace: &NamespaceName, deployment: &DeploymentName) {
        let owner = (namespace.clone(), deployment.clone());
        self.rollouts.remove(&owner);
        self.stopped.remove(&owner);
    }

    /// Records that a deployment was stopped: its slots wait for nothing but the operator.
    pub(super) fn deployment_stopped(&mut self, namespace: &NamespaceName, deployment: &DeploymentName) {
        self.stopped.insert((namespace.clone(), deployment.clone()));
        for group in self.groups_of(namespace, deployment).collect::<Vec<_>>() {
            for slot in &mut self.group_mut(group).slots {
                slot.waiting = None;
                slot.waiting_details = Details::new();
            }
            self.waiting.remove(&group);
            self.dirty.insert(group);
        }
    }

    /// Records that a deployment shall run again.
    pub(super) fn deployment_started(&mut self, namespace: &NamespaceName, deployment: &DeploymentName) {
        self.stopped.remove(&(namespace.clone(), deployment.clone()));
        for group in self.groups_of(namespace, deployment).collect::<Vec<_>>() {
            for slot in &mut self.group_mut(group).slots {
                slot.starts_again = Some(Generation(slot.newest.0 + 1));
            }
            self.dirty.insert(group);
        }
        self.rollouts_due.insert((namespace.clone(), deployment.clone()));
    }

    /// Records a changed rollout. Every group of the deployment becomes dirty.
    pub(super) fn rollout_changed(
        &mut self,
        namespace: &NamespaceName,
        deployment: &DeploymentName,
        rollout: &Arc<Rollout>,
    ) {
        let groups: BTreeSet<GroupIx> = self.groups_of(namespace, deployment).collect();
        let unfinished = if rollout.is_live() {
            groups.iter().map(|group| (*group, GroupProgress::Working)).collect()
        } else {
            BTreeMap::new()
        };
        let key = (namespace.clone(), deployment.clone());
        self.rollouts.insert(key.clone(), RolloutProgress { rollout: Arc::clone(rollout), unfinished });
        self.rollouts_due.insert(key);
        self.dirty.extend(groups);
    }

    /// Records a group's progress, if its deployment has a live rollout.
    pub(crate) fn set_group_progress(&mut self, key: &GroupKey, group: GroupIx, progress: GroupProgress) {
        let owner = (key.namespace.clone(), key.deployment.clone());
        let Some(rollout) = self.rollouts.get_mut(&owner).filter(|known| known.rollout.is_live()) else { return };
        match progress {
            GroupProgress::Finished => {
                rollout.unfinished.remove(&group);
            }
            GroupProgress::Working | GroupProgress::AwaitsPromotion | GroupProgress::TooManyFailures { .. } => {
                rollout.unfinished.insert(group, progress);
            }
        }
        self.rollouts_due.insert(owner);
    }
}
