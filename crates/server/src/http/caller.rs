//! Who asks, and whether they may.
//!
//! Owns: the proof. On the socket of this machine it is the user the kernel names; elsewhere it is a token.
//! Invariant: nothing of a request is read before its caller is known, and a token that was revoked, has expired or is
//! for less is refused before anything is done.

use std::sync::Arc;

use axum::{
    extract::{Extension, FromRequestParts, Request, State},
    http::{HeaderMap, StatusCode, header, request::Parts},
    middleware::Next,
    response::Response,
};
use longshore_api::{Token, TokenKind};
use longshore_model::{
    Actor, DeploymentName, NamespaceName, RequestCode,
    access::{Power, TokenId, TokenScope},
};

use super::{Desk, Refusal};
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
}

/// Lets a request through, or not.
pub(super) async fn admit(
    State(desk): State<Arc<Desk>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    desk.hub.figures.requests.add(1);
    let admission = judge(&desk, &peer, request.headers())?;
    request.extensions_mut().insert(admission);
    Ok(next.run(request).await)
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

fn judge(desk: &Desk, peer: &Peer, headers: &HeaderMap) -> Result<Admission, Refusal> {
    let admin =
        |name: String| Admission { actor: Actor::Operator(name), power: Power::Admin, scope: TokenScope::default() };
    match peer {
        Peer::Local(Some(0)) => Ok(admin("root".to_owned())),
        Peer::Local(Some(uid)) if *uid == desk.own_uid => Ok(admin(format!("uid-{uid}"))),
        Peer::Local(_) => {
            let message = "only root and the user the daemon runs as may use this socket";
            Err(Refusal::new(StatusCode::FORBIDDEN, RequestCode::Forbidden, message))
        }
        Peer::Loopback | Peer::Remote(_) => by_token(desk, headers)?.ok_or_else(stranger),
    }
}

/// What a token opens. Whatever is wrong with one is answered alike: nobody learns which part was right.
fn by_token(desk: &Desk, headers: &HeaderMap) -> Result<Option<Admission>, Refusal> {
    let Some(shown) = borne(headers) else { return Ok(None) };
    let state = desk.store()?.read_local().state;
    let Some(kept) = state.access().token(&TokenId::from(shown.id.as_str())) else { return Ok(None) };
    let digest = digest_of(shown.secret.as_bytes());
    let right = same(digest.as_str().as_bytes(), kept.digest.as_str().as_bytes());
    let alive = kept.expires_at.is_none_or(|expires_at| clock::now() < expires_at);
    Ok((right && alive).then(|| Admission {
        actor: Actor::Operator(kept.name.clone()),
        power: kept.power,
        scope: kept.scope.clone(),
    }))
}

fn borne(headers: &HeaderMap) -> Option<Token> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    // Two proofs are one too many: whoever is in front of us may have looked at the other.
    let (Some(only), None) = (given.next(), given.next()) else { return None };
    let text = only.to_str().ok()?.strip_prefix("Bearer ")?;
    Token::of_kind(TokenKind::Operator, text).ok()
}

fn stranger() -> Refusal {
    let message = "the request carries no token, or one that opens nothing";
    let hint = "send `Authorization: Bearer TOKEN` with one of `longshore token create`";
    Refusal::new(StatusCode::UNAUTHORIZED, RequestCode::Unauthenticated, message).with("hint", hint)
}

impl Admission {
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
    pub(super) key: Option<String>,
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
        let invalid = || Refusal::new(StatusCode::BAD_REQUEST, RequestCode::RequestInvalid, "the key is not text");
        let key = parts.headers.get("idempotency-key").map(|key| key.to_str().map(str::to_owned));
        let key = key.transpose().map_err(|_| invalid())?;
        // Every route that has a caller is behind `admit`.
        let admission = parts.extensions.get::<Admission>().cloned().ok_or_else(stranger)?;
        Ok(Self { actor: admission.actor, key, scope: admission.scope })
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
