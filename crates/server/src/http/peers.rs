//! Nodes over HTTP: members, agents and newcomers.
//!
//! Owns: which node may say what. Invariant: a node has proven its name, and is judged by its seat, before it is heard.

mod beside;

use std::{sync::Arc, time::Duration};

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
    NodeName, Report, RequestCode, StateIndex, WorkFeed,
    access::{Digest, SeatPart},
    work::FileWanted,
};
use longshore_store::{
    State as Kept,
    replicated::{LARGEST_MESSAGE, Replicated},
};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::{
    Desk, Refusal,
    extract::{Largest, Whole, invalid},
    rebalance::preview_here,
};
use crate::{
    doors::Peer,
    hub::Leader,
    keys,
    link::{self, Link},
    peer::{
        Coming, Hello, NODE_HEADER, PROTOCOL, PROTOCOL_HEADER, Promotion, Reported, Traced, Vouched, Welcome, frame,
        pack, unpack,
    },
    reception,
    telemetry::Context,
    tls,
    vault::digest_of,
};

/// A feed with nothing to say says so that often.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// Largest request of a newcomer.
const LARGEST_COMING: usize = 64 * 1024;
/// Time another server has to vouch for one.
const VOUCHING: Duration = Duration::from_secs(1);

/// Routes of nodes; they lead nowhere but over TLS.
pub(super) fn router(desk: &Arc<Desk>) -> Router<Arc<Desk>> {
    let members = Router::new()
        .route("/peer/raft", post(raft))
        .route("/peer/promote", post(promote))
        .route("/peer/demote", post(demote))
        .route("/peer/keys", post(take_keys))
        .route("/peer/keys/fetch", post(give_keys))
        .route("/peer/loads", post(loads))
        .route("/peer/rebalance", post(rebalance))
        .route("/peer/trace", post(trace))
        .route("/peer/logs", post(beside::logs))
        .route("/peer/exec", post(beside::exec))
        .route_layer(middleware::from_fn_with_state(Arc::clone(desk), servers_only));
    let nodes = Router::new()
        .route("/peer/hello", post(hello))
        .route("/peer/servers", post(servers))
        .route("/peer/work", post(work))
        .route("/peer/report", post(report))
        .route("/peer/file", post(file))
        .route("/peer/registry", post(registry))
        .route("/peer/vouch", post(vouch))
        .route_layer(middleware::from_fn_with_state(Arc::clone(desk), seated_only));
    let newcomers = Router::new().route("/join", post(join)).layer(Extension(Largest(LARGEST_COMING)));
    members.merge(nodes).layer(Extension(Largest(LARGEST_MESSAGE + 1024))).merge(newcomers)
}

/// A node that has proven who it is, and by which certificate.
#[derive(Clone, Debug)]
pub(super) struct Known(pub(super) NodeName, pub(super) Digest);

/// Members hear each other before they know every seat, or one that was away could never catch up; only those that left
/// are not heard.
async fn servers_only(
    State(desk): State<Arc<Desk>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let (name, part, fingerprint) = prove(&peer, request.headers())?;
    if let Some(store) = desk.hub.store() {
        let state = store.read_local().state;
        if state.access().is_unseated(&fingerprint) {
            return Err(not_heard(&state, &Known(name, fingerprint)));
        }
    }
    if part != SeatPart::Server {
        return Err(not_seated(&name));
    }
    request.extensions_mut().insert(Known(name, fingerprint));
    Ok(next.run(request).await)
}

async fn seated_only(
    State(desk): State<Arc<Desk>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let (name, _, fingerprint) = prove(&peer, request.headers())?;
    let store = desk.store()?;
    let known = Known(name, fingerprint);
    // A node let in a moment ago may be news to this member.
    if !is_seated(&store.read_local().state, &known) {
        ensure_seated(&store.read().await?.state, &known)?;
    }
    request.extensions_mut().insert(known);
    Ok(next.run(request).await)
}

pub(super) fn is_seated(state: &Kept, Known(name, fingerprint): &Known) -> bool {
    state.access().seat(name).is_some_and(|seat| seat.fingerprint == *fingerprint)
}

/// Refuses a node without a seat, or with another's.
pub(super) fn ensure_seated(state: &Kept, known: &Known) -> Result<(), Refusal> {
    if is_seated(state, known) { Ok(()) } else { Err(not_heard(state, known)) }
}

/// The node at the other end, where it has proven to be one that may keep the log.
pub(super) fn server_at(peer: &Peer, headers: &HeaderMap) -> Result<Known, Refusal> {
    let (name, part, fingerprint) = prove(peer, headers)?;
    match part {
        SeatPart::Server => Ok(Known(name, fingerprint)),
        SeatPart::Worker => Err(not_seated(&name)),
    }
}

/// Refuses whoever would misunderstand, or be misunderstood.
pub(super) fn speaks_alike(headers: &HeaderMap) -> Result<(), Refusal> {
    // Those who do not say spoke the first one.
    let theirs = headers.get(PROTOCOL_HEADER).map_or(Some("1"), |said| said.to_str().ok()).unwrap_or("?");
    if theirs == PROTOCOL {
        return Ok(());
    }
    let message = format!("this daemon speaks protocol {PROTOCOL} between nodes, and the caller speaks {theirs}");
    let refusal = Refusal::new(StatusCode::UPGRADE_REQUIRED, RequestCode::ProtocolMismatch, message);
    Err(refusal.with("hint", "run the same version of longshore on all nodes; what they run meanwhile runs on"))
}

fn unproven() -> Refusal {
    let message = "only nodes of this cluster may say this";
    Refusal::new(StatusCode::UNAUTHORIZED, RequestCode::Unauthenticated, message)
}

fn prove(peer: &Peer, headers: &HeaderMap) -> Result<(NodeName, SeatPart, Digest), Refusal> {
    let Peer::Remote(Some(certificate)) = peer else { return Err(unproven()) };
    let name = headers.get(NODE_HEADER).and_then(|name| std::str::from_utf8(name.as_bytes()).ok());
    let name = NodeName::from(name.ok_or_else(unproven)?);
    let part = tls::proves(certificate, &name).ok_or_else(unproven)?;
    speaks_alike(headers)?;
    Ok((name, part, digest_of(certificate)))
}

/// Why a node that has proven its name is not heard. One that left is told so, and up to when what it runs was decided:
/// that none of it is wanted there is all it learns.
fn not_heard(state: &Kept, known: &Known) -> Refusal {
    let Known(name, fingerprint) = known;
    if !state.access().is_unseated(fingerprint) {
        return not_seated(name);
    }
    if state.node(name).is_some() {
        let message = format!("the certificate of `{name}` no longer counts; the node has to join again");
        return Refusal::new(StatusCode::FORBIDDEN, RequestCode::CertificateVoid, message);
    }
    let message = format!("`{name}` was removed from the cluster");
    let refusal = Refusal::new(StatusCode::FORBIDDEN, RequestCode::NodeRemoved, message);
    refusal.with("incarnation", state.access().incarnation()).with("index", state.index().0)
}

fn not_seated(name: &NodeName) -> Refusal {
    let message = format!("`{name}` is not part of this cluster, or not in a way that allows this");
    Refusal::new(StatusCode::FORBIDDEN, RequestCode::Forbidden, message)
}

async fn raft(State(desk): State<Arc<Desk>>, Whole(message): Whole) -> Result<Vec<u8>, Refusal> {
    Ok(desk.store()?.serve(&message).await)
}

/// Whoever makes this node keep the log decides what it runs from then on. A certificate alone is not enough for that: a
/// server that left still has one, and a node without a log cannot know that it left. Those it has trusted so far can.
async fn promote(
    State(desk): State<Arc<Desk>>,
    Extension(known): Extension<Known>,
    Whole(message): Whole,
) -> Result<Vec<u8>, Refusal> {
    let Promotion { member, vault } = read(&message)?;
    if desk.hub.place().part != SeatPart::Server {
        return Err(not_seated(&known.0));
    }
    ensure_trusted(&desk, &known).await?;
    let served = desk.hub.serve(member, vault).await;
    served.map(|_| Vec::new()).map_err(|error| failed(&error))
}

async fn take_keys(State(desk): State<Arc<Desk>>, Whole(message): Whole) -> Result<Vec<u8>, Refusal> {
    desk.store()?;
    write(&keys::take(&desk.hub, &read(&message)?).map_err(|error| failed(&error))?)
}

async fn give_keys(State(desk): State<Arc<Desk>>, Whole(message): Whole) -> Result<Vec<u8>, Refusal> {
    desk.store()?;
    write(&keys::some(&desk.hub, &read(&message)?))
}

/// Refuses servers that left, also where no log says who did.
async fn ensure_trusted(desk: &Desk, known: &Known) -> Result<(), Refusal> {
    if desk.hub.store().is_some() {
        // Those with a log were asked about it at the door.
        return Ok(());
    }
    let servers = Link::of(&desk.hub).servers().await.map_err(|error| failed(&error))?;
    if servers.iter().any(|server| server.name == known.0) && !is_disowned(desk, known).await {
        return Ok(());
    }
    Err(not_seated(&known.0))
}

/// Whether another server says that a node has left: the one that left would say that it has not. The only server there
/// is, and one that nobody else can be asked about, is believed.
async fn is_disowned(desk: &Desk, Known(name, fingerprint): &Known) -> bool {
    let Ok(question) = pack(&Vouched { node: name.clone(), fingerprint: fingerprint.clone() }) else { return true };
    for other in desk.hub.servers().into_iter().filter(|other| other.name != *name) {
        let asked = desk.hub.calls.post(&other, "/peer/vouch", question.clone());
        let Ok(Ok(answer)) = tokio::time::timeout(VOUCHING, asked).await else { continue };
        return unpack::<bool>(&answer) != Ok(true);
    }
    false
}

/// Whether a node is a server of this cluster, for one that cannot know.
async fn vouch(State(desk): State<Arc<Desk>>, Whole(message): Whole) -> Result<Vec<u8>, Refusal> {
    let Vouched { node, fingerprint } = read(&message)?;
    let state = desk.store()?.read().await?.state;
    let is_server = state.access().seat(&node).is_some_and(|seat| seat.part == SeatPart::Server);
    write(&(is_server && is_seated(&state, &Known(node, fingerprint))))
}

async fn demote(State(desk): State<Arc<Desk>>) -> Result<Vec<u8>, Refusal> {
    desk.hub.cease().await.map(|()| Vec::new()).map_err(|error| failed(&error))
}

async fn hello(
    State(desk): State<Arc<Desk>>,
    Extension(Known(node, _)): Extension<Known>,
    Whole(message): Whole,
) -> Result<Vec<u8>, Refusal> {
    let hello: Hello = read(&message)?;
    write(&reception::welcome(&desk.hub, &desk.store()?, &node, hello).await?)
}

/// Those who keep the log, by a read that is not old: somebody who has just left is not among them.
async fn servers(State(desk): State<Arc<Desk>>) -> Result<Vec<u8>, Refusal> {
    desk.store()?.read().await?;
    write(&Welcome { servers: desk.hub.servers() })
}

/// How busy every node last said it is, as far as this one has heard.
async fn loads(State(desk): State<Arc<Desk>>) -> Result<Vec<u8>, Refusal> {
    write(&desk.hub.loads.all())
}

/// What evening out would move, for a server that does not lead.
async fn rebalance(State(desk): State<Arc<Desk>>) -> Result<Vec<u8>, Refusal> {
    write(&preview_here(&desk).await?)
}

async fn trace(State(desk): State<Arc<Desk>>, Whole(message): Whole) -> Result<Vec<u8>, Refusal> {
    let Traced { index, context } = read(&message)?;
    desk.hub.telemetry.committed_elsewhere(StateIndex(index), Context::of_caller(&context));
    Ok(Vec::new())
}

async fn report(
    State(desk): State<Arc<Desk>>,
    Extension(Known(node, _)): Extension<Known>,
    Whole(message): Whole,
) -> Result<Vec<u8>, Refusal> {
    let reports: Vec<Report> = read(&message)?;
    let reported = match desk.hub.leader() {
        Leader::Here(store) => {
            reception::take_reports(&desk.hub, &store, &node, reports).await?;
            let sample_every_ms = link::sample_every_ms(&store);
            Reported::Taken { beat_every_ms: desk.hub.pulse.rhythm_ms(), sample_every_ms }
        }
        Leader::There(leader) => Reported::NotLeading(Some(leader)),
        Leader::Unknown => Reported::NotLeading(None),
    };
    write(&reported)
}

async fn file(
    State(desk): State<Arc<Desk>>,
    Extension(Known(node, _)): Extension<Known>,
    Whole(message): Whole,
) -> Result<Vec<u8>, Refusal> {
    let wanted: FileWanted = read(&message)?;
    write(&reception::file(&desk.hub, &desk.store()?, &node, &wanted).await?)
}

async fn registry(
    State(desk): State<Arc<Desk>>,
    Extension(Known(node, _)): Extension<Known>,
    Whole(message): Whole,
) -> Result<Vec<u8>, Refusal> {
    let registry: String = read(&message)?;
    write(&reception::registry_login(&desk.hub, &desk.store()?, &node, &registry).await?)
}

async fn work(State(desk): State<Arc<Desk>>, Extension(known): Extension<Known>) -> Result<Response, Refusal> {
    let store = desk.store()?;
    let feed = link::follow(store.clone(), known.0.clone()).await.map_err(|error| failed(&error))?;
    let listener = Listener { store, known, feed };
    Ok(Response::new(Body::from_stream(stream::unfold(listener, next_frame))))
}

/// A node that is told its work, while it has its seat.
struct Listener {
    store: Replicated,
    known: Known,
    feed: mpsc::Receiver<WorkFeed>,
}

/// The next message of a feed, or a sign of life.
async fn next_frame(mut listener: Listener) -> Option<(Result<Vec<u8>, String>, Listener)> {
    let message = match tokio::time::timeout(SIGN_OF_LIFE, listener.feed.recv()).await {
        Ok(Some(message)) => Some(message),
        Ok(None) => return None,
        Err(_) => None,
    };
    is_seated(&listener.store.read_local().state, &listener.known).then(|| (frame(&message), listener))
}

async fn join(
    State(desk): State<Arc<Desk>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Whole(message): Whole,
) -> Result<Vec<u8>, Refusal> {
    let Peer::Remote(_) = peer else { return Err(unproven()) };
    speaks_alike(&headers)?;
    let coming: Coming = read(&message)?;
    let store = desk.store()?;
    // Whoever shows a token this member knows is let through; those who guess share what is left, and cannot keep the
    // others out.
    if !reception::is_expected(&store.read_local().state, &coming) {
        let message = "too many want to join at once; try again in a moment";
        desk.hub.newcomers.pass().map_err(|wait| Refusal::too_often(wait, message))?;
    }
    write(&reception::admit(&desk.hub, &store, &coming).await?)
}

fn read<T: DeserializeOwned>(message: &[u8]) -> Result<T, Refusal> {
    // Nothing of it is repeated: there may be a token in it.
    unpack(message).map_err(|_| invalid("the message is not understood"))
}

fn write(answer: &impl serde::Serialize) -> Result<Vec<u8>, Refusal> {
    pack(answer).map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, RequestCode::NotReady, error))
}

fn failed(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, RequestCode::NotReady, error.to_string())
}
