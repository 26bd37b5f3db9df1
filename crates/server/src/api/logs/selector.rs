//! Which replicas a log query selects.
//!
//! Invariant: the name is resolved once. A stream looks several times a second and must not scan every replica each
//! time.

use longshore_api::LogQuery;
use longshore_model::{DeploymentName, GroupKey, NamespaceName, Slot, SlotKey, replica::DesiredState};
use longshore_store::State as ClusterState;

use crate::api::views;

/// What the name in a log query selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogSelector {
    /// One replica, in all its generations.
    Slot(GroupKey, SlotKey),
    /// A service.
    Service(GroupKey),
    /// Every service of a deployment, also those added later.
    Deployment(NamespaceName, DeploymentName),
}

impl LogSelector {
    /// Resolves the name; `None` if nothing has it.
    pub(crate) fn find(state: &ClusterState, query: &LogQuery) -> Option<Self> {
        // Outside `default`, a printed id starts with its namespace, which the caller may leave out.
        let within = format!("{}.{}", query.namespace, query.of);
        if let Some((group, slot)) = views::find(state, &within).or_else(|| views::find(state, &query.of)) {
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

    pub(crate) const fn namespace(&self) -> &NamespaceName {
        match self {
            Self::Slot(group, _) | Self::Service(group) => &group.namespace,
            Self::Deployment(namespace, _) => namespace,
        }
    }

    pub(crate) const fn deployment(&self) -> &DeploymentName {
        match self {
            Self::Slot(group, _) | Self::Service(group) => &group.deployment,
            Self::Deployment(_, deployment) => deployment,
        }
    }

    /// Whether it should have replicas, even if there are none yet.
    pub(crate) fn is_desired(&self, state: &ClusterState) -> bool {
        match self {
            Self::Slot(..) => false,
            Self::Service(group) => state.group(group).is_some_and(|kept| kept.desired == DesiredState::Run),
            Self::Deployment(namespace, deployment) => {
                state.deployment(namespace, deployment).is_some_and(|kept| kept.desired == DesiredState::Run)
            }
        }
    }

    /// The selected slots that exist now.
    pub(crate) fn slots<'s>(&'s self, state: &'s ClusterState) -> Vec<(&'s GroupKey, &'s Slot)> {
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
