//! Volumes: the node of each one's data, the services that mount it, and removing one.
//!
//! Owns: the rows of this answer, and the order of a removal. Must not touch: where a volume is created; a plan decides that.
//! Invariant: the data is deleted before the record, so that a volume without a record never has old data.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use longshore_agent::VolumeRemoval;
use longshore_api::{Changed, VolumeRow};
use longshore_model::{ApiErrorCode, Command, VolumeKey, VolumeName, volume::Volume};
use longshore_store::CommandError;

use crate::{
    api::{
        ApiError, ApiResult, ApiState,
        deployments::NamespaceQuery,
        extract::{PathParams, QueryParams},
    },
    node_rpc::volume_removal::{self, PeerVolumeRemoval},
    security::auth::Caller,
};

pub(crate) async fn list(State(api): State<Arc<ApiState>>) -> ApiResult<Vec<VolumeRow>> {
    let state = api.store()?.read().await?.state;
    let rows = state.volumes().map(|volume| {
        let users = state.groups().filter(|(_, group)| group.spec.volumes().any(|(key, _)| *key == volume.key));
        VolumeRow {
            namespace: volume.key.namespace.to_string(),
            name: volume.key.name.to_string(),
            deployment: volume.owner.to_string(),
            node: volume.home.to_string(),
            engine_name: engine_name(volume),
            used_by: users.map(|(group, _)| format!("{}/{}", group.deployment, group.service)).collect(),
        }
    });
    Ok(Json(rows.collect()))
}

/// What a volume is called in the engine of its node.
fn engine_name(volume: &Volume) -> String {
    let Volume { key, owner, engine_name, .. } = volume;
    let is_generated = key.name.as_str().strip_prefix(owner.as_str()).is_some_and(|rest| rest.starts_with('_'));
    match engine_name {
        Some(name) => name.clone(),
        None if is_generated => key.generated_engine_name(),
        None => key.name.to_string(),
    }
}

/// Deletes a volume that nothing uses, with its data.
pub(crate) async fn remove(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    QueryParams(scope): QueryParams<NamespaceQuery>,
) -> ApiResult<Changed> {
    let key = VolumeKey { namespace: scope.name(), name: VolumeName::from(name.as_str()) };
    let state = api.store()?.read().await?.state;
    let volume = state.volume(&key).ok_or_else(|| CommandError::UnknownVolume(key.clone()))?;
    caller.ensure_in_scope(&key.namespace, &volume.owner)?;
    if let Some(holder) = state.volume_user(&key) {
        return Err(CommandError::VolumeHeld { volume: key, holder }.into());
    }
    let request = PeerVolumeRemoval { node: volume.home.clone(), volume: engine_name(volume) };
    match volume_removal::remove(&api.ctx, &state, &request).await {
        Ok(VolumeRemoval::Removed) => api.change(caller, Command::RemoveVolume { volume: key }).await,
        Ok(VolumeRemoval::NotOurs) => Err(not_ours(&request)),
        Err(why) => Err(ApiError::new(StatusCode::BAD_GATEWAY, ApiErrorCode::NodeUnreachable, why)),
    }
}

fn not_ours(request: &PeerVolumeRemoval) -> ApiError {
    let PeerVolumeRemoval { node, volume } = request;
    let message = format!("volume `{volume}` on node `{node}` was not created by Longshore, so its data is left alone");
    let hint = format!("`docker volume rm {volume}` on that node deletes it");
    ApiError::new(StatusCode::CONFLICT, ApiErrorCode::Forbidden, message).with("hint", hint)
}
