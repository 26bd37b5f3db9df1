//! Volumes, over HTTP: where each one's data is, and who mounts it.
//!
//! Owns: the rows of this answer. Must not touch: where a volume is made, which a plan says.

use std::sync::Arc;

use axum::{Json, extract::State};
use longshore_api::VolumeRow;

use super::{Answer, Desk};

pub(super) async fn list(State(desk): State<Arc<Desk>>) -> Answer<Vec<VolumeRow>> {
    let state = desk.store()?.read().await?.state;
    let rows = state.volumes().map(|volume| {
        let users = state.groups().filter(|(_, group)| group.spec.volumes().any(|(key, _)| *key == volume.key));
        VolumeRow {
            namespace: volume.key.namespace.to_string(),
            name: volume.key.name.to_string(),
            deployment: volume.owner.to_string(),
            node: volume.home.to_string(),
            used_by: users.map(|(group, _)| format!("{}/{}", group.deployment, group.service)).collect(),
        }
    });
    Ok(Json(rows.collect()))
}
