//! Requests to a node that keeps no log, handed on to one that does.
//!
//! ```text
//! caller ─▶ this node: who is it? ─▶ a server: may they? ─▶ answer, stream or conversation, unread, back the same way
//! ```
//!
//! Owns: which requests go on, whose they are said to be, and whom they go to.
//! Must not touch: what is asked. Whoever is asked judges it as if it had been asked there.
//! Invariant: what a caller has proven to this node goes along, and nothing that a caller merely claims does; a request goes
//! on once, and what may have been heard is not said to another unless saying it twice is the same.

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
use longshore_model::{RequestCode, access::SeatPart};
use longshore_store::replicated::Fate;

use super::{
    Desk, Refusal,
    caller::{Proof, borne, not_of_this_machine, stranger},
    dashboard::shown_by_session,
    exec::switched,
    peers::speaks_alike,
};
use crate::{
    doors::Peer,
    hub::Leader,
    limit::Inside,
    peer::{Connection, NODE_HEADER, PROTOCOL_HEADER, Server},
    telemetry::Telemetry,
};

/// Header in which a server says for which user of its machine it asks; its certificate says that it may.
pub(super) const BEHALF_HEADER: &str = "longshore-on-behalf-of";

/// Time a server has to begin its answer while there is another to ask. One that is stopped still takes connections.
const ANSWER: Duration = Duration::from_secs(3);

/// Time a server that has just been started has to open its log; others could be asked meanwhile, where there are any.
const OPENING: Duration = Duration::from_secs(5);

/// What is between two ends, or for this node alone.
const NOT_CARRIED: [HeaderName; 10] = [
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

/// Whose request it is.
enum Whose {
    /// A user of this machine.
    User(u32),
    /// Whoever has this token.
    Bearer(Box<Token>),
    /// Nobody has to say: it is answered to everybody, or says itself who asks.
    Anybody,
}

/// Hands a request on where this node cannot answer it itself.
pub(super) async fn hand_on(
    State(desk): State<Arc<Desk>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    if request.uri().path().starts_with("/v1/") {
        desk.hub.opened(OPENING).await;
    }
    if desk.hub.store().is_some() || !goes_on(&desk, &request) {
        return Ok(next.run(request).await);
    }
    let Some(whose) = whose(&desk, &peer, &request)? else { return Ok(next.run(request).await) };
    let inside = desk.handed_on.enter(&whose.name()).ok_or_else(|| {
        let message = "too much is asked of this node at once; end a stream first, or ask a server";
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, RequestCode::TooManyRequests, message)
    })?;
    let talks = request.headers().get(header::UPGRADE).is_some_and(|protocol| protocol == SESSION_PROTOCOL);
    let caller = talks.then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    // Nobody reads a body of a question, which may then be asked of one server after the other.
    let body = if parts.method.is_safe() { Body::empty() } else { body };
    let asked = Asked { head: Head { parts: addressed(parts, &whose)?, talks }, body: Some(body) };
    let mut response = asked.send(&desk).await?;
    match caller {
        Some(caller) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            tokio::spawn(connect(caller, hyper::upgrade::on(&mut response), inside));
            Ok(switched())
        }
        Some(_) | None => Ok(carried_back(response, inside)),
    }
}

/// Figures are each daemon's own, and so is a link to a page of it. What was handed on once is not handed on again: two
/// nodes that take each other for a server would never end.
fn goes_on(desk: &Desk, request: &Request) -> bool {
    let (path, part) = (request.uri().path(), desk.hub.place().part);
    let for_servers = path.starts_with("/v1/") && path != "/v1/login-links";
    let for_anybody = part == SeatPart::Server && (path == "/readyz" || path == "/join");
    (for_servers || for_anybody)
        && !desk.hub.lacks_store()
        && !request.headers().contains_key(NODE_HEADER)
        && desk.hub.expulsion.code().is_none()
}

/// Whose request it is; nobody's, where this node has no right to ask for them. Being root on a machine that only runs
/// work is no right to rule the cluster.
fn whose(desk: &Desk, peer: &Peer, request: &Request) -> Result<Option<Whose>, Refusal> {
    let headers = request.headers();
    match request.uri().path() {
        "/readyz" => return Ok(Some(Whose::Anybody)),
        "/join" => return speaks_alike(headers).map(|()| Some(Whose::Anybody)),
        _ => {}
    }
    let proof = match peer {
        Peer::Local(Some(uid)) if *uid == 0 || *uid == desk.own_uid => Proof::User(*uid),
        Peer::Local(_) => return Err(not_of_this_machine()),
        Peer::Loopback | Peer::Remote(_) if headers.contains_key(header::AUTHORIZATION) => {
            Proof::Token(borne(headers).ok_or_else(stranger)?)
        }
        Peer::Loopback | Peer::Remote(_) => shown_by_session(desk, request.method(), headers).ok_or_else(stranger)?,
    };
    Ok(match (proof, desk.hub.place().part) {
        (Proof::Token(token), SeatPart::Server | SeatPart::Worker) => Some(Whose::Bearer(Box::new(token))),
        (Proof::User(uid), SeatPart::Server) => Some(Whose::User(uid)),
        (Proof::User(_), SeatPart::Worker) | (Proof::Neighbour { .. }, SeatPart::Server | SeatPart::Worker) => None,
    })
}

impl Whose {
    fn name(&self) -> String {
        match self {
            Self::User(uid) => format!("uid-{uid}"),
            Self::Bearer(token) => format!("token-{}", token.id),
            Self::Anybody => "anybody".to_owned(),
        }
    }

    fn proof(&self) -> Option<(HeaderName, String)> {
        match self {
            Self::User(uid) => Some((HeaderName::from_static(BEHALF_HEADER), uid.to_string())),
            Self::Bearer(token) => Some((header::AUTHORIZATION, format!("Bearer {}", token.reveal()))),
            Self::Anybody => None,
        }
    }
}

/// A request as it goes on: the same question, with what this node vouches for instead of what the caller said.
fn addressed(mut parts: Parts, whose: &Whose) -> Result<Parts, Refusal> {
    for name in NOT_CARRIED {
        parts.headers.remove(name);
    }
    if let Some((name, text)) = whose.proof() {
        parts.headers.insert(name, HeaderValue::try_from(text).map_err(|_| stranger())?);
    }
    if let Some(context) = Telemetry::request() {
        parts.headers.insert("traceparent", HeaderValue::try_from(context.header()).map_err(|_| stranger())?);
    }
    let question = parts.uri.path_and_query().map_or("/", |question| question.as_str());
    parts.uri = question.parse::<Uri>().map_err(|_| Refusal::not_found("path", parts.uri.path()))?;
    Ok(parts)
}

/// A request under way.
struct Asked {
    head: Head,
    /// Until it was sent.
    body: Option<Body>,
}

/// All of a request but its body.
struct Head {
    parts: Parts,
    /// Whether the connection is to become a conversation.
    talks: bool,
}

impl Asked {
    /// Asks one server after the other, the one that leads first, until one answers.
    async fn send(mut self, desk: &Desk) -> Result<Response<Incoming>, Refusal> {
        let servers = in_turn(desk);
        for (at, server) in servers.iter().enumerate() {
            let Ok(connection) = desk.hub.calls.connected(server).await else { continue };
            let is_last = at + 1 == servers.len();
            let answered = if self.head.parts.method.is_safe() && !is_last {
                let request = self.head.request(desk, server, Body::empty())?;
                tokio::time::timeout(ANSWER, ask(connection, request)).await
            } else {
                let Some(body) = self.body.take() else { break };
                let request = self.head.request(desk, server, body)?;
                Ok(ask(connection, request).await)
            };
            match answered {
                // One that has just ceased to be a server.
                Ok(Ok(response)) if response.status() == StatusCode::MISDIRECTED_REQUEST && self.body.is_some() => {}
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(_)) | Err(_) if self.body.is_some() => {}
                Ok(Err(_)) | Err(_) => return Err(nobody_answers(Fate::Unknown)),
            }
        }
        Err(nobody_answers(Fate::NotAppended))
    }
}

async fn ask(mut connection: Connection, request: Request) -> hyper::Result<Response<Incoming>> {
    connection.send_request(request).await
}

impl Head {
    fn request(&self, desk: &Desk, to: &Server, body: Body) -> Result<Request, Refusal> {
        let mut request = Request::new(body);
        *request.method_mut() = self.parts.method.clone();
        *request.uri_mut() = self.parts.uri.clone();
        *request.headers_mut() = self.parts.headers.clone();
        let headers = request.headers_mut();
        if self.parts.method.is_safe() {
            headers.remove(header::CONTENT_LENGTH);
        }
        desk.hub.calls.sign(to, headers).map_err(|_| nobody_answers(Fate::NotAppended))?;
        if self.talks {
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, HeaderValue::from_static(SESSION_PROTOCOL));
        }
        Ok(request)
    }
}

/// The one that leads was heard of a heartbeat ago; the others may have been away for long.
fn in_turn(desk: &Desk) -> Vec<Server> {
    let mut servers = desk.hub.servers();
    if let Leader::There(leader) = desk.hub.leader() {
        servers.retain(|server| *server != leader);
        servers.insert(0, leader);
    }
    servers
}

/// Never which servers there are: a token was shown, and nobody has looked at it yet.
fn nobody_answers(fate: Fate) -> Refusal {
    let message = "none of the servers answers this node";
    Refusal::new(StatusCode::BAD_GATEWAY, RequestCode::NodeUnreachable, message)
        .with("fate", fate.as_str())
        .with("hint", "ask again, with the same idempotency key; the daemon's log says who cannot be reached")
}

/// An answer as it came, for as long as it takes; it counts as one that is under way until it has ended.
fn carried_back(response: Response<Incoming>, inside: Inside) -> Response {
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(header::CONNECTION);
    parts.headers.remove(header::TRANSFER_ENCODING);
    let body = body.map_frame(move |frame| {
        let _until_the_end = &inside;
        frame
    });
    Response::from_parts(parts, Body::new(body))
}

/// Has two ends talk to each other until one of them has left.
async fn connect(caller: OnUpgrade, server: OnUpgrade, _inside: Inside) {
    let (Ok(caller), Ok(server)) = tokio::join!(caller, server) else { return };
    // One that breaks off is the end for the other, which is all either side has to know.
    let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(caller), &mut TokioIo::new(server)).await;
}

/// Whether a token opens anything, as a server says.
pub(super) async fn opens(desk: &Desk, token: &Token) -> Result<bool, Refusal> {
    let (parts, body) = Request::new(Body::empty()).into_parts();
    let mut parts = addressed(parts, &Whose::Bearer(Box::new(token.clone())))?;
    parts.uri = Uri::from_static("/v1/openapi.json");
    let response = Asked { head: Head { parts, talks: false }, body: Some(body) }.send(desk).await?;
    match response.status() {
        StatusCode::UNAUTHORIZED => Ok(false),
        status if status.is_success() => Ok(true),
        _ => Err(nobody_answers(Fate::NotAppended)),
    }
}

/// For which user of its machine a node asks.
pub(super) fn on_behalf_of(headers: &HeaderMap) -> Option<u32> {
    let mut given = headers.get_all(BEHALF_HEADER).iter();
    let (Some(only), None) = (given.next(), given.next()) else { return None };
    only.to_str().ok()?.parse().ok()
}
