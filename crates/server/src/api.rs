//! The public API: HTTP handlers, their routes, and the listeners that accept connections.
//!
//! Owns: routes, request parsing, idempotency, forwarding to a server, the error envelope, and the rows of every
//! answer.
//! Must not touch: what a command means, which is the store's; who may call, which is decided in `security::auth`.
//! Invariant: a request is authenticated before its body is read, and every error has the envelope.

pub(crate) mod access;
pub(crate) mod dashboard;
pub(crate) mod deployments;
mod dry_run;
pub(crate) mod error;
mod events;
pub(crate) mod exec;
pub(crate) mod extract;
pub(crate) mod forward;
pub(crate) mod health;
pub(crate) mod idempotency;
pub(crate) mod image_resolution;
pub(crate) mod listeners;
pub(crate) mod logs;
pub(crate) mod members;
mod metrics;
pub(crate) mod name_rules;
mod namespaces;
mod networks;
pub(crate) mod nodes;
mod one_off;
mod openapi;
mod policies;
mod queries;
pub(crate) mod rebalance;
pub(crate) mod request_smuggling;
pub(crate) mod secrets;
mod settings;
pub(crate) mod views;
mod volume_adoption;
mod volumes;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    http::StatusCode,
    middleware,
    routing::{delete, get, post, put},
};
use longshore_api::Changed;
use longshore_model::{ApiErrorCode, Command, StateIndex};
use longshore_store::{
    State,
    replicated::{Applied, Dedup, Outcome, Proposal, Replicated},
};

use crate::{
    api::{dashboard::Sessions, extract::BodyLimit, idempotency::IdempotentRequest},
    clock,
    lifecycle::{
        node_context::{LeaderLocation, NodeContext},
        node_removal,
    },
    node_rpc::{TraceNotice, handlers, pack},
    observability::telemetry::{Span, Telemetry},
    security::{
        auth::{self, Caller},
        rate_limit::{CallerRateLimits, ConcurrencyLimit, RateLimit},
    },
};

pub(crate) use self::error::ApiError;

/// Largest request body in bytes: every file of a manifest fits.
const MAX_REQUEST_BODY: usize = 16 * 1024 * 1024;

/// Time the leader has to take a trace notice.
const TRACE_NOTICE_TIMEOUT: Duration = Duration::from_secs(2);

/// The state that every handler shares.
pub(crate) struct ApiState {
    pub(crate) ctx: Arc<NodeContext>,
    pub(crate) sessions: Sessions,
    /// The loopback address on which browsers of this machine are served.
    pub(crate) browsers: Option<SocketAddr>,
    /// The uid the daemon runs as. Besides root it is the only one that may use the Unix socket.
    pub(crate) own_uid: u32,
    /// Requests per second of one caller.
    pub(crate) callers: CallerRateLimits,
    /// How often a token id that is unknown here may cost a linearizable read.
    pub(crate) unknown_tokens: RateLimit,
    /// Open event streams, log streams and exec sessions.
    pub(crate) streams: Arc<ConcurrencyLimit>,
    /// Dry runs under way.
    pub(crate) simulations: Arc<ConcurrencyLimit>,
    /// Bodies in memory, in units of [`BODY_UNIT`](extract::BODY_UNIT).
    pub(crate) bodies: Arc<ConcurrencyLimit>,
    /// Requests that this node forwards to a server at the moment.
    pub(crate) forwarded: Arc<ConcurrencyLimit>,
}

impl ApiState {
    pub(crate) fn new(ctx: Arc<NodeContext>, own_uid: u32, browsers: Option<SocketAddr>) -> Self {
        Self {
            ctx,
            sessions: Sessions::default(),
            browsers,
            own_uid,
            // A dashboard or a script sends a few requests a second; hundreds a second are a loop gone wrong.
            callers: CallerRateLimits::new(500, 200),
            unknown_tokens: RateLimit::new(50, 20),
            // One stream per browser tab, and one caller must leave some for the others.
            streams: ConcurrencyLimit::new(64, 1024),
            simulations: ConcurrencyLimit::new(2, 2),
            // 64 MiB of one caller, 128 MiB of all: four and eight of the largest requests at once.
            bodies: ConcurrencyLimit::new(1024, 2048),
            // Each takes a connection to a server, which accepts twice as many from one node.
            forwarded: ConcurrencyLimit::new(128, 512),
        }
    }
}

pub(crate) type ApiResult<T> = Result<axum::Json<T>, ApiError>;

/// All routes, with their authentication.
pub(crate) fn router(api: Arc<ApiState>) -> Router {
    let authenticated = scoped_routes()
        .merge(idempotent(&api, deploy_routes()).route_layer(middleware::from_fn(auth::require_deploy)))
        .merge(cluster_view_routes().route_layer(middleware::from_fn(auth::require_cluster_scope)))
        .merge(idempotent(&api, admin_routes()).route_layer(middleware::from_fn(auth::require_admin)))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&api), extract::budget_body))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&api), auth::require_authenticated));
    let metrics = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route_layer(middleware::from_fn(auth::require_cluster_scope))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&api), auth::require_authenticated_locally));
    let public = Router::new().route("/healthz", get(health::healthz)).route("/readyz", get(health::readyz));
    authenticated
        .merge(metrics)
        .merge(public)
        .merge(dashboard::router())
        .layer(Extension(BodyLimit(MAX_REQUEST_BODY)))
        .merge(handlers::router(&api))
        .fallback(async || {
            ApiError::new(StatusCode::NOT_FOUND, ApiErrorCode::NotFound, "there is nothing at this path")
        })
        .method_not_allowed_fallback(async || {
            let message = "this path does not support the method";
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, ApiErrorCode::MethodNotAllowed, message)
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&api), forward::forward_to_server))
        .layer(middleware::from_fn(request_smuggling::unambiguous))
        .layer(middleware::from_fn_with_state(Arc::clone(&api), health::record_request))
        .with_state(api)
}

/// Routes that change something; a request may be repeated under an idempotency key.
fn idempotent(api: &Arc<ApiState>, routes: Router<Arc<ApiState>>) -> Router<Arc<ApiState>> {
    routes.route_layer(middleware::from_fn_with_state(Arc::clone(api), idempotency::read_key))
}

/// Routes for any role; the answer is limited to the scope of the token.
fn scoped_routes() -> Router<Arc<ApiState>> {
    Router::new()
        .route("/v1/openapi.json", get(openapi::describe))
        .route("/v1/deployments", get(deployments::list))
        .route("/v1/deployments/{name}", get(deployments::get))
        .route("/v1/status", get(queries::status))
        .route("/v1/replicas", get(queries::replicas))
        .route("/v1/replicas/{replica}/history", get(queries::history))
        .route("/v1/pending", get(queries::pending))
        .route("/v1/why/{replica}", get(queries::why))
        .route("/v1/logs", get(logs::logs))
        .route("/v1/login-links", post(dashboard::make_link))
        .route("/v1/namespaces/{name}/policy", get(policies::get))
        .route("/v1/whoami", get(access::whoami))
        .route("/v1/caller", get(access::whoami))
}

fn deploy_routes() -> Router<Arc<ApiState>> {
    Router::new()
        .route("/v1/plan", post(dry_run::plan))
        .route("/v1/policy-test", post(policies::test))
        .route("/v1/replicas/{replica}/exec", post(exec::exec))
        .route("/v1/deployments", post(deployments::apply))
        .route("/v1/deployments/{name}", delete(deployments::remove))
        .route("/v1/volumes/{name}", delete(volumes::remove))
        .route("/v1/deployments/{name}/rollback", post(deployments::rollback))
        .route("/v1/deployments/{name}/stop", post(deployments::stop))
        .route("/v1/deployments/{name}/start", post(deployments::start))
        .route("/v1/deployments/{name}/pull", post(deployments::pull))
        .route("/v1/deployments/{name}/{word}", post(deployments::control_rollout))
        .route("/v1/deployments/{name}/services/{service}/scale", post(deployments::scale))
        .route("/v1/deployments/{name}/services/{service}/restart", post(deployments::restart))
        .route("/v1/deployments/{name}/services/{service}/run", post(one_off::run))
}

fn cluster_view_routes() -> Router<Arc<ApiState>> {
    Router::new()
        .route("/v1/nodes", get(nodes::list))
        .route("/v1/nodes/{name}", get(nodes::get))
        .route("/v1/whatif", post(dry_run::what_if))
        .route("/v1/audit", get(queries::audit))
        .route("/v1/events", get(events::follow))
        .route("/v1/cluster", get(members::cluster))
        .route("/v1/cluster/settings", get(settings::get))
        .route("/v1/secrets", get(secrets::list))
        .route("/v1/namespaces", get(namespaces::list))
        .route("/v1/volumes", get(volumes::list))
        .route("/v1/networks", get(networks::list))
        .route("/v1/deployments/{name}/services/{service}/network", get(networks::service))
        .route("/v1/rebalance", get(rebalance::preview))
}

fn admin_routes() -> Router<Arc<ApiState>> {
    Router::new()
        .route("/v1/nodes/{name}", delete(nodes::remove))
        .route("/v1/nodes/{name}/drain", post(nodes::drain))
        .route("/v1/nodes/{name}/labels", post(nodes::label))
        .route("/v1/nodes/{name}/attributes", post(nodes::set_attributes))
        .route("/v1/nodes/{name}/{word}", post(nodes::act))
        .route("/v1/join-tokens", post(access::join_token))
        .route("/v1/tokens", get(access::tokens).post(access::issue))
        .route("/v1/tokens/{id}", delete(access::revoke))
        .route("/v1/secrets/{name}", put(secrets::put).delete(secrets::remove))
        .route("/v1/cluster/rotate-key", post(access::rotate_key))
        .route("/v1/cluster/settings", post(settings::set))
        .route("/v1/namespaces/{name}/quota", put(namespaces::set_quota))
        .route("/v1/namespaces/{name}/policy", put(policies::set))
        .route("/v1/rebalance", post(rebalance::even_out))
        .route("/v1/backup", get(health::backup))
}

/// The result of a committed command.
pub(crate) struct CommandResult {
    pub(crate) changed: Changed,
    pub(crate) index: StateIndex,
    /// Whether the answer of an earlier request under the same idempotency key was returned.
    pub(crate) dedup: Dedup,
}

/// Tells a remote leader which request led to a state, so that the pass that follows becomes part of the same trace.
/// Nobody waits for the call; if it fails, only the trace is incomplete.
fn notify_leader_of_trace(ctx: &Arc<NodeContext>, index: StateIndex, span: Option<&Span>) {
    let (Some(span), LeaderLocation::Remote(leader)) = (span, ctx.leader()) else { return };
    let Ok(message) = pack(&TraceNotice { index: index.0, context: span.context().header() }) else { return };
    let calls = Arc::clone(&ctx.peers);
    tokio::spawn(async move {
        tokio::time::timeout(TRACE_NOTICE_TIMEOUT, calls.post(&leader, "/peer/trace", message)).await
    });
}

impl ApiState {
    /// The store, on a server. On another node, the error says what to do instead.
    pub(crate) fn store(&self) -> Result<Replicated, ApiError> {
        self.ctx.store().ok_or_else(|| {
            if let Some(code) = self.ctx.removal.code() {
                let message = "this node is no longer part of its cluster";
                let refusal = ApiError::new(StatusCode::FORBIDDEN, code, message);
                return refusal.with("node", self.ctx.node().as_str()).with("hint", node_removal::REJOIN_HINT);
            }
            if self.ctx.lacks_store() {
                let message = "this node is starting or shutting down; ask again in a moment";
                return ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ApiErrorCode::NotReady, message);
            }
            // The answer never names the servers: the caller is not authenticated yet.
            let message = "this node is a worker and keeps no state";
            ApiError::new(StatusCode::MISDIRECTED_REQUEST, ApiErrorCode::NotAServer, message)
                .with("hint", "a server that has just joined answers within seconds; instead of a worker, ask one of the servers, with a token of `longshore token create`")
        })
    }

    /// Proposes a command and returns its result.
    pub(crate) async fn execute(&self, caller: Caller, command: Command) -> Result<CommandResult, ApiError> {
        let Caller { actor, key, .. } = caller;
        let (key, asked) = key.map(|IdempotentRequest { key, fingerprint }| (key, fingerprint)).unzip();
        let (store, telemetry) = (self.store()?, &self.ctx.telemetry);
        let mut span = telemetry.begin("commit", Telemetry::current_request());
        let proposed = store.propose(Proposal { command, key, request: asked, actor, at: clock::now() }).await;
        if let Some(span) = &mut span {
            match &proposed {
                Ok(applied) => span.set("longshore.index", applied.index.0),
                Err(error) => span.fail(error.code()),
            }
        }
        if let Ok(Applied { index, outcome: Outcome::Changed, .. }) = &proposed {
            telemetry.committed(*index, span.as_ref());
            notify_leader_of_trace(&self.ctx, *index, span.as_ref());
        }
        telemetry.end(span);
        let applied = proposed?;
        let done = |changed| Ok(CommandResult { changed, index: applied.index, dedup: applied.dedup });
        match applied.outcome {
            Outcome::Changed => done(Changed::Yes),
            Outcome::Unchanged => done(Changed::No),
            Outcome::Refused(error) => Err(error.into()),
            Outcome::KeyReused => Err(ApiError::new(
                StatusCode::CONFLICT,
                ApiErrorCode::IdempotencyKeyReused,
                "the idempotency key was used for another request",
            )),
        }
    }

    /// A state that contains the committed command. If it cannot be read, the error says that the command was committed
    /// all the same.
    pub(crate) async fn read_after(&self, done: &CommandResult) -> Result<Arc<State>, ApiError> {
        let read = match self.store() {
            Ok(store) => store.read().await.map_err(ApiError::from),
            Err(refusal) => Err(refusal),
        };
        read.map(|reading| reading.state).map_err(|refusal| refusal.after_commit(done.index))
    }

    /// Whether the command is new and fits into its namespace's quota. A command that was already executed under the
    /// caller's key is reported as repeated, whatever the quota says by now.
    pub(crate) async fn check_admission(&self, caller: &Caller, command: &Command) -> Result<Dedup, ApiError> {
        let store = self.store()?;
        let state = store.read().await?.state;
        if caller.key.as_ref().is_some_and(|keyed| store.has_answered(&keyed.key)) {
            return Ok(Dedup::Repeated);
        }
        state.admits(command)?;
        Ok(Dedup::New)
    }

    /// Executes a command whose whole answer is whether anything changed.
    pub(crate) async fn change(&self, caller: Caller, command: Command) -> ApiResult<Changed> {
        self.execute(caller, command).await.map(|done| axum::Json(done.changed))
    }
}
