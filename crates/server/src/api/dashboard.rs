//! The dashboard: static files, login sessions, and one-time login links.
//!
//! Owns: the files, the sessions, and the links.
//! Must not touch: what is shown; the page calls the public API like any other client.
//! Invariant: a session is worth what its token is worth at that moment; the page loads nothing from other origins.

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
use longshore_model::ApiErrorCode;
use serde::Deserialize;

use crate::{
    api::{
        ApiError, ApiResult, ApiState,
        extract::{BodyLimit, QueryParams, SecretJsonBody},
        forward,
        listeners::Peer,
    },
    security::{
        auth::{self, Freshness, Principal, authenticate_token, unauthenticated},
        keyring::{digest_of, random_hex},
    },
};

const COOKIE: &str = "longshore";
/// The dashboard sends this header with every request. A form on another site cannot, which prevents CSRF.
const CSRF_HEADER: &str = "x-longshore";
/// How long a login lasts.
const SESSION_LIFETIME: Duration = Duration::from_hours(12);
/// How long a login link is valid.
const LINK_LIFETIME: Duration = Duration::from_mins(1);
/// Largest login request in bytes: one token.
const MAX_LOGIN_BODY: usize = 4096;
/// Sessions kept at once; the one that expires first is dropped.
const MAX_SESSIONS: usize = 1000;

/// What a session authenticates with.
#[derive(Clone)]
enum SessionCredential {
    /// A token, checked on every request: revoking it ends its sessions.
    Token(Box<Token>),
    /// The principal that created the login link.
    Link(Principal),
}

/// Open sessions and unused login links; both are stored by digest.
#[derive(Default)]
pub(crate) struct Sessions {
    open: Mutex<HashMap<String, (SessionCredential, Instant)>>,
    links: Mutex<HashMap<String, (Principal, Instant)>>,
}

impl Sessions {
    fn begin(&self, credential: SessionCredential) -> Result<String, ApiError> {
        let id = random_hex(32).map_err(crate::node_rpc::service::NodeRequestError::from)?;
        insert_expiring(&mut lock(&self.open), digest_of(id.as_bytes()).to_string(), credential, SESSION_LIFETIME);
        Ok(id)
    }

    fn link(&self, who: Principal) -> Result<String, ApiError> {
        let code = random_hex(16).map_err(crate::node_rpc::service::NodeRequestError::from)?;
        insert_expiring(&mut lock(&self.links), digest_of(code.as_bytes()).to_string(), who, LINK_LIFETIME);
        Ok(code)
    }

    fn redeem(&self, code: &str) -> Option<Principal> {
        let (who, until) = lock(&self.links).remove(digest_of(code.as_bytes()).as_str())?;
        (Instant::now() < until).then_some(who)
    }

    fn end(&self, id: &str) {
        lock(&self.open).remove(digest_of(id.as_bytes()).as_str());
    }

    fn credential(&self, id: &str) -> Option<SessionCredential> {
        let (credential, until) = lock(&self.open).get(digest_of(id.as_bytes()).as_str()).cloned()?;
        (Instant::now() < until).then_some(credential)
    }
}

fn insert_expiring<T>(kept: &mut HashMap<String, (T, Instant)>, key: String, value: T, valid: Duration) {
    let now = Instant::now();
    kept.retain(|_, (_, until)| now < *until);
    if kept.len() >= MAX_SESSIONS
        && let Some(oldest) = kept.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| key.clone())
    {
        kept.remove(&oldest);
    }
    kept.insert(key, (value, now + valid));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The principal of a session. A request that changes something needs the CSRF header.
pub(crate) async fn authenticate_session(
    api: &ApiState,
    method: &Method,
    headers: &HeaderMap,
    by: Freshness,
) -> Result<Option<Principal>, ApiError> {
    match session_credential(api, method, headers) {
        Some(SessionCredential::Token(token)) => authenticate_token(api, &token, by).await,
        // A link is worth what its creator's token is worth now.
        Some(SessionCredential::Link(who)) => match who.token() {
            Some(token) => authenticate_token(api, token, by).await,
            None => Ok(Some(who)),
        },
        None => Ok(None),
    }
}

/// The credential of a session, for a server to check.
pub(crate) fn credential_of_session(api: &ApiState, method: &Method, headers: &HeaderMap) -> Option<auth::Credential> {
    Some(match session_credential(api, method, headers)? {
        SessionCredential::Token(token) => auth::Credential::Token(*token),
        SessionCredential::Link(who) => who.credential().clone(),
    })
}

fn session_credential(api: &ApiState, method: &Method, headers: &HeaderMap) -> Option<SessionCredential> {
    let credential = api.sessions.credential(session(headers)?)?;
    (method.is_safe() || headers.contains_key(CSRF_HEADER)).then_some(credential)
}

fn session(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get(header::COOKIE)?.to_str().ok()?;
    cookies.split(';').find_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// The static files, login and logout.
pub(crate) fn router() -> Router<Arc<ApiState>> {
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
        .layer(Extension(BodyLimit(MAX_LOGIN_BODY)))
        .layer(middleware::from_fn(security_headers))
}

fn page() -> Response {
    file("text/html; charset=utf-8", include_str!("../dashboard/index.html"))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], text).into_response()
}

/// Response headers that restrict what the page may load and who may embed it.
async fn security_headers(request: Request, next: Next) -> Response {
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
    State(api): State<Arc<ApiState>>,
    Extension(peer): Extension<Peer>,
    SecretJsonBody(request): SecretJsonBody<LoginRequest>,
) -> Result<Response, ApiError> {
    let token = Token::of_kind(TokenKind::Operator, &request.token)
        .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, ApiErrorCode::RequestInvalid, error.to_string()))?;
    let opens = match api.ctx.store() {
        Some(_) => authenticate_token(&api, &token, Freshness::Linearizable).await?.is_some(),
        None => forward::token_is_valid(&api, &token).await?,
    };
    if !opens {
        return Err(unauthenticated());
    }
    let id = api.sessions.begin(SessionCredential::Token(Box::new(token)))?;
    Ok((cookie(&peer, &id, SESSION_LIFETIME)?, Json(())).into_response())
}

#[derive(Deserialize)]
struct LinkQuery {
    code: String,
}

async fn follow_link(
    State(api): State<Arc<ApiState>>,
    Extension(peer): Extension<Peer>,
    QueryParams(LinkQuery { code }): QueryParams<LinkQuery>,
) -> Result<Response, ApiError> {
    let used = || {
        let message = "this link was used before, or has expired";
        ApiError::new(StatusCode::UNAUTHORIZED, ApiErrorCode::Unauthenticated, message)
            .with("hint", "make another with `longshore dashboard`")
    };
    let who = api.sessions.redeem(&code).ok_or_else(used)?;
    let id = api.sessions.begin(SessionCredential::Link(who))?;
    Ok((cookie(&peer, &id, SESSION_LIFETIME)?, Redirect::to("/ui/")).into_response())
}

async fn log_out(
    State(api): State<Arc<ApiState>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    if let Some(id) = session(&headers) {
        api.sessions.end(id);
    }
    Ok((cookie(&peer, "", Duration::ZERO)?, Json(())).into_response())
}

fn cookie(peer: &Peer, id: &str, valid: Duration) -> Result<HeaderMap, ApiError> {
    let secure = match peer {
        Peer::Remote(_) => "; Secure",
        Peer::Loopback | Peer::Local(_) => "",
    };
    let text = format!("{COOKIE}={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{secure}", valid.as_secs());
    let value = HeaderValue::try_from(text).map_err(|_| unauthenticated())?;
    Ok(HeaderMap::from_iter([(header::SET_COOKIE, value)]))
}

/// Creates a link that logs in once, as the caller.
pub(crate) async fn make_link(
    State(api): State<Arc<ApiState>>,
    Extension(who): Extension<Principal>,
) -> ApiResult<LoginLink> {
    let code = api.sessions.link(who)?;
    let path = format!("/ui/login?code={code}");
    // The TLS listener serves the dashboard, too; a browser has to be told to trust the cluster's own certificate.
    let over_tls = || api.ctx.record().address.map(|address| format!("https://{address}{path}"));
    let url = api.browsers.map(|address| format!("http://{address}{path}")).or_else(over_tls);
    Ok(Json(LoginLink { path, url }))
}
