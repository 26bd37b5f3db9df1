//! The Docker driver: containers on a Docker Engine, 20.10 or newer.
//!
//! Owns: the connection, the time-out of every call, and what the engine's errors mean.
//! Must not touch: containers, networks and volumes without this cluster's label, whatever their names.
//! Invariant: every call has a time-out, and the outcome of a call that timed out is treated as unknown.

mod connection;
mod create;
mod engine_query;
mod events;
mod image;
mod info;
mod inspect;
mod labels;
mod logs_exec;
mod mounts;
mod networks;
mod overlay_network;
mod session;
mod started_session;
mod stats;

use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    io,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bollard::{
    Docker as Client,
    errors::Error,
    models::ContainerSummary,
    query_parameters::{
        ListContainersOptionsBuilder, RemoveContainerOptionsBuilder, StartContainerOptions, StopContainerOptionsBuilder,
    },
};
use futures_util::future::BoxFuture;
use longshore_model::{
    Driver, NodeName, ReplicaKey, Work, agent_protocol::container_name, container::Hook, error_chain,
};
use longshore_network::OverlayHandle;
use tokio::{sync::mpsc, task::AbortHandle};

use self::{connection::Connection, session::EngineSession, started_session::AttachSessions};
use super::{
    DriverFingerprint, ExistingReplica, Handle, Inspection, Phase, PreparedFile, ResourceUsage, Runtime,
    RuntimeContext, RuntimeError, RuntimeFuture, StopSpec,
};
use crate::{
    backoff::Backoff,
    config::DockerConfig,
    control_link::RegistryLogin,
    created_markers::CreatedMarkers,
    engine_query::{EngineAnswer, EngineQuery, VolumeRemoval},
    logs_exec::{ExecRequest, ExecSession, LogLine, LogOptions},
    pulls::{PullHandle, Pulls},
};

/// Time-out of a ping.
const PING: Duration = Duration::from_secs(2);
/// Time-out of a call that only reads or writes the engine's records.
const SHORT: Duration = Duration::from_secs(20);
/// Time-out of a call that creates or starts something. A busy disk is slow, and giving up early leaves half-made
/// objects.
const LONG: Duration = Duration::from_mins(2);
/// Time-out of the client library itself. Ours decide; this one only must not be shorter.
const CLIENT_SECS: u64 = 24 * 3600;

/// The Docker Engine of this machine.
struct Docker {
    connection: Arc<Connection>,
    config: DockerConfig,
    node: NodeName,
    cluster_id: String,
    overlay: Option<OverlayHandle>,
    pulls: Pulls,
    markers: CreatedMarkers,
    data_root: OnceLock<PathBuf>,
    sessions: Arc<AttachSessions>,
    event_listener: AbortHandle,
}

impl Drop for Docker {
    fn drop(&mut self) {
        self.event_listener.abort();
        self.forget_networks();
    }
}

impl std::fmt::Debug for Docker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Docker({:?})", self.connection)
    }
}

#[expect(clippy::unnecessary_wraps, reason = "another driver may need the disk to start")]
pub(super) fn build(ctx: &RuntimeContext<'_>) -> io::Result<Option<Arc<dyn Runtime>>> {
    let Some(config) = ctx.config.docker.clone() else { return Ok(None) };
    let (node, cluster_id) = (ctx.config.node.clone(), ctx.config.cluster_id.clone());
    let session = EngineSession::in_folder(&ctx.config.data_dir);
    let connection = Arc::new(Connection::new(config.sockets.clone(), session));
    let pull = image::puller(Arc::clone(&connection), Arc::clone(ctx.link));
    let is_present = image::presence(Arc::clone(&connection));
    let filters = ownership_filter(&cluster_id, &node);
    let events = events::follow(Arc::clone(&connection), filters, Arc::clone(ctx.wakeups));
    Ok(Some(Arc::new(Docker {
        pulls: Pulls::new(ctx.config.parallel_pulls, Backoff::for_pulls(), pull, is_present),
        connection,
        config,
        node,
        cluster_id,
        overlay: ctx.config.overlay.clone(),
        markers: ctx.markers.clone(),
        data_root: OnceLock::new(),
        sessions: Arc::default(),
        event_listener: tokio::spawn(events).abort_handle(),
    })))
}

impl Runtime for Docker {
    fn driver(&self) -> Driver {
        Driver::Docker
    }

    fn is_available(&self) -> BoxFuture<'_, bool> {
        Box::pin(async {
            let ping = async { self.connection.client().await.ok()?.ping().await.ok() };
            let answers = tokio::time::timeout(PING, ping).await.is_ok_and(|pong| pong.is_some());
            if !answers {
                self.connection.reset();
            }
            answers
        })
    }

    fn is_expected(&self) -> bool {
        self.connection.session.is_known()
    }

    fn fingerprint(&self) -> RuntimeFuture<'_, DriverFingerprint> {
        Box::pin(async {
            let info = self.call(SHORT, async |client| client.info().await).await?;
            if let Some(root) = &info.docker_root_dir {
                let _ = self.data_root.set(PathBuf::from(root));
            }
            Ok(info::fingerprint(info))
        })
    }

    fn data_root(&self) -> Option<PathBuf> {
        self.data_root.get().cloned()
    }

    fn list(&self) -> RuntimeFuture<'_, Vec<ExistingReplica>> {
        Box::pin(self.list_filtered(self.ownership_filter()))
    }

    fn attempts<'a>(&'a self, key: &'a ReplicaKey) -> RuntimeFuture<'a, Vec<ExistingReplica>> {
        let mut filters = self.ownership_filter();
        filters.entry("label".to_owned()).or_default().extend(labels::of_key(key));
        Box::pin(self.list_filtered(filters))
    }

    fn pull_image<'a>(&'a self, work: &'a Work) -> RuntimeFuture<'a, Option<PullHandle>> {
        Box::pin(self.join_pull(work))
    }

    fn query_engine<'a>(
        &'a self,
        query: &'a EngineQuery,
        logins: &'a BTreeMap<String, RegistryLogin>,
    ) -> RuntimeFuture<'a, EngineAnswer> {
        Box::pin(self.answer(query, logins))
    }

    fn remove_volume<'a>(&'a self, name: &'a str) -> RuntimeFuture<'a, VolumeRemoval> {
        Box::pin(self.delete_volume(name))
    }

    fn check_dependencies<'a>(&'a self, work: &'a Work) -> RuntimeFuture<'a, ()> {
        Box::pin(self.check_shared_namespaces(work))
    }

    fn create<'a>(&'a self, work: &'a Work, files: &'a [PreparedFile]) -> RuntimeFuture<'a, Handle> {
        Box::pin(async move {
            let volumes = self.volumes(work).await?;
            let overlay = self.overlay_endpoint(work).await;
            let networks = self.networks(work, overlay.as_ref()).await?;
            let attached = create::Attached { networks: &networks, overlay: overlay.as_ref() };
            let handle = self.create_container(work, files, &volumes, attached).await?;
            self.sessions.expect(work, &handle);
            Ok(handle)
        })
    }

    fn start<'a>(&'a self, handle: &'a Handle) -> RuntimeFuture<'a, ()> {
        Box::pin(async move {
            self.attach_before_start(handle).await?;
            self.call(LONG, async |client| client.start_container(&handle.0, None::<StartContainerOptions>).await).await
        })
    }

    fn inspect<'a>(&'a self, handle: &'a Handle) -> RuntimeFuture<'a, Inspection> {
        Box::pin(async move {
            let response = self.call(SHORT, async |client| client.inspect_container(&handle.0, None).await).await?;
            let overlay = self.overlay.as_ref().and_then(|handle| handle.current(&self.node));
            let mut inspection = inspect::inspection(&response, overlay.as_ref());
            if let Phase::Exited(exit) = &mut inspection.phase {
                let state = response.state.as_ref();
                exit.ended_with_host = state.is_some_and(|state| self.connection.session.ended_before(state));
            }
            Ok(inspection)
        })
    }

    /// The container is started again with its files, as the engine itself would after a restart.
    fn resume<'a>(&'a self, _work: &'a Work, handle: &'a Handle) -> RuntimeFuture<'a, ()> {
        self.start(handle)
    }

    fn stop<'a>(&'a self, handle: &'a Handle, stop: &'a StopSpec) -> RuntimeFuture<'a, ()> {
        Box::pin(async move {
            // The signal was set when the container was created; only the grace period can differ.
            let secs = i32::try_from(stop.grace.as_millis().div_ceil(1000)).unwrap_or(i32::MAX);
            let options = StopContainerOptionsBuilder::new().t(secs).build();
            let limit = stop.grace + LONG;
            let stopped = self.call(limit, async |client| client.stop_container(&handle.0, Some(options)).await).await;
            ignore_not_found(stopped)
        })
    }

    fn remove<'a>(&'a self, handle: &'a Handle) -> RuntimeFuture<'a, ()> {
        Box::pin(async move {
            // `v` removes anonymous volumes; named volumes are never removed.
            let options = RemoveContainerOptionsBuilder::new().v(true).force(true).build();
            let removed = self.call(LONG, async |client| client.remove_container(&handle.0, Some(options)).await).await;
            ignore_not_found(removed)
        })
    }

    fn run_hook<'a>(&'a self, handle: &'a Handle, hook: &'a Hook) -> RuntimeFuture<'a, i64> {
        Box::pin(logs_exec::run_hook(self, handle, hook))
    }

    fn remove_unused_networks<'a>(&'a self, work: &'a [Work]) -> RuntimeFuture<'a, ()> {
        Box::pin(self.prune_networks(work))
    }

    fn resource_usage<'a>(&'a self, handle: &'a Handle) -> RuntimeFuture<'a, ResourceUsage> {
        Box::pin(stats::resource_usage(self, handle))
    }

    fn logs<'a>(&'a self, handle: &'a Handle, options: LogOptions) -> RuntimeFuture<'a, mpsc::Receiver<LogLine>> {
        Box::pin(logs_exec::logs(self, handle, options))
    }

    fn exec<'a>(&'a self, handle: &'a Handle, request: ExecRequest) -> RuntimeFuture<'a, ExecSession> {
        Box::pin(logs_exec::exec(self, handle, request))
    }

    fn attach<'a>(&'a self, handle: &'a Handle) -> RuntimeFuture<'a, Option<ExecSession>> {
        Box::pin(self.take_session(handle))
    }
}

impl Docker {
    fn ownership_filter(&self) -> HashMap<String, Vec<String>> {
        ownership_filter(&self.cluster_id, &self.node)
    }

    async fn list_filtered(&self, filters: HashMap<String, Vec<String>>) -> Result<Vec<ExistingReplica>, RuntimeError> {
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let list = self.call(LONG, async |client| client.list_containers(Some(options)).await).await?;
        let labelled = list.iter().filter_map(|container| Some((container, labels::existing(container)?)));
        let own = labelled.filter(|(container, existing)| self.was_created_here(container, existing));
        Ok(own.map(|(_, existing)| existing).collect())
    }

    /// Labels alone prove nothing: an image committed from a container of ours passes them on to whatever runs from it.
    /// A container is ours if it has the name the agent gave it, or the id in the marker written when it was created.
    fn was_created_here(&self, container: &ContainerSummary, existing: &ExistingReplica) -> bool {
        let name = container_name(&existing.key, existing.attempt);
        let given = [self.cluster_scoped_name(&name), name.clone()];
        let is_named =
            |given: &String| container.names.iter().flatten().any(|name| name.trim_start_matches('/') == given);
        given.iter().any(is_named) || self.markers.names(&name, &existing.handle)
    }

    /// Makes one call to the engine, within a time-out.
    async fn call<T>(
        &self,
        limit: Duration,
        request: impl AsyncFnOnce(Client) -> Result<T, Error>,
    ) -> Result<T, RuntimeError> {
        let client = self.connection.client().await?;
        within(limit, request(client)).await
    }
}

/// The engine's filter for objects of this cluster and node.
fn ownership_filter(cluster_id: &str, node: &NodeName) -> HashMap<String, Vec<String>> {
    let own = [(labels::CLUSTER, cluster_id), (labels::NODE, node.as_str())];
    HashMap::from([("label".to_owned(), own.map(|(name, value)| format!("{name}={value}")).to_vec())])
}

/// What shall be gone and does not exist is gone.
fn ignore_not_found(result: Result<(), RuntimeError>) -> Result<(), RuntimeError> {
    match result {
        Err(RuntimeError::NotFound) => Ok(()),
        other => other,
    }
}

async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, Error>>) -> Result<T, RuntimeError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(classify),
        Err(_) => Err(unavailable(format!("no answer within {} s", limit.as_secs()))),
    }
}

fn unavailable(reason: String) -> RuntimeError {
    RuntimeError::Unavailable { driver: Driver::Docker, reason }
}

fn classify(error: Error) -> RuntimeError {
    // The engine has no error code for these cases, so its messages decide.
    let is_dependency =
        |message: &str| message.contains("non running container") || message.contains("namespace of container");
    let is_missing = |message: &str| message.contains("o such container") || message.contains("o such image");
    match error {
        Error::DockerResponseServerError { message, .. } if is_dependency(&message) => {
            RuntimeError::DependencyNotReady(message)
        }
        Error::DockerResponseServerError { status_code: 404, message } if is_missing(&message) => {
            RuntimeError::NotFound
        }
        Error::DockerResponseServerError { message, .. } if is_engine_trouble(&message) => unavailable(message),
        Error::DockerResponseServerError { message, .. } => RuntimeError::Refused(message),
        // The library's own message is only `error in the client`; the causes say what happened.
        other => unavailable(error_chain(&other)),
    }
}

/// Whether a message tells of the engine's own state and not of the request: it is starting or stopping, its
/// containerd or a plugin is not there yet, or it was upgraded since the API version was negotiated.
fn is_engine_trouble(message: &str) -> bool {
    const SIGNS: [&str; 10] = [
        "dial unix",
        "transport is closing",
        "ttrpc: closed",
        "error reading from server: EOF",
        "code = Unavailable",
        "containerd is not ready",
        "context canceled",
        "context deadline exceeded",
        "shutting down",
        "client version",
    ];
    SIGNS.iter().any(|sign| message.contains(sign))
}
