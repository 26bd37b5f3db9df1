//! The public API over HTTP.
//!
//! Owns: routes, who is let in, and that every error has the envelope.
//! Must not touch: what is asked for beyond carrying it to the store. Invariant: a request is judged before it is read.

mod access;
mod caller;
mod dashboard;
mod deployments;
mod events;
mod exec;
mod extract;
mod foresight;
mod forward;
mod framing;
mod keyed;
mod logs;
mod metrics;
mod namespaces;
mod nodes;
mod openapi;
mod peers;
mod probes;
mod questions;
mod rebalance;
mod refusal;
mod secrets;
mod settings;
mod volumes;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    http::StatusCode,
    middleware,
    routing::{delete, get, post, put},
};
use longshore_api::Changed;
use longshore_model::{Command, RequestCode, StateIndex};
use longshore_store::{
    State,
    replicated::{Applied, Novelty, Outcome, Proposal, Replicated},
};

use self::{caller::Caller, dashboard::Sessions, extract::Largest, keyed::Keyed, refusal::Refusal};
use crate::{
    clock, expulsion,
    hub::{Hub, Leader},
    limit::{Limit, Limits, Room},
    peer::{Traced, pack},
    telemetry::{Span, Telemetry},
};

/// Largest request that is read: every file of a manifest, with room.
const LARGEST_REQUEST: usize = 16 * 1024 * 1024;

/// Time another server has to hear of a trace.
const TELLING: Duration = Duration::from_secs(2);

/// What every handler knows.
pub(crate) struct Desk {
    pub(crate) hub: Arc<Hub>,
    sessions: Sessions,
    /// Where browsers of this machine are heard.
    browsers: Option<SocketAddr>,
    /// Users of this machine let in besides root: the one the daemon runs as.
    own_uid: u32,
    /// How often one caller may ask.
    callers: Limits,
    /// How often tokens that nobody here has heard of are looked for elsewhere.
    strangers: Limit,
    /// Those who follow the changes.
    followers: Arc<Room>,
    /// Requests that a server answers in place of this node.
    handed_on: Arc<Room>,
}

impl Desk {
    pub(crate) fn new(hub: Arc<Hub>, own_uid: u32, browsers: Option<SocketAddr>) -> Self {
        Self {
            hub,
            sessions: Sessions::default(),
            browsers,
            own_uid,
            // A dashboard or a script asks a few times a second; whoever asks hundreds of times has a loop gone wrong.
            callers: Limits::new(500, 200),
            strangers: Limit::new(50, 20),
            // A browser tab each, and one caller must leave some for the others.
            followers: Room::new(64, 1024),
            // Each takes a connection to a server, which takes twice as many of one node.
            handed_on: Room::new(128, 512),
        }
    }
}

type Answer<T> = Result<axum::Json<T>, Refusal>;

/// All routes.
pub(crate) fn router(desk: Arc<Desk>) -> Router {
    let guarded = in_scope()
        .merge(noted(&desk, of_deployers()).route_layer(middleware::from_fn(caller::deployers)))
        .merge(of_the_whole().route_layer(middleware::from_fn(caller::everywhere)))
        .merge(noted(&desk, of_admins()).route_layer(middleware::from_fn(caller::admins)))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&desk), caller::admit));
    let figures = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route_layer(middleware::from_fn(caller::everywhere))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&desk), caller::admit_by_what_is_known));
    let open = Router::new().route("/healthz", get(probes::alive)).route("/readyz", get(probes::ready));
    guarded
        .merge(figures)
        .merge(open)
        .merge(dashboard::router())
        .layer(Extension(Largest(LARGEST_REQUEST)))
        .merge(peers::router(&desk))
        .fallback(async || Refusal::new(StatusCode::NOT_FOUND, RequestCode::NotFound, "there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            let message = "this cannot be done with what is at this path";
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, RequestCode::MethodNotAllowed, message)
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&desk), forward::hand_on))
        .layer(middleware::from_fn(framing::unambiguous))
        .layer(middleware::from_fn_with_state(Arc::clone(&desk), probes::count))
        .with_state(desk)
}

/// Routes that change something, and may be asked again under a key.
fn noted(desk: &Arc<Desk>, routes: Router<Arc<Desk>>) -> Router<Arc<Desk>> {
    routes.route_layer(middleware::from_fn_with_state(Arc::clone(desk), keyed::take_note))
}

/// Answered for as much as the caller's token is for.
fn in_scope() -> Router<Arc<Desk>> {
    Router::new()
        .route("/v1/openapi.json", get(openapi::describe))
        .route("/v1/deployments", get(deployments::list))
        .route("/v1/deployments/{name}", get(deployments::get))
        .route("/v1/status", get(questions::status))
        .route("/v1/replicas", get(questions::replicas))
        .route("/v1/replicas/{replica}/history", get(questions::history))
        .route("/v1/pending", get(questions::pending))
        .route("/v1/why/{replica}", get(questions::why))
        .route("/v1/logs", get(logs::logs))
        .route("/v1/login-links", post(dashboard::make_link))
        .route("/v1/caller", get(access::caller))
}

fn of_deployers() -> Router<Arc<Desk>> {
    Router::new()
        .route("/v1/plan", post(foresight::plan))
        .route("/v1/replicas/{replica}/exec", post(exec::exec))
        .route("/v1/deployments", post(deployments::apply))
        .route("/v1/deployments/{name}", delete(deployments::remove))
        .route("/v1/deployments/{name}/rollback", post(deployments::rollback))
        .route("/v1/deployments/{name}/{word}", post(deployments::steer))
        .route("/v1/deployments/{name}/services/{service}/scale", post(deployments::scale))
        .route("/v1/deployments/{name}/services/{service}/restart", post(deployments::restart))
}

fn of_the_whole() -> Router<Arc<Desk>> {
    Router::new()
        .route("/v1/nodes", get(nodes::list))
        .route("/v1/nodes/{name}", get(nodes::get))
        .route("/v1/whatif", post(foresight::what_if))
        .route("/v1/audit", get(questions::audit))
        .route("/v1/events", get(events::follow))
        .route("/v1/cluster", get(access::cluster))
        .route("/v1/cluster/settings", get(settings::get))
        .route("/v1/secrets", get(secrets::list))
        .route("/v1/namespaces", get(namespaces::list))
        .route("/v1/volumes", get(volumes::list))
        .route("/v1/rebalance", get(rebalance::preview))
}

fn of_admins() -> Router<Arc<Desk>> {
    Router::new()
        .route("/v1/nodes/{name}", delete(nodes::remove))
        .route("/v1/nodes/{name}/drain", post(nodes::drain))
        .route("/v1/nodes/{name}/labels", post(nodes::label))
        .route("/v1/nodes/{name}/{word}", post(nodes::tell))
        .route("/v1/join-tokens", post(access::join_token))
        .route("/v1/tokens", get(access::tokens).post(access::issue))
        .route("/v1/tokens/{id}", delete(access::revoke))
        .route("/v1/secrets/{name}", put(secrets::put).delete(secrets::remove))
        .route("/v1/cluster/rotate-key", post(access::rotate_key))
        .route("/v1/cluster/settings", post(settings::set))
        .route("/v1/namespaces/{name}/quota", put(namespaces::set_quota))
        .route("/v1/rebalance", post(rebalance::even_out))
        .route("/v1/backup", get(probes::backup))
}

/// A command that was decided.
struct CarriedOut {
    changed: Changed,
    index: StateIndex,
    /// Whether an earlier request under the same key was answered instead.
    novelty: Novelty,
}

/// Tells whoever leads which request a state comes from, where that is not this server: what is decided because of it is part
/// of the same trace. Nobody waits for it, and a trace is all that is lost with it.
fn tell_leader(hub: &Arc<Hub>, index: StateIndex, span: Option<&Span>) {
    let (Some(span), Leader::There(leader)) = (span, hub.leader()) else { return };
    let Ok(message) = pack(&Traced { index: index.0, context: span.context().header() }) else { return };
    let calls = Arc::clone(&hub.calls);
    tokio::spawn(async move { tokio::time::timeout(TELLING, calls.post(&leader, "/peer/trace", message)).await });
}

impl Desk {
    /// The store, on a node that keeps the log; on another, whom to ask instead.
    fn store(&self) -> Result<Replicated, Refusal> {
        self.hub.store().ok_or_else(|| {
            if let Some(code) = self.hub.expulsion.code() {
                let message = "this node is no longer part of its cluster";
                return Refusal::new(StatusCode::FORBIDDEN, code, message).with("hint", expulsion::WAY_BACK);
            }
            if self.hub.lacks_store() {
                let message = "this node is starting or shutting down; ask again in a moment";
                return Refusal::new(StatusCode::SERVICE_UNAVAILABLE, RequestCode::NotReady, message);
            }
            // Never who the servers are: whoever asks here has not proven anything yet.
            let message = "this node runs work and keeps no state";
            Refusal::new(StatusCode::MISDIRECTED_REQUEST, RequestCode::NotAServer, message)
                .with("hint", "a server that has just joined answers within seconds; of a worker, ask one of the servers, with a token of `longshore token create`")
        })
    }

    /// Carries a command to the store and says what came of it.
    async fn carry_out(&self, caller: Caller, command: Command) -> Result<CarriedOut, Refusal> {
        let Caller { actor, key, .. } = caller;
        let (key, asked) = key.map(|Keyed { key, asked }| (key, asked)).unzip();
        let (store, telemetry) = (self.store()?, &self.hub.telemetry);
        let mut span = telemetry.begin("commit", Telemetry::request());
        let proposed = store.propose(Proposal { command, key, asked, actor, at: clock::now() }).await;
        if let Some(span) = &mut span {
            match &proposed {
                Ok(applied) => span.note("longshore.index", applied.index.0),
                Err(error) => span.fail(error.code()),
            }
        }
        if let Ok(Applied { index, outcome: Outcome::Changed, .. }) = &proposed {
            telemetry.committed(*index, span.as_ref());
            tell_leader(&self.hub, *index, span.as_ref());
        }
        telemetry.end(span);
        let applied = proposed?;
        let done = |changed| Ok(CarriedOut { changed, index: applied.index, novelty: applied.novelty });
        match applied.outcome {
            Outcome::Changed => done(Changed::Yes),
            Outcome::Unchanged => done(Changed::No),
            Outcome::Refused(error) => Err(error.into()),
            Outcome::KeyReused => Err(Refusal::new(
                StatusCode::CONFLICT,
                RequestCode::IdempotencyKeyReused,
                "the idempotency key was used for another request",
            )),
        }
    }

    /// The state with what was just decided in it. Whoever cannot be answered is told that it was decided all the same.
    async fn read_after(&self, done: &CarriedOut) -> Result<Arc<State>, Refusal> {
        let read = match self.store() {
            Ok(store) => store.read().await.map_err(Refusal::from),
            Err(refusal) => Err(refusal),
        };
        read.map(|reading| reading.state).map_err(|refusal| refusal.though_decided(done.index))
    }

    /// Whether a command is news that its namespace has room for. One that was carried out under the caller's key is
    /// answered as it was then, whatever has become of the namespace since.
    async fn admit(&self, caller: &Caller, command: &Command) -> Result<Novelty, Refusal> {
        let store = self.store()?;
        let state = store.read().await?.state;
        if caller.key.as_ref().is_some_and(|keyed| store.has_answered(&keyed.key)) {
            return Ok(Novelty::Repeated);
        }
        state.admits(command)?;
        Ok(Novelty::New)
    }

    /// The same, for requests whose whole answer is whether anything changed.
    async fn change(&self, caller: Caller, command: Command) -> Answer<Changed> {
        self.carry_out(caller, command).await.map(|done| axum::Json(done.changed))
    }
}
