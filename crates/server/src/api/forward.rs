//! Forwards requests from a node without a replica of the log to a server.
//!
//! ```text
//! caller ─▶ this node authenticates ─▶ a server authorises and answers ─▶ answer, stream or session is relayed unread
//! ```
//!
//! Owns: which requests are forwarded, on whose behalf, and to which server.
//! Must not touch: what is requested. The server handles it as if it had arrived there.
//! Invariant: only what the caller has proven to this node is passed on; a request is forwarded once, and one that may
//! have been received is not sent to another server unless it is safe to repeat.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Extension, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header, request::Parts},
    middleware::Next,
    response::Response,
};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use longshore_api::{SESSION_PROTOCOL, Token};
use longshore_model::{ApiErrorCode, access::NodeRole};
use longshore_store::replicated::CommitCertainty;

use crate::{
    api::{ApiError, ApiState, dashboard::credential_of_session, exec::switching_protocols, listeners::Peer},
    lifecycle::node_context::LeaderLocation,
    node_rpc::{NODE_HEADER, PROTOCOL_HEADER, PeerConnection, ServerAddress, handlers::check_protocol},
    observability::telemetry::Telemetry,
    security::{
        auth::{Credential, bearer_token, may_use_socket, socket_forbidden, unauthenticated},
        rate_limit::ConcurrencyPermit,
    },
};

/// Header with the uid of the caller on the forwarding node; the node's certificate proves that it may say so.
pub(crate) const BEHALF_HEADER: &str = "longshore-on-behalf-of";

/// Time a server has to start its answer while another one can be tried. A stopped process still accepts connections.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(3);

/// Time this node's own store has to open after a start.
const STORE_OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Hop-by-hop headers, and those that only concern this node.
const HEADERS_NOT_FORWARDED: [HeaderName; 10] = [
    header::CONNECTION,
    header::UPGRADE,
    header::HOST,
    header::COOKIE,
    header::AUTHORIZATION,
    header::EXPECT,
    header::TE,
    HeaderName::from_static(BEHALF_HEADER),
    HeaderName::from_static(NODE_HEADER),
    HeaderName::from_static(PROTOCOL_HEADER),
];

/// On whose behalf a request is forwarded.
enum OnBehalfOf {
    /// A local user, by uid.
    User(u32),
    /// The holder of a token.
    Bearer(Box<Token>),
    /// Anyone: the route is public, or the body carries its own credential.
    Anyone,
}

/// Forwards a request that this node cannot answer itself.
pub(crate) async fn forward_to_server(
    State(api): State<Arc<ApiState>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if request.uri().path().starts_with("/v1/") {
        api.ctx.wait_for_store(STORE_OPEN_TIMEOUT).await;
    }
    if api.ctx.store().is_some() || !should_forward(&api, &request) {
        return Ok(next.run(request).await);
    }
    let Some(owner) = identify(&api, &peer, &request)? else { return Ok(next.run(request).await) };
    let permit = api.forwarded.acquire(&owner.name()).ok_or_else(|| {
        let message = "this node forwards too many requests; close a stream first, or ask a server";
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, ApiErrorCode::TooManyRequests, message)
    })?;
    let is_session = request.headers().get(header::UPGRADE).is_some_and(|protocol| protocol == SESSION_PROTOCOL);
    let caller = is_session.then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    // A safe request has no body, so it can be sent to one server after another.
    let body = if parts.method.is_safe() { Body::empty() } else { body };
    let asked =
        ForwardedRequest { head: RequestHead { parts: rewrite_head(parts, &owner)?, is_session }, body: Some(body) };
    let mut response = asked.send(&api).await?;
    match caller {
        Some(caller) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            tokio::spawn(relay_session(caller, hyper::upgrade::on(&mut response), permit));
            Ok(switching_protocols())
        }
        Some(_) | None => Ok(relay_response(response, permit)),
    }
}

/// Metrics and login links belong to each daemon. A request that was forwarded once is not forwarded again: two nodes
/// that take each other for a server would loop.
fn should_forward(api: &ApiState, request: &Request) -> bool {
    let (path, role) = (request.uri().path(), api.ctx.record().role);
    let for_servers = path.starts_with("/v1/") && path != "/v1/login-links";
    let for_anybody = role == NodeRole::Server && (path == "/readyz" || path == "/join");
    (for_servers || for_anybody)
        && !api.ctx.lacks_store()
        && !request.headers().contains_key(NODE_HEADER)
        && api.ctx.removal.code().is_none()
}

/// On whose behalf the request is sent; `None` where this node has no right to vouch for the caller. Root on a worker
/// has no rights on the cluster.
fn identify(api: &ApiState, peer: &Peer, request: &Request) -> Result<Option<OnBehalfOf>, ApiError> {
    let headers = request.headers();
    match request.uri().path() {
        "/readyz" => return Ok(Some(OnBehalfOf::Anyone)),
        "/join" => return check_protocol(headers).map(|()| Some(OnBehalfOf::Anyone)),
        _ => {}
    }
    let credential = match peer {
        Peer::Local(Some(uid)) if may_use_socket(*uid, api.own_uid) => Credential::User(*uid),
        Peer::Local(_) => return Err(socket_forbidden()),
        Peer::Loopback | Peer::Remote(_) if headers.contains_key(header::AUTHORIZATION) => {
            Credential::Token(bearer_token(headers).ok_or_else(unauthenticated)?)
        }
        Peer::Loopback | Peer::Remote(_) => {
            credential_of_session(api, request.method(), headers).ok_or_else(unauthenticated)?
        }
    };
    Ok(match (credential, api.ctx.record().role) {
        (Credential::Token(token), NodeRole::Server | NodeRole::Worker) => Some(OnBehalfOf::Bearer(Box::new(token))),
        (Credential::User(uid), NodeRole::Server) => Some(OnBehalfOf::User(uid)),
        (Credential::User(_), NodeRole::Worker)
        | (Credential::ForwardedUser { .. }, NodeRole::Server | NodeRole::Worker) => None,
    })
}

impl OnBehalfOf {
    fn name(&self) -> String {
        match self {
            Self::User(uid) => format!("uid-{uid}"),
            Self::Bearer(token) => format!("token-{}", token.id),
            Self::Anyone => "anyone".to_owned(),
        }
    }

    fn credential(&self) -> Option<(HeaderName, String)> {
        match self {
            Self::User(uid) => Some((HeaderName::from_static(BEHALF_HEADER), uid.to_string())),
            Self::Bearer(token) => Some((header::AUTHORIZATION, format!("Bearer {}", token.reveal()))),
            Self::Anyone => None,
        }
    }
}

/// The head of the forwarded request: the same path and query, with credentials that this node vouches for.
fn rewrite_head(mut parts: Parts, owner: &OnBehalfOf) -> Result<Parts, ApiError> {
    for name in HEADERS_NOT_FORWARDED {
        parts.headers.remove(name);
    }
    if let Some((name, text)) = owner.credential() {
        parts.headers.insert(name, HeaderValue::try_from(text).map_err(|_| unauthenticated())?);
    }
    if let Some(context) = Telemetry::current_request() {
        parts.headers.insert("traceparent", HeaderValue::try_from(context.header()).map_err(|_| unauthenticated())?);
    }
    let question = parts.uri.path_and_query().map_or("/", |question| question.as_str());
    parts.uri = question.parse::<Uri>().map_err(|_| ApiError::nothing_named("path", parts.uri.path()))?;
    Ok(parts)
}

/// A request that is being forwarded.
struct ForwardedRequest {
    head: RequestHead,
    /// Taken when it is sent.
    body: Option<Body>,
}

/// A request without its body.
struct RequestHead {
    parts: Parts,
    /// Whether the connection will be upgraded to a session.
    is_session: bool,
}

impl ForwardedRequest {
    /// Tries one server after another, the leader first, until one answers.
    async fn send(mut self, api: &ApiState) -> Result<Response<Incoming>, ApiError> {
        let servers = servers_leader_first(api);
        for (at, server) in servers.iter().enumerate() {
            let Ok(connection) = api.ctx.peers.connection_to(server).await else { continue };
            let is_last = at + 1 == servers.len();
            let answered = if self.head.parts.method.is_safe() && !is_last {
                let request = self.head.request(api, server, Body::empty())?;
                tokio::time::timeout(FIRST_BYTE_TIMEOUT, send_on(connection, request)).await
            } else {
                let Some(body) = self.body.take() else { break };
                let request = self.head.request(api, server, body)?;
                Ok(send_on(connection, request).await)
            };
            match answered {
                // It has just stopped being a server.
                Ok(Ok(response)) if response.status() == StatusCode::MISDIRECTED_REQUEST && self.body.is_some() => {}
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(_)) | Err(_) if self.body.is_some() => {}
                Ok(Err(_)) | Err(_) => return Err(no_server_answered(CommitCertainty::Unknown)),
            }
        }
        Err(no_server_answered(CommitCertainty::NotAppended))
    }
}

async fn send_on(mut connection: PeerConnection, request: Request) -> hyper::Result<Response<Incoming>> {
    connection.send_request(request).await
}

impl RequestHead {
    fn request(&self, api: &ApiState, to: &ServerAddress, body: Body) -> Result<Request, ApiError> {
        let mut request = Request::new(body);
        *request.method_mut() = self.parts.method.clone();
        *request.uri_mut() = self.parts.uri.clone();
        *request.headers_mut() = self.parts.headers.clone();
        let headers = request.headers_mut();
        if self.parts.method.is_safe() {
            headers.remove(header::CONTENT_LENGTH);
        }
        api.ctx.peers.sign(to, headers).map_err(|_| no_server_answered(CommitCertainty::NotAppended))?;
        if self.is_session {
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, HeaderValue::from_static(SESSION_PROTOCOL));
        }
        Ok(request)
    }
}

/// The leader was heard from a heartbeat ago; the others may have been gone for long.
fn servers_leader_first(api: &ApiState) -> Vec<ServerAddress> {
    let mut servers = api.ctx.servers();
    if let LeaderLocation::Remote(leader) = api.ctx.leader() {
        servers.retain(|server| *server != leader);
        servers.insert(0, leader);
    }
    servers
}

/// The answer never names the servers: the caller's token was not checked yet.
fn no_server_answered(certainty: CommitCertainty) -> ApiError {
    let message = "none of the servers answers this node";
    ApiError::new(StatusCode::BAD_GATEWAY, ApiErrorCode::NodeUnreachable, message).with_commit(certainty.as_str()).with(
        "hint",
        "ask again, with the same idempotency key; the daemon's log names the servers that cannot be reached",
    )
}

/// Relays an answer as it arrives; its concurrency permit is held until the body ends.
fn relay_response(response: Response<Incoming>, permit: ConcurrencyPermit) -> Response {
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(header::CONNECTION);
    parts.headers.remove(header::TRANSFER_ENCODING);
    let body = body.map_frame(move |frame| {
        let _until_the_end = &permit;
        frame
    });
    Response::from_parts(parts, Body::new(body))
}

/// Relays bytes between caller and server until one side closes.
async fn relay_session(caller: OnUpgrade, server: OnUpgrade, _permit: ConcurrencyPermit) {
    let (Ok(caller), Ok(server)) = tokio::join!(caller, server) else { return };
    // Either side closing ends the session; the error adds nothing.
    let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(caller), &mut TokioIo::new(server)).await;
}

/// Whether a server accepts the token.
pub(crate) async fn token_is_valid(api: &ApiState, token: &Token) -> Result<bool, ApiError> {
    let (parts, body) = Request::new(Body::empty()).into_parts();
    let mut parts = rewrite_head(parts, &OnBehalfOf::Bearer(Box::new(token.clone())))?;
    parts.uri = Uri::from_static("/v1/openapi.json");
    let response =
        ForwardedRequest { head: RequestHead { parts, is_session: false }, body: Some(body) }.send(api).await?;
    match response.status() {
        StatusCode::UNAUTHORIZED => Ok(false),
        status if status.is_success() => Ok(true),
        _ => Err(no_server_answered(CommitCertainty::NotAppended)),
    }
}

/// The uid on whose behalf a node forwards a request.
pub(crate) fn on_behalf_of(headers: &HeaderMap) -> Option<u32> {
    let mut given = headers.get_all(BEHALF_HEADER).iter();
    let (Some(only), None) = (given.next(), given.next()) else { return None };
    only.to_str().ok()?.parse().ok()
}
