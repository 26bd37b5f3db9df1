//! Handlers of the node RPC: members, agents and joining nodes.
//!
//! Owns: which node may call what. Invariant: a node is authenticated by its certificate and checked against its
//! membership before its message is read.

mod logs_exec;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Extension, Request, State},
    http::{HeaderMap, StatusCode},
    middleware::{self, Next},
    response::Response,
    routing::post,
};
use futures_util::stream;
use longshore_model::{
    ApiErrorCode, NodeName, Report, StateIndex,
    access::{Digest, NodeRole},
    agent_protocol::FileRequest,
};
use longshore_store::{
    State as ClusterState,
    replicated::{MAX_MESSAGE_BYTES, Replicated},
};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::{
    api::{
        ApiError, ApiState,
        extract::{BodyLimit, RawBody, invalid},
        listeners::Peer,
        members,
        rebalance::preview_here,
    },
    lifecycle::node_context::LeaderLocation,
    node_rpc::{
        Hello, HelloAnswer, JoinRequest, NODE_HEADER, PROTOCOL, PROTOCOL_HEADER, Promotion, ReportAnswer, TraceNotice,
        VouchRequest,
        control_link::{self, NodeLink},
        engine_query, frame, pack, service, unpack, volume_removal,
    },
    observability::telemetry::TraceContext,
    security::{key_rotation, keyring::digest_of, tls},
};

/// An idle feed sends a keepalive that often.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// Largest join request in bytes.
const MAX_JOIN_BODY: usize = 64 * 1024;
/// Time another server has to vouch for one.
const VOUCH_TIMEOUT: Duration = Duration::from_secs(1);

/// Routes for nodes; they are reachable over TLS only.
pub(crate) fn router(api: &Arc<ApiState>) -> Router<Arc<ApiState>> {
    let members = Router::new()
        .route("/peer/raft", post(raft))
        .route("/peer/promote", post(promote))
        .route("/peer/demote", post(demote))
        .route("/peer/keys", post(take_keys))
        .route("/peer/keys/fetch", post(give_keys))
        .route("/peer/loads", post(loads))
        .route("/peer/conditions", post(conditions))
        .route("/peer/rebalance", post(rebalance))
        .route("/peer/progress", post(progress))
        .route("/peer/trace", post(trace))
        .route("/peer/logs", post(logs_exec::logs))
        .route("/peer/exec", post(logs_exec::exec))
        .route("/peer/engine", post(engine))
        .route("/peer/volume/remove", post(remove_volume))
        .route_layer(middleware::from_fn_with_state(Arc::clone(api), require_server));
    let nodes = Router::new()
        .route("/peer/hello", post(hello))
        .route("/peer/servers", post(servers))
        .route("/peer/work", post(work))
        .route("/peer/network", post(network))
        .route("/peer/report", post(report))
        .route("/peer/file", post(file))
        .route("/peer/registry", post(registry))
        .route("/peer/vouch", post(vouch))
        .route_layer(middleware::from_fn_with_state(Arc::clone(api), require_member));
    let newcomers = Router::new().route("/join", post(join)).layer(Extension(BodyLimit(MAX_JOIN_BODY)));
    members.merge(nodes).layer(Extension(BodyLimit(MAX_MESSAGE_BYTES + 1024))).merge(newcomers)
}

/// An authenticated node: its name and the fingerprint of its certificate.
#[derive(Clone, Debug)]
pub(crate) struct PeerNode {
    pub(crate) name: NodeName,
    pub(crate) fingerprint: Digest,
}

/// Allows servers that are members. A certificate alone opens nothing: whoever has a copy of the authority's key could
/// make one for a node that never was.
async fn require_server(
    State(api): State<Arc<ApiState>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (name, role, fingerprint) = authenticate_peer(&peer, request.headers())?;
    if let Some(store) = api.ctx.store() {
        let state = store.read_local().state;
        if state.access().is_revoked(&fingerprint) {
            return Err(refuse_peer(&state, &PeerNode { name, fingerprint }));
        }
    }
    if role != NodeRole::Server {
        return Err(not_a_member(&name));
    }
    let peer_node = PeerNode { name, fingerprint };
    if let Some(store) = api.ctx.store() {
        let state = store.read_local().state;
        if !is_member(&state, &peer_node) {
            ensure_member_elsewhere(&api, &state, &peer_node, request.uri().path()).await?;
        }
    }
    request.extensions_mut().insert(peer_node);
    Ok(next.run(request).await)
}

/// A server whose membership is not known here: it joined a moment ago, or this member was away. Raft messages are what
/// makes it known, so they wait for no quorum: another server vouches for the sender. Where no other answers, all may
/// have been replaced meanwhile, and the sender is the only one that can say so.
async fn ensure_member_elsewhere(
    api: &Arc<ApiState>,
    state: &ClusterState,
    peer_node: &PeerNode,
    path: &str,
) -> Result<(), ApiError> {
    // A member that was just promoted has no state yet; `promote` checked who did it.
    let knows_nobody = state.access().memberships().next().is_none();
    if knows_nobody || api.ctx.vouched.is_fresh(&peer_node.fingerprint) {
        return Ok(());
    }
    if path != "/peer/raft" {
        return ensure_member(&api.store()?.read().await?.state, peer_node);
    }
    // In a task of its own: a sender that gives up meanwhile finds the answer at its next message.
    let (asking, about) = (Arc::clone(api), peer_node.clone());
    let asked = tokio::spawn(async move {
        let is_removed = is_removed_elsewhere(&asking, &about).await;
        if !is_removed {
            asking.ctx.vouched.insert(about.fingerprint);
        }
        is_removed
    });
    if asked.await.unwrap_or(true) { Err(refuse_peer(state, peer_node)) } else { Ok(()) }
}

async fn require_member(
    State(api): State<Arc<ApiState>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (name, _, fingerprint) = authenticate_peer(&peer, request.headers())?;
    let store = api.store()?;
    let peer_node = PeerNode { name, fingerprint };
    // A node that was just admitted may be unknown to this member.
    if !is_member(&store.read_local().state, &peer_node) {
        ensure_member(&store.read().await?.state, &peer_node)?;
    }
    request.extensions_mut().insert(peer_node);
    Ok(next.run(request).await)
}

pub(crate) fn is_member(state: &ClusterState, PeerNode { name, fingerprint }: &PeerNode) -> bool {
    state.access().membership(name).is_some_and(|membership| membership.fingerprint == *fingerprint)
}

/// Refuses a node that is not a member, or whose certificate is another one.
pub(crate) fn ensure_member(state: &ClusterState, peer_node: &PeerNode) -> Result<(), ApiError> {
    if is_member(state, peer_node) { Ok(()) } else { Err(refuse_peer(state, peer_node)) }
}

/// The remote node, if its certificate proves that it may be a server.
pub(crate) fn server_at(peer: &Peer, headers: &HeaderMap) -> Result<PeerNode, ApiError> {
    let (name, role, fingerprint) = authenticate_peer(peer, headers)?;
    match role {
        NodeRole::Server => Ok(PeerNode { name, fingerprint }),
        NodeRole::Worker => Err(not_a_member(&name)),
    }
}

/// Refuses another protocol version.
pub(crate) fn check_protocol(headers: &HeaderMap) -> Result<(), ApiError> {
    // The first version sent no header.
    let theirs = headers.get(PROTOCOL_HEADER).map_or(Some("1"), |said| said.to_str().ok()).unwrap_or("?");
    if theirs == PROTOCOL {
        return Ok(());
    }
    let message = format!("this daemon uses protocol version {PROTOCOL} between nodes, and the caller uses {theirs}");
    let refusal = ApiError::new(StatusCode::UPGRADE_REQUIRED, ApiErrorCode::ProtocolMismatch, message);
    Err(refusal.with("hint", "run the same version of longshore on all nodes; replicas keep running meanwhile"))
}

fn node_certificate_required() -> ApiError {
    let message = "this route is for nodes of this cluster, which show a certificate";
    ApiError::new(StatusCode::UNAUTHORIZED, ApiErrorCode::Unauthenticated, message)
}

fn authenticate_peer(peer: &Peer, headers: &HeaderMap) -> Result<(NodeName, NodeRole, Digest), ApiError> {
    let Peer::Remote(Some(certificate)) = peer else { return Err(node_certificate_required()) };
    let name = headers.get(NODE_HEADER).and_then(|name| std::str::from_utf8(name.as_bytes()).ok());
    let name = NodeName::from(name.ok_or_else(node_certificate_required)?);
    let role = tls::proves(certificate, &name).ok_or_else(node_certificate_required)?;
    check_protocol(headers)?;
    Ok((name, role, digest_of(certificate)))
}

/// Why an authenticated node is refused. A removed node also learns up to which state its work was decided, and nothing
/// else.
fn refuse_peer(state: &ClusterState, peer_node: &PeerNode) -> ApiError {
    let PeerNode { name, fingerprint } = peer_node;
    if !state.access().is_revoked(fingerprint) {
        return not_a_member(name);
    }
    if state.node(name).is_some() {
        let message = format!("the certificate of `{name}` was revoked; the node has to join again");
        return ApiError::new(StatusCode::FORBIDDEN, ApiErrorCode::CertificateRevoked, message)
            .with("node", name.as_str());
    }
    let message = format!("`{name}` was removed from the cluster");
    let refusal = ApiError::new(StatusCode::FORBIDDEN, ApiErrorCode::NodeRemoved, message);
    refusal.with("node", name.as_str()).with("incarnation", state.access().incarnation()).with("index", state.index().0)
}

fn not_a_member(name: &NodeName) -> ApiError {
    let message = format!("node `{name}` is not a member of this cluster, or its role does not allow this");
    ApiError::new(StatusCode::FORBIDDEN, ApiErrorCode::Forbidden, message)
}

async fn raft(State(api): State<Arc<ApiState>>, RawBody(message): RawBody) -> Result<Vec<u8>, ApiError> {
    Ok(api.store()?.serve(&message).await)
}

/// Makes this node a member. Whoever can do that controls what it runs, so a certificate alone is not enough: a removed
/// server still has one, and a node without a store cannot know that it was removed. The servers it knew so far can.
async fn promote(
    State(api): State<Arc<ApiState>>,
    Extension(peer_node): Extension<PeerNode>,
    RawBody(message): RawBody,
) -> Result<Vec<u8>, ApiError> {
    let Promotion { member, keyring } = read(&message)?;
    if api.ctx.record().role != NodeRole::Server {
        return Err(not_a_member(&peer_node.name));
    }
    ensure_trusted(&api, &peer_node).await?;
    let served = api.ctx.serve(member, keyring).await;
    served.map(|_| Vec::new()).map_err(|error| failed(&error))
}

async fn take_keys(State(api): State<Arc<ApiState>>, RawBody(message): RawBody) -> Result<Vec<u8>, ApiError> {
    api.store()?;
    write(&key_rotation::add_keys(&api.ctx, &read(&message)?).map_err(|error| failed(&error))?)
}

async fn give_keys(State(api): State<Arc<ApiState>>, RawBody(message): RawBody) -> Result<Vec<u8>, ApiError> {
    api.store()?;
    write(&key_rotation::select(&api.ctx, &read(&message)?))
}

/// Refuses removed servers, also on a node without a store.
async fn ensure_trusted(api: &ApiState, peer_node: &PeerNode) -> Result<(), ApiError> {
    if api.ctx.store().is_some() {
        // A member checked that in the middleware.
        return Ok(());
    }
    let servers = NodeLink::of(&api.ctx).servers().await.map_err(|error| failed(&error))?;
    if servers.iter().any(|server| server.name == peer_node.name) && !is_removed_elsewhere(api, peer_node).await {
        return Ok(());
    }
    Err(not_a_member(&peer_node.name))
}

/// Whether another server says that this one was removed; its own answer would be worthless. The only server, and one
/// about which nobody else can be asked, is trusted.
async fn is_removed_elsewhere(api: &ApiState, PeerNode { name, fingerprint }: &PeerNode) -> bool {
    let Ok(question) = pack(&VouchRequest { node: name.clone(), fingerprint: fingerprint.clone() }) else {
        return true;
    };
    for other in api.ctx.servers().into_iter().filter(|other| other.name != *name) {
        let asked = api.ctx.peers.post(&other, "/peer/vouch", question.clone());
        let Ok(Ok(answer)) = tokio::time::timeout(VOUCH_TIMEOUT, asked).await else { continue };
        return unpack::<bool>(&answer) != Ok(true);
    }
    false
}

/// Whether a node is a server, for a node without a store.
async fn vouch(State(api): State<Arc<ApiState>>, RawBody(message): RawBody) -> Result<Vec<u8>, ApiError> {
    let VouchRequest { node, fingerprint } = read(&message)?;
    let state = api.store()?.read().await?.state;
    let is_server = state.access().membership(&node).is_some_and(|membership| membership.role == NodeRole::Server);
    write(&(is_server && is_member(&state, &PeerNode { name: node, fingerprint })))
}

async fn demote(State(api): State<Arc<ApiState>>) -> Result<Vec<u8>, ApiError> {
    api.ctx.stop_serving().await.map(|()| Vec::new()).map_err(|error| failed(&error))
}

async fn hello(
    State(api): State<Arc<ApiState>>,
    Extension(PeerNode { name: node, .. }): Extension<PeerNode>,
    RawBody(message): RawBody,
) -> Result<Vec<u8>, ApiError> {
    let hello: Hello = read(&message)?;
    write(&service::register(&api.ctx, &api.store()?, &node, hello).await?)
}

/// The members after a linearizable read: a server that was just removed is not among them.
async fn servers(State(api): State<Arc<ApiState>>) -> Result<Vec<u8>, ApiError> {
    api.store()?.read().await?;
    write(&HelloAnswer { servers: api.ctx.servers() })
}

/// The last load of every node that this member has received.
async fn loads(State(api): State<Arc<ApiState>>) -> Result<Vec<u8>, ApiError> {
    write(&api.ctx.node_loads.all())
}

async fn progress(State(api): State<Arc<ApiState>>) -> Result<Vec<u8>, ApiError> {
    write(&members::own_progress(&api))
}

/// The conditions of every node that this member has received.
async fn conditions(State(api): State<Arc<ApiState>>) -> Result<Vec<u8>, ApiError> {
    write(&api.ctx.node_conditions.all())
}

/// What the engine of this node has, for a server that applies a manifest.
async fn engine(
    State(api): State<Arc<ApiState>>,
    Extension(peer_node): Extension<PeerNode>,
    RawBody(message): RawBody,
) -> Result<Vec<u8>, ApiError> {
    ensure_trusted(&api, &peer_node).await?;
    write(&engine_query::answer(&api.ctx, &read(&message)?).await.unwrap_or_default())
}

/// Deletes a volume of this node, for a server that was asked to.
async fn remove_volume(
    State(api): State<Arc<ApiState>>,
    Extension(peer_node): Extension<PeerNode>,
    RawBody(message): RawBody,
) -> Result<Vec<u8>, ApiError> {
    ensure_trusted(&api, &peer_node).await?;
    write(&volume_removal::remove_here(&api.ctx, &read(&message)?).await)
}

/// The preview of evening out, for a server that does not lead.
async fn rebalance(State(api): State<Arc<ApiState>>) -> Result<Vec<u8>, ApiError> {
    write(&preview_here(&api).await?)
}

async fn trace(State(api): State<Arc<ApiState>>, RawBody(message): RawBody) -> Result<Vec<u8>, ApiError> {
    let TraceNotice { index, context } = read(&message)?;
    api.ctx.telemetry.committed_elsewhere(StateIndex(index), TraceContext::parse(&context));
    Ok(Vec::new())
}

async fn report(
    State(api): State<Arc<ApiState>>,
    Extension(PeerNode { name: node, .. }): Extension<PeerNode>,
    RawBody(message): RawBody,
) -> Result<Vec<u8>, ApiError> {
    let reports: Vec<Report> = read(&message)?;
    let reported = match api.ctx.leader() {
        LeaderLocation::Local(store) => {
            service::accept_reports(&api.ctx, &store, &node, reports).await?;
            let sample_every_ms = control_link::sample_every_ms(&store);
            let beat_every_ms = api.ctx.heartbeats.interval_ms();
            ReportAnswer::Accepted { beat_every_ms, sample_every_ms, servers: api.ctx.servers() }
        }
        LeaderLocation::Remote(leader) => ReportAnswer::NotLeading(Some(leader)),
        LeaderLocation::Unknown => ReportAnswer::NotLeading(None),
    };
    write(&reported)
}

async fn file(
    State(api): State<Arc<ApiState>>,
    Extension(PeerNode { name: node, .. }): Extension<PeerNode>,
    RawBody(message): RawBody,
) -> Result<Vec<u8>, ApiError> {
    let wanted: FileRequest = read(&message)?;
    write(&service::file(&api.ctx, &api.store()?, &node, &wanted).await?)
}

async fn registry(
    State(api): State<Arc<ApiState>>,
    Extension(PeerNode { name: node, .. }): Extension<PeerNode>,
    RawBody(message): RawBody,
) -> Result<Vec<u8>, ApiError> {
    let registry: String = read(&message)?;
    write(&service::registry_login(&api.ctx, &api.store()?, &node, &registry).await?)
}

async fn work(
    State(api): State<Arc<ApiState>>,
    Extension(peer_node): Extension<PeerNode>,
) -> Result<Response, ApiError> {
    let store = api.store()?;
    let feed = control_link::open_feed(store.clone(), peer_node.name.clone()).await.map_err(|error| failed(&error))?;
    Ok(stream_feed(store, peer_node, feed))
}

/// The network state, for the machine of a node.
async fn network(
    State(api): State<Arc<ApiState>>,
    Extension(peer_node): Extension<PeerNode>,
) -> Result<Response, ApiError> {
    let store = api.store()?;
    let feed = control_link::open_network_feed(&api.ctx, &store, BTreeSet::from([peer_node.name.clone()]))
        .await
        .map_err(|error| failed(&error))?;
    Ok(stream_feed(store, peer_node, feed))
}

fn stream_feed<T: serde::Serialize + Send + 'static>(
    store: Replicated,
    peer_node: PeerNode,
    feed: mpsc::Receiver<T>,
) -> Response {
    let stream = FeedStream { store, peer_node, feed };
    Response::new(Body::from_stream(stream::unfold(stream, next_frame)))
}

/// An open feed of a node, while it is a member.
struct FeedStream<T> {
    store: Replicated,
    peer_node: PeerNode,
    feed: mpsc::Receiver<T>,
}

/// The next message of a feed, or a keepalive.
async fn next_frame<T: serde::Serialize>(
    mut stream: FeedStream<T>,
) -> Option<(Result<Vec<u8>, String>, FeedStream<T>)> {
    let message = match tokio::time::timeout(KEEPALIVE_INTERVAL, stream.feed.recv()).await {
        Ok(Some(message)) => Some(message),
        Ok(None) => return None,
        Err(_) => None,
    };
    is_member(&stream.store.read_local().state, &stream.peer_node).then(|| (frame(&message), stream))
}

async fn join(
    State(api): State<Arc<ApiState>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    RawBody(message): RawBody,
) -> Result<Vec<u8>, ApiError> {
    let Peer::Remote(_) = peer else { return Err(node_certificate_required()) };
    check_protocol(&headers)?;
    let join_request: JoinRequest = read(&message)?;
    let store = api.store()?;
    // Requests with a token that this member knows are not limited; those with unknown tokens share a rate limit, so
    // that guessing does not keep others out.
    if !service::has_known_token(&store.read_local().state, &join_request) {
        let message = "too many join requests; try again in a moment";
        api.ctx.join_attempts.take().map_err(|wait| ApiError::too_often(wait, message))?;
    }
    write(&service::admit_node(&api.ctx, &store, &join_request).await?)
}

fn read<T: DeserializeOwned>(message: &[u8]) -> Result<T, ApiError> {
    // The error repeats nothing of the message: it may hold a token.
    unpack(message).map_err(|_| invalid("the message cannot be parsed"))
}

fn write(answer: &impl serde::Serialize) -> Result<Vec<u8>, ApiError> {
    pack(answer).map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, ApiErrorCode::NotReady, error))
}

fn failed(error: &dyn std::error::Error) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ApiErrorCode::NotReady, error.to_string())
}
