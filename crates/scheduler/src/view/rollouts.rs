//! Rollouts as the scheduler knows them, and which groups still have work in each.
//!
//! Owns: the record of every deployment's last rollout. Must not touch: what follows from it.
//! Invariant: a group that is not listed as unfinished was asked since the rollout changed and had nothing left to do; so a
//! pass looks at the groups that are dirty, never at all of a deployment's.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{
    DeploymentName, GroupKey, NamespaceName, Rollout, ServiceName, rollout::RolloutFailure, service::FailureAction,
};

use super::{GroupIx, View};

/// A rollout and who still has work in it.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) rollout: Arc<Rollout>,
    pub(crate) unfinished: BTreeMap<GroupIx, Standing>,
}

/// What a group still has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Steps are under way or to come.
    Working,
    /// Its first slots have changed; the others wait for a word.
    Holds,
    /// More of its steps failed than are tolerated.
    Broken { failure: RolloutFailure, action: FailureAction },
    /// Nothing.
    Finished,
}

impl View {
    /// The rollout under way that a group is part of.
    pub(crate) fn rollout_of(&self, key: &GroupKey) -> Option<&Arc<Rollout>> {
        let known = self.rollouts.get(&(key.namespace.clone(), key.deployment.clone()))?;
        Some(&known.rollout).filter(|rollout| rollout.is_live())
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

    /// Every group of the deployment may have to change, or to stop changing.
    pub(super) fn rollout_changed(
        &mut self,
        namespace: &NamespaceName,
        deployment: &DeploymentName,
        rollout: &Arc<Rollout>,
    ) {
        let groups: BTreeSet<GroupIx> = self.groups_of(namespace, deployment).collect();
        let unfinished = if rollout.is_live() {
            groups.iter().map(|group| (*group, Standing::Working)).collect()
        } else {
            BTreeMap::new()
        };
        let key = (namespace.clone(), deployment.clone());
        self.rollouts.insert(key.clone(), Known { rollout: Arc::clone(rollout), unfinished });
        self.rollouts_due.insert(key);
        self.dirty.extend(groups);
    }

    /// A group came, went or was asked: it has work in a rollout, or none any more.
    pub(crate) fn stand(&mut self, key: &GroupKey, group: GroupIx, standing: Standing) {
        let owner = (key.namespace.clone(), key.deployment.clone());
        let Some(known) = self.rollouts.get_mut(&owner).filter(|known| known.rollout.is_live()) else { return };
        match standing {
            Standing::Finished => {
                known.unfinished.remove(&group);
            }
            Standing::Working | Standing::Holds | Standing::Broken { .. } => {
                known.unfinished.insert(group, standing);
            }
        }
        self.rollouts_due.insert(owner);
    }
}
