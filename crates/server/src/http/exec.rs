//! A command beside a replica, talked to over the connection it was asked for on.
//!
//! Owns: which of a slot's generations is meant, and the record that somebody was there.
//! Invariant: the record is decided before the command is started, and names the replica, never the command: secrets are
//! typed into command lines. The conversation ends when the token that began it opens nothing any more.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{FromRequest as _, Request, State},
    http::{StatusCode, header},
    response::Response,
};
use hyper::upgrade::OnUpgrade;
use longshore_api::{ExecRequest, SESSION_PROTOCOL};
use longshore_model::{Command, GroupKey, ReplicaState, RequestCode, SlotKey, WorkKey, replica::Wanted};
use longshore_store::{State as Kept, replicated::Replicated};

use super::{
    Desk, Refusal,
    caller::{Caller, Proof},
    extract::{Body, Named, invalid},
};
use crate::{
    beside::{self, BesideError, Conversation, ExecWanted, Target},
    limit::Inside,
    rows,
};

/// Time between two looks at whether whoever talks still may.
const LOOK: Duration = Duration::from_millis(250);

pub(super) async fn exec(
    State(desk): State<Arc<Desk>>,
    mut caller: Caller,
    Named(replica): Named<String>,
    mut request: Request,
) -> Result<Response, Refusal> {
    let upgrade = upgrade(&mut request)?;
    let Body(wanted): Body<ExecRequest> = Body::from_request(request, &()).await?;
    if wanted.command.is_empty() {
        return Err(invalid("there is no command"));
    }
    let store = desk.store()?;
    let state = store.read().await?.state;
    // What is not theirs is not there.
    let theirs = |group: &GroupKey| caller.sees(group.namespace.as_str(), group.deployment.as_str());
    let found = rows::find(&state, &replica).filter(|(group, _)| theirs(group));
    let (group, slot) = found.ok_or_else(|| Refusal::not_found("replica", &replica))?;
    let target = running(&state, &group, &slot)
        .ok_or_else(|| failed(StatusCode::CONFLICT, format!("nothing of `{replica}` runs")))?;
    let inside = desk.followers.enter(&caller.proof.name()).ok_or_else(|| {
        let message = "too many follow something at once; end one of them first";
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, RequestCode::TooManyRequests, message)
    })?;
    let proof = caller.proof.clone();
    // Run as often as it is asked for, and on record as often.
    caller.key = None;
    desk.carry_out(caller, Command::NoteExec { group, slot }).await?;
    let conversation = beside::command(&desk.hub, &state, &ExecWanted { target, request: wanted }).await?;
    tokio::spawn(hold(conversation, upgrade, Talker { store, proof, _inside: inside }));
    Ok(switched())
}

/// The generation that serves, else the newest that is up.
fn running(state: &Kept, group: &GroupKey, slot: &SlotKey) -> Option<Target> {
    let up = |state: ReplicaState| match state {
        ReplicaState::Running => 2,
        ReplicaState::Starting | ReplicaState::Degraded | ReplicaState::Draining => 1,
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Stopped
        | ReplicaState::Failed
        | ReplicaState::Completed
        | ReplicaState::Lost => 0,
    };
    let replicas = state.group(group)?.slots.get(slot)?.replicas.iter().filter(|replica| up(replica.state) > 0);
    let best = replicas.max_by_key(|it| (it.wanted == Wanted::Run, up(it.state), it.generation))?;
    let key = WorkKey { group: group.clone(), slot: slot.clone(), generation: best.generation };
    Some(Target { node: best.assignment.node.clone(), key, attempt: best.attempt })
}

/// Whoever talks, while they may.
struct Talker {
    store: Replicated,
    proof: Proof,
    _inside: Inside,
}

async fn hold(conversation: Conversation, upgrade: OnUpgrade, talker: Talker) {
    let Ok(with) = upgrade.await else { return };
    let forbidden = async {
        while talker.proof.still_counts(&talker.store.read_local().state) {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        () = conversation.hold(with) => {}
        () = forbidden => {}
    }
}

/// The connection itself, once the answer was sent, for callers who want it.
pub(super) fn upgrade(request: &mut Request) -> Result<OnUpgrade, Refusal> {
    let wanted = request.headers().get(header::UPGRADE).is_some_and(|protocol| protocol == SESSION_PROTOCOL);
    if !wanted {
        let message = format!("this is answered by a conversation; ask with `Upgrade: {SESSION_PROTOCOL}`");
        return Err(Refusal::new(StatusCode::UPGRADE_REQUIRED, RequestCode::RequestInvalid, message));
    }
    Ok(hyper::upgrade::on(request))
}

/// From here on, the connection is the conversation.
pub(super) fn switched() -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, header::HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, header::HeaderValue::from_static(SESSION_PROTOCOL));
    response
}

fn failed(status: StatusCode, message: String) -> Refusal {
    Refusal::new(status, RequestCode::ExecFailed, message)
}

impl From<BesideError> for Refusal {
    fn from(error: BesideError) -> Self {
        match error {
            BesideError::NotThere => {
                Self::new(StatusCode::NOT_FOUND, RequestCode::NotFound, "the replica is not there any more")
            }
            BesideError::Away(why) => Self::new(StatusCode::BAD_GATEWAY, RequestCode::NodeUnreachable, why),
            BesideError::Refused(why) => failed(StatusCode::CONFLICT, why),
        }
    }
}
