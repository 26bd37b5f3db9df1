//! Named volumes: the home node of each and which generations hold it.
//!
//! Owns: homes and holders. Invariant: a holder is listed from its placement until it is observed stopped.

use std::collections::BTreeMap;

use longshore_model::{DeploymentName, NodeName, SlotGeneration, VolumeKey, volume::Sharing};

use super::GroupIx;

/// All volumes with a home or a holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Volumes {
    entries: BTreeMap<VolumeKey, VolumeEntry>,
}

/// One volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeEntry {
    /// By name: the data stays on its node, whether the node is in the cluster or not.
    pub(crate) home: Option<NodeName>,
    pub(crate) owner: Option<DeploymentName>,
    pub(crate) holders: Vec<Holder>,
}

/// A generation that holds a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder {
    pub(crate) group: GroupIx,
    pub(crate) key: SlotGeneration,
    pub(crate) sharing: Sharing,
}

impl Volumes {
    pub(crate) fn get(&self, key: &VolumeKey) -> Option<&VolumeEntry> {
        self.entries.get(key)
    }

    pub(crate) fn set_home(&mut self, key: &VolumeKey, owner: &DeploymentName, home: &NodeName) {
        let entry = self.entries.entry(key.clone()).or_default();
        entry.home = Some(home.clone());
        entry.owner = Some(owner.clone());
    }

    pub(crate) fn clear_home(&mut self, key: &VolumeKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.home = None;
            entry.owner = None;
        }
        self.drop_if_unused(key);
    }

    pub(crate) fn hold(&mut self, key: &VolumeKey, holder: Holder) {
        let holders = &mut self.entries.entry(key.clone()).or_default().holders;
        if let Err(at) = holders.binary_search(&holder) {
            holders.insert(at, holder);
        }
    }

    pub(crate) fn release(&mut self, key: &VolumeKey, holder: &Holder) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.holders.retain(|other| other != holder);
        }
        self.drop_if_unused(key);
    }

    fn drop_if_unused(&mut self, key: &VolumeKey) {
        if self.entries.get(key).is_some_and(|entry| entry.home.is_none() && entry.holders.is_empty()) {
            self.entries.remove(key);
        }
    }
}
