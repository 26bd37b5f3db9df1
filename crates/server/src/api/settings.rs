//! The cluster's settings over HTTP.
//!
//! Owns: showing and changing them. Must not touch: their names, values and ranges, which `model::settings` declares.
//! Invariant: a change keeps every setting that it does not name, also when another change is committed at the same time.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State, http::StatusCode};
use longshore_api::Changed;
use longshore_model::{ApiErrorCode, ClusterConfig, Command, settings};

use crate::{
    api::{ApiError, ApiResult, ApiState, extract::JsonBody},
    security::auth::Caller,
};

/// How often a change is computed again after another change was committed first. Each attempt loses only to a change
/// that succeeded, so a handful is enough for people and scripts.
const ATTEMPTS: usize = 5;

pub(crate) async fn get(State(api): State<Arc<ApiState>>) -> ApiResult<BTreeMap<String, String>> {
    Ok(Json(settings::print(api.store()?.read().await?.state.config())))
}

/// Changes the named settings. The command carries the settings that the change was computed from; the state machine
/// refuses it if they changed since, and it is computed again. One command per setting was refused, because some are
/// only valid together.
pub(crate) async fn set(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    JsonBody(changes): JsonBody<BTreeMap<String, String>>,
) -> ApiResult<Changed> {
    for attempt in 1.. {
        let state = api.store()?.read().await?.state;
        let command = Command::ChangeSettings {
            expected: Box::new(state.config().clone()),
            config: Box::new(changed(state.config(), &changes)?),
        };
        let mut caller = caller.clone();
        // The answer of an attempt is stored under its key, so each attempt needs a key of its own.
        caller.key = caller.key.map(|key| key.sub_request(&format!("attempt-{attempt}")));
        match api.change(caller, command).await {
            Err(refused) if refused.code() == "settings_conflict" && attempt < ATTEMPTS => {}
            answer => return answer,
        }
    }
    unreachable!("the last attempt returns its answer")
}

fn changed(config: &ClusterConfig, changes: &BTreeMap<String, String>) -> Result<ClusterConfig, ApiError> {
    settings::changed(config, changes).map_err(|errors| {
        let message = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let refusal = ApiError::new(StatusCode::BAD_REQUEST, ApiErrorCode::RequestInvalid, message);
        match errors.iter().find_map(settings::SettingError::hint) {
            Some(hint) => refusal.with("hint", hint),
            None => refusal,
        }
    })
}
