//! Runs a command inside a replica, over an upgraded connection.
//!
//! Owns: which generation of a slot is chosen, and the audit record.
//! Invariant: the audit record is committed before the command starts, and names the replica, never the command line,
//! which may hold secrets. The session ends when the caller's token is no longer valid.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{FromRequest as _, Request, State},
    http::{StatusCode, header},
    response::Response,
};
use hyper::upgrade::OnUpgrade;
use longshore_api::{ExecRequest, ObjectKind, SESSION_PROTOCOL};
use longshore_model::{ApiErrorCode, Command, GroupKey, ReplicaKey, ReplicaState, SlotKey, replica::DesiredState};
use longshore_store::{State as ClusterState, replicated::Replicated};

use crate::{
    api::{
        ApiError, ApiState,
        extract::{JsonBody, PathParams, invalid},
        policies, views,
    },
    node_rpc::logs_exec::{self, ExecConnection, LogsExecError, PeerExecRequest, Target},
    security::{
        auth::{Caller, Credential},
        rate_limit::ConcurrencyPermit,
    },
};

/// Time between two checks that the caller's token is still valid.
const VALIDITY_CHECK: Duration = Duration::from_millis(250);

pub(crate) async fn exec(
    State(api): State<Arc<ApiState>>,
    mut caller: Caller,
    PathParams(replica): PathParams<String>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let upgrade = upgrade(&mut request)?;
    let JsonBody(wanted): JsonBody<ExecRequest> = JsonBody::from_request(request, &()).await?;
    if wanted.command.is_empty() && !wanted.attach {
        return Err(invalid("there is no command"));
    }
    let store = api.store()?;
    let state = store.read().await?.state;
    // A replica outside of the caller's scope is reported as missing.
    let theirs = |group: &GroupKey| caller.may_see(group.namespace.as_str(), group.deployment.as_str());
    let found = views::find(&state, &replica).filter(|(group, _)| theirs(group));
    let (group, slot) = found.ok_or_else(|| ApiError::not_found(&ObjectKind::Replica, &replica))?;
    if wanted.attach && state.group(&group).is_none_or(|group| group.spec.one_off.is_none()) {
        return Err(invalid("only a one-off job can be attached to"));
    }
    let found = if wanted.attach { started_attempt } else { running_attempt }(&state, &group, &slot);
    let target = found.ok_or_else(|| failed(StatusCode::CONFLICT, format!("replica `{replica}` is not running")))?;
    policies::ensure_exec_allowed(&state, &caller, &group, wanted.user.as_deref())?;
    let permit = api.streams.acquire(&caller.credential.name()).ok_or_else(|| {
        let message = "too many streams and sessions are open; close one of them first";
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, ApiErrorCode::TooManyRequests, message)
    })?;
    let credential = caller.credential.clone();
    // Every exec is run and audited, also under a repeated key.
    caller.key = None;
    api.execute(caller, Command::RecordExec { group, slot }).await?;
    let connection = logs_exec::exec(&api.ctx, &state, &PeerExecRequest { target, request: wanted }).await?;
    tokio::spawn(run_session(connection, upgrade, SessionGuard { store, credential, _permit: permit }));
    Ok(switching_protocols())
}

/// The generation that should run, else the newest that is up.
fn running_attempt(state: &ClusterState, group: &GroupKey, slot: &SlotKey) -> Option<Target> {
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
    let best = replicas.max_by_key(|it| (it.desired == DesiredState::Run, up(it.state), it.generation))?;
    let key = ReplicaKey { group: group.clone(), slot: slot.clone(), generation: best.generation };
    Some(Target { node: best.assignment.node.clone(), key, attempt: best.attempt })
}

/// The newest generation that was started, ended or not: a job may have ended before its caller attached.
fn started_attempt(state: &ClusterState, group: &GroupKey, slot: &SlotKey) -> Option<Target> {
    let started = |state: ReplicaState| !matches!(state, ReplicaState::Pending | ReplicaState::Pulling);
    let replicas = state.group(group)?.slots.get(slot)?.replicas.iter().filter(|replica| started(replica.state));
    let newest = replicas.max_by_key(|it| it.generation)?;
    let key = ReplicaKey { group: group.clone(), slot: slot.clone(), generation: newest.generation };
    Some(Target { node: newest.assignment.node.clone(), key, attempt: newest.attempt })
}

/// What a session needs to check that its caller is still allowed.
struct SessionGuard {
    store: Replicated,
    credential: Credential,
    _permit: ConcurrencyPermit,
}

async fn run_session(connection: ExecConnection, upgrade: OnUpgrade, guard: SessionGuard) {
    let Ok(with) = upgrade.await else { return };
    let forbidden = async {
        while guard.credential.is_still_valid(&guard.store.read_local().state) {
            tokio::time::sleep(VALIDITY_CHECK).await;
        }
    };
    tokio::select! {
        () = connection.relay(with) => {}
        () = forbidden => {}
    }
}

/// The upgraded connection; an error unless the caller asked for the session protocol.
pub(crate) fn upgrade(request: &mut Request) -> Result<OnUpgrade, ApiError> {
    let wanted = request.headers().get(header::UPGRADE).is_some_and(|protocol| protocol == SESSION_PROTOCOL);
    if !wanted {
        let message = format!("this route needs an upgraded connection; send `Upgrade: {SESSION_PROTOCOL}`");
        return Err(ApiError::new(StatusCode::UPGRADE_REQUIRED, ApiErrorCode::RequestInvalid, message));
    }
    Ok(hyper::upgrade::on(request))
}

/// The `101 Switching Protocols` answer.
pub(crate) fn switching_protocols() -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, header::HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, header::HeaderValue::from_static(SESSION_PROTOCOL));
    response
}

fn failed(status: StatusCode, message: String) -> ApiError {
    ApiError::new(status, ApiErrorCode::ExecFailed, message)
}

impl From<LogsExecError> for ApiError {
    fn from(error: LogsExecError) -> Self {
        match error {
            LogsExecError::NotFound => {
                Self::new(StatusCode::NOT_FOUND, ApiErrorCode::NotFound, "the replica no longer exists")
            }
            LogsExecError::Unreachable(why) => Self::new(StatusCode::BAD_GATEWAY, ApiErrorCode::NodeUnreachable, why),
            LogsExecError::Refused(why) => failed(StatusCode::CONFLICT, why),
        }
    }
}
