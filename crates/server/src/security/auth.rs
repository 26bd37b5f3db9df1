//! Authentication and authorisation of API requests.
//!
//! Owns: the credential, and the rate limit per caller. On the Unix socket the credential is the uid that the kernel
//! reports, also when a server without a store forwards the request; elsewhere it is a token.
//! Invariant: nothing of a body is read before its caller is authenticated. A token that was revoked, has expired or
//! lacks the role is refused before anything is done, also by a member that has not received the revocation yet.

use std::sync::Arc;

use axum::{
    extract::{Extension, FromRequestParts, Request, State},
    http::{HeaderMap, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::Response,
};
use longshore_api::{Token, TokenKind, WhoAmI};
use longshore_model::{
    Actor, ApiErrorCode, DeploymentName, NamespaceName,
    access::{TokenId, TokenRole, TokenScope},
};
use longshore_store::State as ClusterState;

use crate::{
    api::{
        ApiError, ApiState,
        dashboard::authenticate_session,
        forward::{BEHALF_HEADER, on_behalf_of},
        idempotency::IdempotentRequest,
        listeners::Peer,
    },
    clock,
    node_rpc::handlers::{self, PeerNode},
    security::{
        keyring::{constant_time_eq, digest_of},
        socket_group,
    },
};

/// An authenticated caller: name, role and scope.
#[derive(Clone, Debug)]
pub(crate) struct Principal {
    actor: Actor,
    role: TokenRole,
    scope: TokenScope,
    credential: Credential,
}

/// What a caller authenticates with.
#[derive(Clone, Debug)]
pub(crate) enum Credential {
    /// A local user, by uid.
    User(u32),
    /// A token.
    Token(Token),
    /// A local user of another server of this cluster, which vouches for it.
    ForwardedUser {
        /// The forwarding server.
        node: PeerNode,
        /// The uid there.
        uid: u32,
    },
}

impl Credential {
    /// A name for the caller that shows nothing secret; rate limits use it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::User(uid) => format!("uid-{uid}"),
            Self::Token(token) => format!("token-{}", token.id),
            Self::ForwardedUser { node: PeerNode { name: node, .. }, uid } => format!("uid-{uid} of {node}"),
        }
    }

    /// Whether it is still valid, as far as this member knows. Long-lived streams check it repeatedly.
    pub(crate) fn is_still_valid(&self, state: &ClusterState) -> bool {
        match self {
            Self::User(_) => true,
            Self::Token(token) => principal_of(state, token).is_some(),
            Self::ForwardedUser { node, .. } => handlers::is_member(state, node),
        }
    }
}

/// Middleware: refuses unauthenticated requests.
pub(crate) async fn require_authenticated(
    State(api): State<Arc<ApiState>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let admission = authenticate(&api, &peer, request.method(), request.headers(), Freshness::Linearizable).await?;
    request.extensions_mut().insert(admission);
    Ok(next.run(request).await)
}

/// The same with the local state, so that a member without a quorum can serve metrics, which are wanted most then.
pub(crate) async fn require_authenticated_locally(
    State(api): State<Arc<ApiState>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let admission = authenticate(&api, &peer, request.method(), request.headers(), Freshness::Local).await?;
    request.extensions_mut().insert(admission);
    Ok(next.run(request).await)
}

/// Which state a token is checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// A linearizable read.
    Linearizable,
    /// This member's state.
    Local,
}

/// Middleware: requires the role `deploy`.
pub(crate) async fn require_deploy(
    Extension(who): Extension<Principal>,
    request: Request,
    next: Next,
) -> MiddlewareResult {
    who.require_role(TokenRole::Deploy)?;
    Ok(next.run(request).await)
}

/// Middleware: requires the role `admin` without a scope.
pub(crate) async fn require_admin(
    Extension(who): Extension<Principal>,
    request: Request,
    next: Next,
) -> MiddlewareResult {
    who.require_role(TokenRole::Admin)?;
    who.require_unscoped()?;
    Ok(next.run(request).await)
}

/// Middleware: requires a token without a scope.
pub(crate) async fn require_cluster_scope(
    Extension(who): Extension<Principal>,
    request: Request,
    next: Next,
) -> MiddlewareResult {
    who.require_unscoped()?;
    Ok(next.run(request).await)
}

type MiddlewareResult = Result<Response, ApiError>;

async fn authenticate(
    api: &ApiState,
    peer: &Peer,
    method: &Method,
    headers: &HeaderMap,
    by: Freshness,
) -> Result<Principal, ApiError> {
    let admission = match peer {
        Peer::Local(Some(uid)) if may_use_socket(*uid, api.own_uid) => user_principal(*uid),
        Peer::Local(_) => return Err(socket_forbidden()),
        Peer::Remote(Some(_)) if headers.contains_key(BEHALF_HEADER) => {
            authenticate_forwarded(api, peer, headers, by).await?
        }
        Peer::Loopback | Peer::Remote(_) => {
            let principal = if headers.contains_key(header::AUTHORIZATION) {
                let shown = bearer_token(headers).ok_or_else(unauthenticated)?;
                authenticate_token(api, &shown, by).await?
            } else {
                authenticate_session(api, method, headers, by).await?
            };
            principal.ok_or_else(unauthenticated)?
        }
    };
    let often = "this caller sends too many requests; try again in a moment";
    api.callers.take(&admission.credential.name()).map_err(|wait| ApiError::too_often(wait, often))?;
    Ok(admission)
}

/// Root, the user the daemon runs as, and for root's daemon the members of the group `longshore`.
pub(crate) fn may_use_socket(uid: u32, own_uid: u32) -> bool {
    uid == 0 || uid == own_uid || own_uid == 0 && socket_group::has_member(uid)
}

pub(crate) fn socket_forbidden() -> ApiError {
    let message = "only root, the user the daemon runs as and members of the group `longshore` may use this socket";
    let hint = "use `sudo`, or let an administrator add you: `sudo usermod -aG longshore $USER`";
    ApiError::new(StatusCode::FORBIDDEN, ApiErrorCode::Forbidden, message).with("hint", hint)
}

/// A local user of a server has the same rights there whether it is a member just now or not. The server could become a
/// member and do all of this itself, so it is trusted while it belongs to the cluster.
async fn authenticate_forwarded(
    api: &ApiState,
    peer: &Peer,
    headers: &HeaderMap,
    by: Freshness,
) -> Result<Principal, ApiError> {
    let uid = on_behalf_of(headers).ok_or_else(unauthenticated)?;
    let (node, store) = (handlers::server_at(peer, headers)?, api.store()?);
    let state = match by {
        Freshness::Linearizable => store.read().await?.state,
        Freshness::Local => store.read_local().state,
    };
    handlers::ensure_member(&state, &node)?;
    Ok(Principal { credential: Credential::ForwardedUser { node, uid }, ..user_principal(uid) })
}

fn user_principal(uid: u32) -> Principal {
    let name = if uid == 0 { "root".to_owned() } else { format!("uid-{uid}") };
    let (actor, credential) = (Actor::Operator(name), Credential::User(uid));
    Principal { actor, role: TokenRole::Admin, scope: TokenScope::default(), credential }
}

/// The principal of a token. Every kind of invalid token gets the same answer, so nobody learns which part was right.
pub(crate) async fn authenticate_token(
    api: &ApiState,
    shown: &Token,
    by: Freshness,
) -> Result<Option<Principal>, ApiError> {
    let store = api.store()?;
    let state = store.read_local().state;
    let principal = principal_of(&state, shown);
    if by == Freshness::Local {
        return Ok(principal);
    }
    if principal.is_none() {
        // Another member may have created it a moment ago. A known id with a wrong secret is wrong everywhere, and
        // guessing must not keep the cluster busy.
        if state.access().token(&TokenId::from(shown.id.as_str())).is_some() || api.unknown_tokens.take().is_err() {
            return Ok(None);
        }
    }
    // It may have been revoked a moment ago.
    Ok(principal_of(&store.read().await?.state, shown))
}

fn principal_of(state: &ClusterState, shown: &Token) -> Option<Principal> {
    let kept = state.access().token(&TokenId::from(shown.id.as_str()))?;
    let digest = digest_of(shown.secret.as_bytes());
    let right = constant_time_eq(digest.as_str().as_bytes(), kept.digest.as_str().as_bytes());
    let alive = kept.expires_at.is_none_or(|expires_at| clock::now() < expires_at);
    (right && alive).then(|| Principal {
        actor: Actor::Operator(kept.name.clone()),
        role: kept.role,
        scope: kept.scope.clone(),
        credential: Credential::Token(shown.clone()),
    })
}

pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<Token> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    // Two credentials are refused: a proxy in front of us may have checked the other one.
    let (Some(only), None) = (given.next(), given.next()) else { return None };
    let text = only.to_str().ok()?.strip_prefix("Bearer ")?;
    Token::of_kind(TokenKind::Operator, text).ok()
}

pub(crate) fn unauthenticated() -> ApiError {
    let message = "the request has no token, or one that is not valid";
    let hint = "send `Authorization: Bearer TOKEN` with one of `longshore token create`";
    ApiError::new(StatusCode::UNAUTHORIZED, ApiErrorCode::Unauthenticated, message).with("hint", hint)
}

impl Principal {
    /// The token it authenticated with, if any.
    pub(crate) fn token(&self) -> Option<&Token> {
        match &self.credential {
            Credential::User(_) | Credential::ForwardedUser { .. } => None,
            Credential::Token(token) => Some(token),
        }
    }

    /// What it authenticated with.
    pub(crate) const fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Name, role and scope, as the API shows them.
    pub(crate) fn whoami(&self) -> WhoAmI {
        let name = match &self.actor {
            Actor::Operator(name) => name.clone(),
            Actor::Node(node) => node.to_string(),
            Actor::System => "system".to_owned(),
        };
        WhoAmI {
            name,
            role: self.role.into(),
            namespace: self.scope.namespace.as_ref().map(ToString::to_string),
            deployment: self.scope.deployment.as_ref().map(ToString::to_string),
        }
    }

    fn require_role(&self, role: TokenRole) -> Result<(), ApiError> {
        if self.role >= role {
            return Ok(());
        }
        let message = format!("this needs the role `{}`, and the token has `{}`", role.as_str(), self.role.as_str());
        Err(ApiError::new(StatusCode::FORBIDDEN, ApiErrorCode::Forbidden, message))
    }

    fn require_unscoped(&self) -> Result<(), ApiError> {
        if self.scope.is_cluster_wide() {
            return Ok(());
        }
        let message = "this concerns the whole cluster, and the token is limited to a part of it";
        Err(ApiError::new(StatusCode::FORBIDDEN, ApiErrorCode::Forbidden, message))
    }
}

/// The caller of a request, with its scope and its idempotency key.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) actor: Actor,
    pub(crate) key: Option<IdempotentRequest>,
    pub(crate) credential: Credential,
    role: TokenRole,
    scope: TokenScope,
}

impl Caller {
    /// Whether a deployment is in its scope.
    pub(crate) fn may_see(&self, namespace: &str, deployment: &str) -> bool {
        self.scope.covers(&NamespaceName::from(namespace), &DeploymentName::from(deployment))
    }

    /// Whether it has no scope.
    pub(crate) fn may_see_all(&self) -> bool {
        self.scope.is_cluster_wide()
    }

    /// Whether it is an admin of the whole cluster, who could give itself any right.
    pub(crate) fn owns_the_cluster(&self) -> bool {
        self.role >= TokenRole::Admin && self.scope.is_cluster_wide()
    }

    /// Refuses a namespace outside of the token's scope.
    pub(crate) fn ensure_namespace_in_scope(&self, namespace: &NamespaceName) -> Result<(), ApiError> {
        if self.scope.is_cluster_wide() || self.scope.namespace.as_ref() == Some(namespace) {
            return Ok(());
        }
        let message = format!("the token is not for namespace `{namespace}`");
        Err(ApiError::new(StatusCode::FORBIDDEN, ApiErrorCode::Forbidden, message))
    }

    /// The caller for one of several commands of a request.
    pub(crate) fn sub_request(&self, of: &str) -> Self {
        let key = self.key.as_ref().map(|keyed| keyed.sub_request(of));
        Self { key, ..self.clone() }
    }

    /// Refuses what is outside of the token's scope.
    pub(crate) fn ensure_in_scope(
        &self,
        namespace: &NamespaceName,
        deployment: &DeploymentName,
    ) -> Result<(), ApiError> {
        if self.scope.covers(namespace, deployment) {
            return Ok(());
        }
        let message = format!("the token is not for deployment `{deployment}` of namespace `{namespace}`");
        Err(ApiError::new(StatusCode::FORBIDDEN, ApiErrorCode::Forbidden, message))
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        // Every route with a caller is behind `require_authenticated`.
        let admission = parts.extensions.get::<Principal>().cloned().ok_or_else(unauthenticated)?;
        // Two callers that choose the same key do not affect each other.
        let key = parts
            .extensions
            .get::<IdempotentRequest>()
            .map(|keyed| keyed.sub_request(&format!("{:?}", admission.actor)));
        Ok(Self {
            actor: admission.actor,
            key,
            credential: admission.credential,
            role: admission.role,
            scope: admission.scope,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(values: &[String]) -> HeaderMap {
        values.iter().map(|value| (header::AUTHORIZATION, value.parse().unwrap())).collect()
    }

    #[test]
    fn a_bearer_token_is_accepted_once_and_complete() {
        let token = format!("longshore-operator-{}-{}-{}", "a".repeat(16), "b".repeat(32), "0".repeat(32));
        assert!(bearer_token(&with(&[format!("Bearer {token}")])).is_some());
        for wrong in [format!("bearer {token}"), token.clone(), format!("Basic {token}"), "Bearer ".to_owned()] {
            assert!(bearer_token(&with(&[wrong])).is_none());
        }
        assert!(bearer_token(&with(&[])).is_none());
        let twice = format!("Bearer {token}");
        assert!(bearer_token(&with(&[twice.clone(), twice])).is_none());
        let join = token.replace("operator", "join");
        assert!(bearer_token(&with(&[format!("Bearer {join}")])).is_none());
    }
}
