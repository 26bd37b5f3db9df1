//! Who asks, and whether they may.
//!
//! Owns: the proof, and how often one caller may ask. On the socket of this machine it is the user the kernel names; so it is
//! on that of a server without a log, which hands requests on; elsewhere it is a token.
//! Invariant: nothing of a request is read before its caller is known, and a token that was revoked, has expired or is
//! for less is refused before anything is done, also by a member that has not heard of it yet.

use std::sync::Arc;

use axum::{
    extract::{Extension, FromRequestParts, Request, State},
    http::{HeaderMap, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::Response,
};
use longshore_api::{Token, TokenKind, WhoAsks};
use longshore_model::{
    Actor, DeploymentName, NamespaceName, RequestCode,
    access::{Power, TokenId, TokenScope},
};
use longshore_store::State as Kept;

use super::{
    Desk, Refusal,
    dashboard::by_session,
    forward::{BEHALF_HEADER, on_behalf_of},
    keyed::Keyed,
    peers::{self, Known},
};
use crate::{
    clock,
    doors::Peer,
    vault::{digest_of, same},
};

/// Who was let in, and how far.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    actor: Actor,
    power: Power,
    scope: TokenScope,
    proof: Proof,
}

/// What a caller has shown.
#[derive(Clone, Debug)]
pub(super) enum Proof {
    /// Being a user of this machine.
    User(u32),
    /// A token.
    Token(Token),
    /// Being a user of another machine of this cluster, which may keep the log and says so.
    Neighbour {
        /// The machine.
        node: Known,
        /// The user.
        uid: u32,
    },
}

impl Proof {
    /// The caller, however often it asks: the part of the proof that may be seen.
    pub(super) fn name(&self) -> String {
        match self {
            Self::User(uid) => format!("uid-{uid}"),
            Self::Token(token) => format!("token-{}", token.id),
            Self::Neighbour { node: Known(node, _), uid } => format!("uid-{uid} of {node}"),
        }
    }

    /// Whether it still opens anything, as far as this member knows. Who listens for long is asked again and again.
    pub(super) fn still_counts(&self, state: &Kept) -> bool {
        match self {
            Self::User(_) => true,
            Self::Token(token) => opened_by(state, token).is_some(),
            Self::Neighbour { node, .. } => peers::is_seated(state, node),
        }
    }
}

/// Lets a request through, or not.
pub(super) async fn admit(
    State(desk): State<Arc<Desk>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let admission = judge(&desk, &peer, request.method(), request.headers(), Knowledge::Newest).await?;
    request.extensions_mut().insert(admission);
    Ok(next.run(request).await)
}

/// The same, where a member that cannot reach the others shall answer, too: for figures, which are wanted most then.
pub(super) async fn admit_by_what_is_known(
    State(desk): State<Arc<Desk>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let admission = judge(&desk, &peer, request.method(), request.headers(), Knowledge::Local).await?;
    request.extensions_mut().insert(admission);
    Ok(next.run(request).await)
}

/// What a token is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// What the cluster knows.
    Newest,
    /// What this member knows.
    Local,
}

/// Lets those through who may change deployments.
pub(super) async fn deployers(Extension(who): Extension<Admission>, request: Request, next: Next) -> Answered {
    who.has(Power::Deploy)?;
    Ok(next.run(request).await)
}

/// Lets those through who may do everything, everywhere.
pub(super) async fn admins(Extension(who): Extension<Admission>, request: Request, next: Next) -> Answered {
    who.has(Power::Admin)?;
    who.is_everywhere()?;
    Ok(next.run(request).await)
}

/// Lets those through who may look everywhere.
pub(super) async fn everywhere(Extension(who): Extension<Admission>, request: Request, next: Next) -> Answered {
    who.is_everywhere()?;
    Ok(next.run(request).await)
}

type Answered = Result<Response, Refusal>;

async fn judge(
    desk: &Desk,
    peer: &Peer,
    method: &Method,
    headers: &HeaderMap,
    by: Knowledge,
) -> Result<Admission, Refusal> {
    let admission = match peer {
        Peer::Local(Some(uid)) if *uid == 0 || *uid == desk.own_uid => by_user(*uid),
        Peer::Local(_) => return Err(not_of_this_machine()),
        Peer::Remote(Some(_)) if headers.contains_key(BEHALF_HEADER) => by_neighbour(desk, peer, headers, by).await?,
        Peer::Loopback | Peer::Remote(_) => {
            let opened = if headers.contains_key(header::AUTHORIZATION) {
                let shown = borne(headers).ok_or_else(stranger)?;
                by_token(desk, &shown, by).await?
            } else {
                by_session(desk, method, headers, by).await?
            };
            opened.ok_or_else(stranger)?
        }
    };
    let often = "this caller asks too often; try again in a moment";
    desk.callers.pass(&admission.proof.name()).map_err(|wait| Refusal::too_often(wait, often))?;
    Ok(admission)
}

pub(super) fn not_of_this_machine() -> Refusal {
    let message = "only root and the user the daemon runs as may use this socket";
    Refusal::new(StatusCode::FORBIDDEN, RequestCode::Forbidden, message)
}

/// A user of a machine that may keep the log has the same rights there, whether it keeps it just now or not. The machine
/// could become a member and say all of this itself, so it is believed while it has its seat.
async fn by_neighbour(desk: &Desk, peer: &Peer, headers: &HeaderMap, by: Knowledge) -> Result<Admission, Refusal> {
    let uid = on_behalf_of(headers).ok_or_else(stranger)?;
    let (node, store) = (peers::server_at(peer, headers)?, desk.store()?);
    let state = match by {
        Knowledge::Newest => store.read().await?.state,
        Knowledge::Local => store.read_local().state,
    };
    peers::ensure_seated(&state, &node)?;
    Ok(Admission { proof: Proof::Neighbour { node, uid }, ..by_user(uid) })
}

fn by_user(uid: u32) -> Admission {
    let name = if uid == 0 { "root".to_owned() } else { format!("uid-{uid}") };
    let (actor, proof) = (Actor::Operator(name), Proof::User(uid));
    Admission { actor, power: Power::Admin, scope: TokenScope::default(), proof }
}

/// What a token opens. Whatever is wrong with one is answered alike: nobody learns which part was right.
pub(super) async fn by_token(desk: &Desk, shown: &Token, by: Knowledge) -> Result<Option<Admission>, Refusal> {
    let store = desk.store()?;
    let state = store.read_local().state;
    let opened = opened_by(&state, shown);
    if by == Knowledge::Local {
        return Ok(opened);
    }
    if opened.is_none() {
        // It may have been made a moment ago, by another member. A wrong secret is wrong everywhere, and guessing must
        // not keep the cluster busy.
        if state.access().token(&TokenId::from(shown.id.as_str())).is_some() || desk.strangers.pass().is_err() {
            return Ok(None);
        }
    }
    // It may have been revoked a moment ago, too.
    Ok(opened_by(&store.read().await?.state, shown))
}

fn opened_by(state: &Kept, shown: &Token) -> Option<Admission> {
    let kept = state.access().token(&TokenId::from(shown.id.as_str()))?;
    let digest = digest_of(shown.secret.as_bytes());
    let right = same(digest.as_str().as_bytes(), kept.digest.as_str().as_bytes());
    let alive = kept.expires_at.is_none_or(|expires_at| clock::now() < expires_at);
    (right && alive).then(|| Admission {
        actor: Actor::Operator(kept.name.clone()),
        power: kept.power,
        scope: kept.scope.clone(),
        proof: Proof::Token(shown.clone()),
    })
}

pub(super) fn borne(headers: &HeaderMap) -> Option<Token> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    // Two proofs are one too many: whoever is in front of us may have looked at the other.
    let (Some(only), None) = (given.next(), given.next()) else { return None };
    let text = only.to_str().ok()?.strip_prefix("Bearer ")?;
    Token::of_kind(TokenKind::Operator, text).ok()
}

pub(super) fn stranger() -> Refusal {
    let message = "the request carries no token, or one that opens nothing";
    let hint = "send `Authorization: Bearer TOKEN` with one of `longshore token create`";
    Refusal::new(StatusCode::UNAUTHORIZED, RequestCode::Unauthenticated, message).with("hint", hint)
}

impl Admission {
    /// The token that let them in, where one did.
    pub(super) fn token(&self) -> Option<&Token> {
        match &self.proof {
            Proof::User(_) | Proof::Neighbour { .. } => None,
            Proof::Token(token) => Some(token),
        }
    }

    /// What let them in.
    pub(super) const fn proof(&self) -> &Proof {
        &self.proof
    }

    /// Who it is, what they may do, and where.
    pub(super) fn told(&self) -> WhoAsks {
        let name = match &self.actor {
            Actor::Operator(name) => name.clone(),
            Actor::Node(node) => node.to_string(),
            Actor::System => "system".to_owned(),
        };
        WhoAsks {
            name,
            role: self.power.as_str().to_owned(),
            namespace: self.scope.namespace.as_ref().map(ToString::to_string),
            deployment: self.scope.deployment.as_ref().map(ToString::to_string),
        }
    }

    fn has(&self, power: Power) -> Result<(), Refusal> {
        if self.power >= power {
            return Ok(());
        }
        let message = format!("this takes the role `{}`, and the token has `{}`", power.as_str(), self.power.as_str());
        Err(Refusal::new(StatusCode::FORBIDDEN, RequestCode::Forbidden, message))
    }

    fn is_everywhere(&self) -> Result<(), Refusal> {
        if self.scope.is_everywhere() {
            return Ok(());
        }
        let message = "this is about the whole cluster, and the token is for a part of it";
        Err(Refusal::new(StatusCode::FORBIDDEN, RequestCode::Forbidden, message))
    }
}

/// Who asks, how far they may go, and under which key.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) actor: Actor,
    pub(super) key: Option<Keyed>,
    pub(super) proof: Proof,
    scope: TokenScope,
}

impl Caller {
    /// Whether a deployment is theirs to see.
    pub(super) fn sees(&self, namespace: &str, deployment: &str) -> bool {
        self.scope.covers(&NamespaceName::from(namespace), &DeploymentName::from(deployment))
    }

    /// Whether the whole cluster is theirs to see.
    pub(super) fn sees_everything(&self) -> bool {
        self.scope.is_everywhere()
    }

    /// The same, for one of several commands that a request takes.
    pub(super) fn part(&self, of: &str) -> Self {
        let key = self.key.as_ref().map(|keyed| keyed.part(of));
        Self { key, ..self.clone() }
    }

    /// Refuses what is outside of the token's scope.
    pub(super) fn within(&self, namespace: &NamespaceName, deployment: &DeploymentName) -> Result<(), Refusal> {
        if self.scope.covers(namespace, deployment) {
            return Ok(());
        }
        let message = format!("the token is not for deployment `{deployment}` of namespace `{namespace}`");
        Err(Refusal::new(StatusCode::FORBIDDEN, RequestCode::Forbidden, message))
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Refusal> {
        // Every route that has a caller is behind `admit`.
        let admission = parts.extensions.get::<Admission>().cloned().ok_or_else(stranger)?;
        // Two callers that happen upon the same key are not in each other's way.
        let key = parts.extensions.get::<Keyed>().map(|keyed| keyed.part(&format!("{:?}", admission.actor)));
        Ok(Self { actor: admission.actor, key, proof: admission.proof, scope: admission.scope })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(values: &[String]) -> HeaderMap {
        values.iter().map(|value| (header::AUTHORIZATION, value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_is_borne_once_and_whole() {
        let token = format!("longshore-operator-{}-{}-{}", "a".repeat(16), "b".repeat(32), "0".repeat(32));
        assert!(borne(&with(&[format!("Bearer {token}")])).is_some());
        for wrong in [format!("bearer {token}"), token.clone(), format!("Basic {token}"), "Bearer ".to_owned()] {
            assert!(borne(&with(&[wrong])).is_none());
        }
        assert!(borne(&with(&[])).is_none());
        let twice = format!("Bearer {token}");
        assert!(borne(&with(&[twice.clone(), twice])).is_none());
        let join = token.replace("operator", "join");
        assert!(borne(&with(&[format!("Bearer {join}")])).is_none());
    }
}
