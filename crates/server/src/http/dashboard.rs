//! The dashboard: a page that draws itself from the public API, and the way to log in to it.
//!
//! Owns: the files it is made of, sessions, and links that log in once.
//! Must not touch: what is shown; the page asks for that like everybody else.
//! Invariant: a session is worth what its token is worth at that moment; nothing it is made of comes from elsewhere.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Extension, Json, Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse as _, Redirect, Response},
    routing::{get, post},
};
use longshore_api::{LoginLink, LoginRequest, Token, TokenKind};
use longshore_model::RequestCode;
use serde::Deserialize;

use super::{
    Answer, Desk, Refusal,
    caller::{self, Admission, Knowledge, by_token, stranger},
    extract::{Asked, Largest, Quiet},
    forward,
};
use crate::{
    doors::Peer,
    vault::{digest_of, random_hex},
};

const COOKIE: &str = "longshore";
/// A page of ours says so with this header; a form on somebody else's page cannot.
const OURS: &str = "x-longshore";
/// How long somebody stays logged in.
const SESSION: Duration = Duration::from_hours(12);
/// How long a link is good for.
const LINK: Duration = Duration::from_mins(1);
/// Largest request of somebody who has yet to log in: a token, with room.
const LARGEST_LOGIN: usize = 4096;
/// Sessions kept at once; the oldest make room.
const MOST_SESSIONS: usize = 1000;

/// What lets a session in.
#[derive(Clone)]
enum Proof {
    /// A token, judged anew each time: one that is revoked ends its sessions.
    Token(Box<Token>),
    /// Somebody who was let in another way, and asked for a link.
    Link(Admission),
}

/// Who is logged in, and links not yet followed; both by digest.
#[derive(Default)]
pub(crate) struct Sessions {
    open: Mutex<HashMap<String, (Proof, Instant)>>,
    links: Mutex<HashMap<String, (Admission, Instant)>>,
}

impl Sessions {
    fn begin(&self, proof: Proof) -> Result<String, Refusal> {
        let id = random_hex(32).map_err(crate::reception::ReceptionError::from)?;
        keep(&mut lock(&self.open), digest_of(id.as_bytes()).to_string(), proof, SESSION);
        Ok(id)
    }

    fn link(&self, who: Admission) -> Result<String, Refusal> {
        let code = random_hex(16).map_err(crate::reception::ReceptionError::from)?;
        keep(&mut lock(&self.links), digest_of(code.as_bytes()).to_string(), who, LINK);
        Ok(code)
    }

    fn follow(&self, code: &str) -> Option<Admission> {
        let (who, until) = lock(&self.links).remove(digest_of(code.as_bytes()).as_str())?;
        (Instant::now() < until).then_some(who)
    }

    fn end(&self, id: &str) {
        lock(&self.open).remove(digest_of(id.as_bytes()).as_str());
    }

    fn proof(&self, id: &str) -> Option<Proof> {
        let (proof, until) = lock(&self.open).get(digest_of(id.as_bytes()).as_str()).cloned()?;
        (Instant::now() < until).then_some(proof)
    }
}

fn keep<T>(kept: &mut HashMap<String, (T, Instant)>, key: String, value: T, valid: Duration) {
    let now = Instant::now();
    kept.retain(|_, (_, until)| now < *until);
    if kept.len() >= MOST_SESSIONS
        && let Some(oldest) = kept.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| key.clone())
    {
        kept.remove(&oldest);
    }
    kept.insert(key, (value, now + valid));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whom a session lets in. A change is only taken from a page of ours.
pub(super) async fn by_session(
    desk: &Desk,
    method: &Method,
    headers: &HeaderMap,
    by: Knowledge,
) -> Result<Option<Admission>, Refusal> {
    match logged_in(desk, method, headers) {
        Some(Proof::Token(token)) => by_token(desk, &token, by).await,
        // A link is worth what whoever asked for it is worth, also later.
        Some(Proof::Link(who)) => match who.token() {
            Some(token) => by_token(desk, token, by).await,
            None => Ok(Some(who)),
        },
        None => Ok(None),
    }
}

/// What whoever is logged in has shown, for a server to judge.
pub(super) fn shown_by_session(desk: &Desk, method: &Method, headers: &HeaderMap) -> Option<caller::Proof> {
    Some(match logged_in(desk, method, headers)? {
        Proof::Token(token) => caller::Proof::Token(*token),
        Proof::Link(who) => who.proof().clone(),
    })
}

fn logged_in(desk: &Desk, method: &Method, headers: &HeaderMap) -> Option<Proof> {
    let proof = desk.sessions.proof(session(headers)?)?;
    (method.is_safe() || headers.contains_key(OURS)).then_some(proof)
}

fn session(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get(header::COOKIE)?.to_str().ok()?;
    cookies.split(';').find_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// The pages and the way in.
pub(super) fn router() -> Router<Arc<Desk>> {
    Router::new()
        .route("/", get(async || Redirect::to("/ui/")))
        .route("/ui", get(async || Redirect::to("/ui/")))
        .route("/ui/", get(async || page()))
        .route("/ui/{*path}", get(async || page()))
        .route("/ui/app.js", get(async || file("text/javascript", include_str!("../dashboard/app.js"))))
        .route("/ui/style.css", get(async || file("text/css", include_str!("../dashboard/style.css"))))
        .route("/ui/icon.svg", get(async || file("image/svg+xml", include_str!("../dashboard/icon.svg"))))
        .route("/ui/login", get(follow_link).post(log_in))
        .route("/ui/logout", post(log_out))
        .layer(Extension(Largest(LARGEST_LOGIN)))
        .layer(middleware::from_fn(guarded))
}

fn page() -> Response {
    file("text/html; charset=utf-8", include_str!("../dashboard/index.html"))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], text).into_response()
}

/// What browsers may do with the pages: show them, alone, made of nothing but our own files.
async fn guarded(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                  form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
    for (name, value) in [
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

async fn log_in(
    State(desk): State<Arc<Desk>>,
    Extension(peer): Extension<Peer>,
    Quiet(request): Quiet<LoginRequest>,
) -> Result<Response, Refusal> {
    let token = Token::of_kind(TokenKind::Operator, &request.token)
        .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, RequestCode::RequestInvalid, error.to_string()))?;
    let opens = match desk.hub.store() {
        Some(_) => by_token(&desk, &token, Knowledge::Newest).await?.is_some(),
        None => forward::opens(&desk, &token).await?,
    };
    if !opens {
        return Err(stranger());
    }
    let id = desk.sessions.begin(Proof::Token(Box::new(token)))?;
    Ok((cookie(&peer, &id, SESSION)?, Json(())).into_response())
}

#[derive(Deserialize)]
struct Followed {
    code: String,
}

async fn follow_link(
    State(desk): State<Arc<Desk>>,
    Extension(peer): Extension<Peer>,
    Asked(Followed { code }): Asked<Followed>,
) -> Result<Response, Refusal> {
    let used = || {
        let message = "this link was used before, or is too old";
        Refusal::new(StatusCode::UNAUTHORIZED, RequestCode::Unauthenticated, message)
            .with("hint", "make another with `longshore dashboard`")
    };
    let who = desk.sessions.follow(&code).ok_or_else(used)?;
    let id = desk.sessions.begin(Proof::Link(who))?;
    Ok((cookie(&peer, &id, SESSION)?, Redirect::to("/ui/")).into_response())
}

async fn log_out(
    State(desk): State<Arc<Desk>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    if let Some(id) = session(&headers) {
        desk.sessions.end(id);
    }
    Ok((cookie(&peer, "", Duration::ZERO)?, Json(())).into_response())
}

fn cookie(peer: &Peer, id: &str, valid: Duration) -> Result<HeaderMap, Refusal> {
    let secure = match peer {
        Peer::Remote(_) => "; Secure",
        Peer::Loopback | Peer::Local(_) => "",
    };
    let text = format!("{COOKIE}={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{secure}", valid.as_secs());
    let value = HeaderValue::try_from(text).map_err(|_| stranger())?;
    Ok(HeaderMap::from_iter([(header::SET_COOKIE, value)]))
}

/// A link that logs its follower in as whoever asked for it, once.
pub(super) async fn make_link(
    State(desk): State<Arc<Desk>>,
    Extension(who): Extension<Admission>,
) -> Answer<LoginLink> {
    let code = desk.sessions.link(who)?;
    let path = format!("/ui/login?code={code}");
    let url = desk.browsers.map(|address| format!("http://{address}{path}"));
    Ok(Json(LoginLink { path, url }))
}
