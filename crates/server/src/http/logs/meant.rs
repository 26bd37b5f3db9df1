//! Whose lines are meant.
//!
//! Invariant: a name is looked for once. Whoever follows looks several times a second, and must not go through every
//! replica of the cluster each time.

use longshore_api::LogQuery;
use longshore_model::{DeploymentName, GroupKey, NamespaceName, Slot, SlotKey, replica::Wanted};
use longshore_store::State as Kept;

use crate::rows;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meant {
    /// One replica, whichever of its generations runs.
    Slot(GroupKey, SlotKey),
    /// A service.
    Service(GroupKey),
    /// Every service of a deployment, also those that come later.
    Deployment(NamespaceName, DeploymentName),
}

impl Meant {
    /// Nothing where there is nothing of that name.
    pub(super) fn find(state: &Kept, query: &LogQuery) -> Option<Self> {
        // Outside `default` a replica's id has its namespace in front, which need not be said twice.
        let within = format!("{}.{}", query.namespace, query.of);
        if let Some((group, slot)) = rows::find(state, &within).or_else(|| rows::find(state, &query.of)) {
            return Some(Self::Slot(group, slot));
        }
        let (deployment, service) = match query.of.split_once('/') {
            Some((deployment, service)) => (deployment, Some(service)),
            None => (query.of.as_str(), None),
        };
        let (namespace, deployment) = (query.namespace.as_str().into(), deployment.into());
        state.deployment(&namespace, &deployment)?;
        let Some(service) = service else {
            return Some(Self::Deployment(namespace, deployment));
        };
        let key = GroupKey { namespace, deployment, service: service.into() };
        state.group(&key)?;
        Some(Self::Service(key))
    }

    pub(super) const fn namespace(&self) -> &NamespaceName {
        match self {
            Self::Slot(group, _) | Self::Service(group) => &group.namespace,
            Self::Deployment(namespace, _) => namespace,
        }
    }

    pub(super) const fn deployment(&self) -> &DeploymentName {
        match self {
            Self::Slot(group, _) | Self::Service(group) => &group.deployment,
            Self::Deployment(_, deployment) => deployment,
        }
    }

    /// Whether replicas of it shall run, also where there are none yet.
    pub(super) fn is_wanted(&self, state: &Kept) -> bool {
        match self {
            Self::Slot(..) => false,
            Self::Service(group) => state.group(group).is_some_and(|kept| kept.wanted == Wanted::Run),
            Self::Deployment(namespace, deployment) => {
                state.deployment(namespace, deployment).is_some_and(|kept| kept.wanted == Wanted::Run)
            }
        }
    }

    /// Those of them that are there by now.
    pub(super) fn slots<'s>(&'s self, state: &'s Kept) -> Vec<(&'s GroupKey, &'s Slot)> {
        match self {
            Self::Slot(group, slot) => {
                let slot = state.group(group).and_then(|kept| kept.slots.get(slot));
                slot.map(|slot| (group, slot)).into_iter().collect()
            }
            Self::Service(group) => {
                let slots = state.group(group).into_iter().flat_map(|kept| kept.slots.values());
                slots.map(|slot| (group, slot)).collect()
            }
            Self::Deployment(namespace, deployment) => {
                let groups = state.groups_of(namespace, deployment);
                groups.flat_map(|(group, kept)| kept.slots.values().map(move |slot| (group, slot))).collect()
            }
        }
    }
}
