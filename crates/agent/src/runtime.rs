//! The contract every driver keeps, and the list of drivers.
//!
//! Owns: [`Runtime`], the types it exchanges, and [`DRIVERS`]. A new driver adds its folder below `runtime/` and one
//! entry to that list.
//! Must not touch: which replicas should run. A driver keeps no record of what was desired.
//! Invariant: a driver lists only what carries this cluster's and this node's id, and stops or removes only what it
//! listed or created itself.

mod docker;
mod exec;
mod identity_env;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    net::IpAddr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use longshore_model::{
    Assignment, Attempt, Driver, Platform, ReplicaKey, Time, Work,
    container::{ContainerSpec, Hook},
};
use tokio::sync::mpsc;

use crate::{
    config::AgentConfig,
    control_link::{ControlLink, RegistryLogin},
    created_markers::CreatedMarkers,
    engine_query::{EngineAnswer, EngineQuery, VolumeRemoval},
    logs_exec::{ExecRequest, ExecSession, LogLine, LogOptions},
    pulls::PullHandle,
    wakeups::Wakeups,
};

/// Why a driver did not carry out a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// The driver does not answer. The outcome of the request is unknown; the agent repeats it.
    #[error("{driver} does not answer: {reason}", driver = .driver.as_str())]
    Unavailable {
        /// The driver that was asked.
        driver: Driver,
        /// The transport error, or the time-out.
        reason: String,
    },
    /// The request cannot be carried out. Repeating it gives the same answer.
    #[error("{0}")]
    Refused(String),
    /// The engine's address pools have no free subnet for the network. Repeated later.
    #[error("{0}")]
    NoSubnet(String),
    /// A replica on this node whose namespace is shared does not run yet.
    #[error("{0}")]
    DependencyNotReady(String),
    /// The container or process does not exist.
    #[error("it does not exist")]
    NotFound,
}

/// How a driver identifies one attempt: a container id, or the path of a process's folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Handle(pub(crate) String);

/// A container or process of this node, running or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExistingReplica {
    pub(crate) key: ReplicaKey,
    pub(crate) attempt: Attempt,
    pub(crate) spec_hash: String,
    /// `None` if an agent that did not record it yet created the replica.
    pub(crate) placed_at: Option<Time>,
    pub(crate) handle: Handle,
    /// How to stop it once its work is no longer known.
    pub(crate) stop: StopSpec,
}

impl ExistingReplica {
    /// Whether it was created for exactly this work. The same key with another spec hash comes from a state that a
    /// restored backup has undone; with another `placed_at` from a previous incarnation of the slot.
    pub(crate) fn matches(&self, work: &Work) -> bool {
        let Assignment { placed_at, reservation, .. } = &work.assignment;
        self.key == work.key
            && self.attempt == work.attempt
            && *self.spec_hash == *reservation.spec_hash.0
            && self.placed_at.is_none_or(|at| at == *placed_at)
    }
}

/// The observed state of one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inspection {
    pub(crate) phase: Phase,
    /// Its own address as reachable from this node, if it has one.
    pub(crate) address: Option<IpAddr>,
    /// Its published ports, each `8080/tcp=127.0.0.1:49153`.
    pub(crate) ports: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Created, never started.
    Created,
    /// Created, and its start failed.
    StartFailed { reason: String },
    /// Its process is alive.
    Running(HealthStatus),
    /// Its process has exited.
    Exited(Exit),
}

/// The result of the health check so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HealthStatus {
    /// There is no health check.
    Unchecked,
    /// It has not passed yet, and has not failed often enough to count.
    Starting,
    Healthy,
    Unhealthy {
        failing_streak: u64,
        output: String,
    },
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// `None` if the exit code was lost.
    pub(crate) code: Option<i64>,
    /// Whether the kernel killed it because it used too much memory.
    pub(crate) oom_killed: bool,
    /// Whether it ran until its engine or the machine went down. It did not end by itself.
    pub(crate) ended_with_host: bool,
}

/// The signal a replica is asked to stop with, and the time it has before it is killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StopSpec {
    pub(crate) signal: String,
    pub(crate) grace: Duration,
}

/// The default of Docker and Compose.
pub(crate) const DEFAULT_GRACE: Duration = Duration::from_secs(10);

impl StopSpec {
    /// The container's own settings; `grace` overrides the time.
    pub(crate) fn of(container: &ContainerSpec, grace: Option<Duration>) -> Self {
        let signal = container.stop_signal.clone().unwrap_or_else(|| "SIGTERM".to_owned());
        Self { signal, grace: grace.or(container.stop_grace_period).unwrap_or(DEFAULT_GRACE) }
    }
}

/// A secret or config that has been written to this machine's memory.
#[derive(Clone, Debug)]
pub(crate) struct PreparedFile {
    pub(crate) path: PathBuf,
    /// Where the replica expects it.
    pub(crate) target: String,
}

/// Counters of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResourceUsage {
    /// Processor time since it started.
    pub(crate) cpu_micros: u64,
    /// Memory in use now, without reclaimable page cache.
    pub(crate) memory_bytes: u64,
}

/// What a driver adds to the fingerprint of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DriverFingerprint {
    /// The platform of what it runs, if that can differ from the agent's own.
    pub(crate) platform: Option<Platform>,
    pub(crate) labels: BTreeMap<String, String>,
    /// Plugins as `kind/name`, for example `volume/local`.
    pub(crate) plugins: BTreeSet<String>,
}

/// Time a `post_start` or `pre_stop` hook may take.
const HOOK_TIMEOUT: Duration = Duration::from_mins(5);

fn hook_timed_out() -> RuntimeError {
    RuntimeError::Refused(format!("a hook took longer than {} s", HOOK_TIMEOUT.as_secs()))
}

/// What every request to a driver returns.
pub(crate) type RuntimeFuture<'a, T> = BoxFuture<'a, Result<T, RuntimeError>>;

/// A driver of this node. The default methods suit a driver without images, networks and shared namespaces.
pub(crate) trait Runtime: fmt::Debug + Send + Sync {
    /// Which driver this is.
    fn driver(&self) -> Driver;

    /// Whether it answers right now. Returns within seconds.
    fn is_available(&self) -> BoxFuture<'_, bool>;

    /// Whether it has answered on this node before, perhaps to an earlier agent, and may only be starting.
    fn is_expected(&self) -> bool {
        false
    }

    /// What it adds to the node's fingerprint. An error leaves the driver out of it.
    fn fingerprint(&self) -> RuntimeFuture<'_, DriverFingerprint>;

    /// Where it keeps images and containers, once known.
    fn data_root(&self) -> Option<PathBuf> {
        None
    }

    /// Every replica of this node that exists.
    fn list(&self) -> RuntimeFuture<'_, Vec<ExistingReplica>>;

    /// All attempts of one generation that exist.
    fn attempts<'a>(&'a self, key: &'a ReplicaKey) -> RuntimeFuture<'a, Vec<ExistingReplica>> {
        Box::pin(async move { Ok(self.list().await?.into_iter().filter(|existing| existing.key == *key).collect()) })
    }

    /// Begins or joins the pull of the work's image; `None` if nothing has to be pulled. Dropping the handle gives it
    /// up.
    fn pull_image<'a>(&'a self, _work: &'a Work) -> RuntimeFuture<'a, Option<PullHandle>> {
        Box::pin(async { Ok(None) })
    }

    /// What the engine has; nothing for a driver without images.
    fn query_engine<'a>(
        &'a self,
        _query: &'a EngineQuery,
        _logins: &'a BTreeMap<String, RegistryLogin>,
    ) -> RuntimeFuture<'a, EngineAnswer> {
        Box::pin(async { Ok(EngineAnswer::default()) })
    }

    /// Deletes a volume of the engine that this cluster created. Nothing to do for a driver without volumes.
    fn remove_volume<'a>(&'a self, _name: &'a str) -> RuntimeFuture<'a, VolumeRemoval> {
        Box::pin(async { Ok(VolumeRemoval::Removed) })
    }

    /// Fails with [`RuntimeError::DependencyNotReady`] until every service whose namespace the work shares runs here.
    fn check_dependencies<'a>(&'a self, _work: &'a Work) -> RuntimeFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn create<'a>(&'a self, work: &'a Work, files: &'a [PreparedFile]) -> RuntimeFuture<'a, Handle>;

    fn start<'a>(&'a self, handle: &'a Handle) -> RuntimeFuture<'a, ()>;

    fn inspect<'a>(&'a self, handle: &'a Handle) -> RuntimeFuture<'a, Inspection>;

    /// Starts a replica again that ended with its engine or machine.
    fn resume<'a>(&'a self, work: &'a Work, handle: &'a Handle) -> RuntimeFuture<'a, ()>;

    /// Sends the stop signal, waits for the grace period, then kills. Returns once the process is gone.
    fn stop<'a>(&'a self, handle: &'a Handle, stop: &'a StopSpec) -> RuntimeFuture<'a, ()>;

    /// Removes an exited replica with its files and anonymous volumes.
    fn remove<'a>(&'a self, handle: &'a Handle) -> RuntimeFuture<'a, ()>;

    /// Releases what an exited replica holds besides its output, which stays readable.
    fn release(&self, _handle: &Handle) {}

    /// Runs a hook next to the replica's process and returns its exit code.
    fn run_hook<'a>(&'a self, handle: &'a Handle, hook: &'a Hook) -> RuntimeFuture<'a, i64>;

    /// Removes this node's networks that none of the work uses.
    fn remove_unused_networks<'a>(&'a self, _work: &'a [Work]) -> RuntimeFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn resource_usage<'a>(&'a self, handle: &'a Handle) -> RuntimeFuture<'a, ResourceUsage>;

    fn logs<'a>(&'a self, handle: &'a Handle, options: LogOptions) -> RuntimeFuture<'a, mpsc::Receiver<LogLine>>;

    /// Runs a command next to the replica's process.
    fn exec<'a>(&'a self, handle: &'a Handle, request: ExecRequest) -> RuntimeFuture<'a, ExecSession>;

    /// The input and output of the process itself, of a one-off job that was started with its input open. `None` once
    /// it has ended and its session was taken or given up.
    fn attach<'a>(&'a self, handle: &'a Handle) -> RuntimeFuture<'a, Option<ExecSession>>;
}

/// What a driver is built from.
pub(crate) struct RuntimeContext<'a> {
    pub(crate) config: &'a AgentConfig,
    pub(crate) link: &'a Arc<dyn ControlLink>,
    pub(crate) wakeups: &'a Arc<Wakeups>,
    pub(crate) markers: &'a CreatedMarkers,
}

/// Builds a driver; `None` if the node's settings do not enable it.
type Build = fn(&RuntimeContext<'_>) -> io::Result<Option<Arc<dyn Runtime>>>;

/// Every driver there is.
const DRIVERS: [Build; 2] = [docker::build, exec::build];

/// The drivers that the node's settings enable.
pub(crate) fn enabled(ctx: &RuntimeContext<'_>) -> io::Result<BTreeMap<Driver, Arc<dyn Runtime>>> {
    let mut runtimes = BTreeMap::new();
    for build in DRIVERS {
        if let Some(runtime) = build(ctx)? {
            runtimes.insert(runtime.driver(), runtime);
        }
    }
    Ok(runtimes)
}
