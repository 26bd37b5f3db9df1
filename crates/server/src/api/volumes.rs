//! Volumes: the node of each one's data, and the services that mount it.
//!
//! Owns: the rows of this answer. Must not touch: where a volume is created; a plan decides that.

use std::sync::Arc;

use axum::{Json, extract::State};
use longshore_api::VolumeRow;

use crate::api::{ApiResult, ApiState};

pub(crate) async fn list(State(api): State<Arc<ApiState>>) -> ApiResult<Vec<VolumeRow>> {
    let state = api.store()?.read().await?.state;
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
