//! The cluster's settings over HTTP.
//!
//! Owns: showing and changing them. Must not touch: what they are called and which make sense, which `compose` says.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State, http::StatusCode};
use longshore_api::Changed;
use longshore_compose::settings;
use longshore_model::{Command, RequestCode};

use super::{Answer, Desk, Refusal, caller::Caller, extract::Body};

pub(super) async fn get(State(desk): State<Arc<Desk>>) -> Answer<BTreeMap<String, String>> {
    Ok(Json(settings::print(desk.store()?.read().await?.state.config())))
}

/// What is not named stays as it is. Two operators who change settings in the same instant may undo one another's, and each
/// sees what holds when asking: a command per setting was refused, because some are only right together.
pub(super) async fn set(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Body(wanted): Body<BTreeMap<String, String>>,
) -> Answer<Changed> {
    let state = desk.store()?.read().await?.state;
    let config = settings::changed(state.config(), &wanted).map_err(|problems| {
        let message = problems.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>().join("; ");
        let refusal = Refusal::new(StatusCode::BAD_REQUEST, RequestCode::RequestInvalid, message);
        match problems.iter().find_map(|problem| problem.hint.clone()) {
            Some(hint) => refusal.with("hint", hint),
            None => refusal,
        }
    })?;
    desk.change(caller, Command::Configure(config)).await
}
