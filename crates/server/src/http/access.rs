//! Tokens, secrets and the cluster itself over HTTP.

use std::{sync::Arc, time::Duration};

use axum::{Extension, Json, extract::State, http::StatusCode};
use longshore_api::{
    Changed, ClusterStatus, JoinTokenRequest, KeyRotated, MemberRow, NewToken, Pin, Token, TokenKind, TokenRequest,
    TokenRow, WhoAsks,
};
use longshore_model::{
    Command, NamespaceName, RequestCode,
    access::{AccessCommand, AccessToken, SeatPart, TokenId, TokenScope},
};
use longshore_store::replicated::{Novelty, Part};

use super::{
    Answer, Desk, Refusal,
    caller::{Admission, Caller},
    extract::{Body, Named, invalid},
};
use crate::{
    clock,
    keys::{self, KeyError},
    names,
    reception::{self, ReceptionError},
    vault::{digest_of, random_hex},
};

/// How long a join token is good for unless said otherwise.
const JOIN_TOKEN: Duration = Duration::from_hours(1);

/// Who asks. A page that knows offers nothing that would be refused.
pub(super) async fn caller(Extension(who): Extension<Admission>) -> Answer<WhoAsks> {
    Ok(Json(who.told()))
}

pub(super) async fn join_token(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Body(request): Body<JoinTokenRequest>,
) -> Answer<NewToken> {
    let valid = request.valid_secs.map_or(JOIN_TOKEN, Duration::from_secs);
    let part = if request.worker { SeatPart::Worker } else { SeatPart::Server };
    let state = desk.store()?.read().await?.state;
    let (token, command) = reception::join_grant(&state, part, valid)?;
    let done = desk.carry_out(caller, Command::Access(Box::new(command))).await?;
    if done.novelty == Novelty::Repeated {
        let id = TokenId::from(token.id.as_str());
        desk.read_after(&done).await?.access().grant(&id).ok_or_else(shown_once)?;
    }
    Ok(Json(NewToken { id: token.id.clone(), token: token.reveal() }))
}

pub(super) async fn tokens(State(desk): State<Arc<Desk>>) -> Answer<Vec<TokenRow>> {
    let state = desk.store()?.read().await?.state;
    let rows = state.access().tokens().map(|(id, token)| TokenRow {
        id: id.to_string(),
        name: token.name.clone(),
        role: token.power.as_str().to_owned(),
        namespace: token.scope.namespace.as_ref().map(ToString::to_string),
        deployment: token.scope.deployment.as_ref().map(ToString::to_string),
        expires_ms: token.expires_at.map(|at| at.0),
    });
    Ok(Json(rows.collect()))
}

pub(super) async fn issue(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Body(request): Body<TokenRequest>,
) -> Answer<NewToken> {
    plain(&request.name)?;
    let (store, now) = (desk.store()?, clock::now());
    let state = store.read().await?.state;
    let authority = state.access().authority().ok_or(ReceptionError::NotFounded)?;
    let made = random_hex(8).and_then(|id| Ok((id, random_hex(16)?))).map_err(ReceptionError::from)?;
    let token = Token { kind: TokenKind::Operator, id: made.0, secret: made.1, pin: Pin::of(&authority.certificate) };
    let kept = AccessToken {
        name: request.name,
        digest: digest_of(token.secret.as_bytes()),
        power: request.role,
        scope: TokenScope {
            namespace: request.namespace.as_deref().map(NamespaceName::from),
            deployment: request.deployment.as_deref().map(Into::into),
        },
        expires_at: request.valid_secs.map(|seconds| now.after(Duration::from_secs(seconds))),
        since: now,
    };
    let command = AccessCommand::IssueToken { id: TokenId::from(token.id.as_str()), token: kept };
    let done = desk.carry_out(caller, Command::Access(Box::new(command))).await?;
    if done.novelty == Novelty::Repeated {
        let id = TokenId::from(token.id.as_str());
        desk.read_after(&done).await?.access().token(&id).ok_or_else(shown_once)?;
    }
    Ok(Json(NewToken { id: token.id.clone(), token: token.reveal() }))
}

/// Its secret was told then, and nobody kept it.
fn shown_once() -> Refusal {
    let message = "a token was made under this idempotency key before, and a token is shown once";
    Refusal::new(StatusCode::CONFLICT, RequestCode::IdempotencyKeyReused, message)
        .with("hint", "revoke that one if it was never seen, and ask under another key")
}

pub(super) async fn revoke(State(desk): State<Arc<Desk>>, caller: Caller, Named(id): Named<String>) -> Answer<Changed> {
    let command = AccessCommand::RevokeToken { id: TokenId::from(id.as_str()) };
    desk.change(caller, Command::Access(Box::new(command))).await
}

/// Refuses names that would be mistaken for something else.
pub(super) fn plain(name: &str) -> Result<(), Refusal> {
    let message = || format!("a name is plain text of up to {} bytes, without `/`", names::LONGEST);
    if names::is_usable(name) { Ok(()) } else { Err(invalid(message())) }
}

/// Another key seals from now on.
pub(super) async fn rotate_key(State(desk): State<Arc<Desk>>, caller: Caller) -> Answer<KeyRotated> {
    let store = desk.store()?;
    let sealing = store.read().await?.state.access().sealing_key();
    let is_repeated = caller.key.as_ref().is_some_and(|keyed| store.has_answered(&keyed.key));
    // Whoever asks again gets no third key: what is proposed then changes nothing.
    let key = if is_repeated { sealing } else { keys::prepare(&desk.hub, &store, sealing).await? };
    let done = desk.carry_out(caller, Command::Access(Box::new(AccessCommand::UseKey { key }))).await?;
    match done.novelty {
        Novelty::New => Ok(Json(KeyRotated { key })),
        Novelty::Repeated => Ok(Json(KeyRotated { key: desk.read_after(&done).await?.access().sealing_key() })),
    }
}

pub(super) async fn cluster(State(desk): State<Arc<Desk>>) -> Answer<ClusterStatus> {
    let store = desk.store()?;
    let state = store.read().await?.state;
    let (members, leadership) = (store.members(), store.leadership().borrow().clone());
    let row = |(node, seat): (&longshore_model::NodeName, &Arc<longshore_model::access::Seat>)| MemberRow {
        node: node.to_string(),
        member: seat.member.0,
        address: seat.address.clone(),
        part: seat.part.as_str().to_owned(),
        keeps_log: members.members.contains_key(&seat.member),
        votes: members.voters.contains(&seat.member),
        leads: leadership.leader.as_ref().is_some_and(|leader| leader.id == seat.member),
    };
    let status = store.status();
    Ok(Json(ClusterStatus {
        cluster: desk.hub.place().cluster,
        this_node: desk.hub.node().to_string(),
        leading_here: leadership.part == Part::Leading,
        term: status.term,
        index: state.index().0,
        log_entry: status.last_entry,
        members: state.access().seats().map(row).collect(),
    }))
}

impl From<KeyError> for Refusal {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Reception(error) => error.into(),
            KeyError::NotEverywhere { .. } => {
                let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, RequestCode::NotReady, error.to_string());
                refusal.with("hint", "bring the server back or remove it, and ask again; nothing has changed")
            }
            KeyError::Vault(_) | KeyError::Folder(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, RequestCode::NotReady, error.to_string())
            }
        }
    }
}

impl From<ReceptionError> for Refusal {
    fn from(error: ReceptionError) -> Self {
        match error {
            ReceptionError::Propose(error) => error.into(),
            ReceptionError::Read(error) => error.into(),
            ReceptionError::Refused(error) => error.into(),
            ReceptionError::NotYours(_) => Self::new(StatusCode::FORBIDDEN, RequestCode::Forbidden, error.to_string()),
            ReceptionError::NoContents(_) => Self::new(StatusCode::NOT_FOUND, RequestCode::NotFound, error.to_string()),
            ReceptionError::Identity(_) | ReceptionError::Unusable => {
                Self::new(StatusCode::BAD_REQUEST, RequestCode::RequestInvalid, error.to_string())
            }
            ReceptionError::Vault(_) | ReceptionError::NotFounded => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, RequestCode::NotReady, error.to_string())
            }
        }
    }
}
