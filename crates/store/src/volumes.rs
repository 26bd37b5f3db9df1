//! Removing volumes.
//!
//! Owns: when a volume may be removed. Must not touch: its data, which the server has deleted on its node before.
//! Invariant: a volume that a service of a deployment mounts, or that a replica holds which was not seen stopped, is kept.

use longshore_model::{
    Event, VolumeKey,
    replica::{DesiredState, occupies},
};

use crate::{CommandError, State};

impl State {
    pub(crate) fn remove_volume(&mut self, key: &VolumeKey) -> Result<Vec<Event>, CommandError> {
        if !self.volumes.contains_key(key) {
            return Err(CommandError::UnknownVolume(key.clone()));
        }
        if let Some(holder) = self.volume_user(key) {
            return Err(CommandError::VolumeHeld { volume: key.clone(), holder });
        }
        self.volumes.remove(key);
        Ok(vec![Event::VolumeGone(key.clone())])
    }

    /// The service that mounts a volume, or the replica that still holds it.
    pub fn volume_user(&self, key: &VolumeKey) -> Option<String> {
        self.groups().find_map(|(group, known)| {
            let mounts = known.desired == DesiredState::Run && known.spec.volumes().any(|(mounted, _)| mounted == key);
            if mounts {
                return Some(format!("{}/{}", group.deployment, group.service));
            }
            known.slots.values().find_map(|slot| {
                let held = slot.replicas.iter().any(|replica| {
                    let reservation = &replica.assignment.reservation;
                    let holds = reservation.volumes.iter().any(|held| held.key == *key);
                    holds && occupies(reservation.kind, replica.state)
                });
                held.then(|| slot.key.replica_id(group))
            })
        })
    }
}
