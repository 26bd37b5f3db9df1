//! What can start a replica: containers on an engine, or plain processes. Both keep the same contract.
//!
//! Owns: the contract. A driver makes, starts, looks at, ends and removes one thing, and lists what is this node's own.
//! Must not touch: which thing shall run. A driver has no memory of what was wanted.
//! Invariant: nothing without this cluster's and this node's mark is ever listed, and only what was listed or made here is
//! ended or removed.

pub(crate) mod docker;
pub(crate) mod exec;
mod identity;

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use longshore_model::{
    Assignment, Attempt, Driver, Time, Work, WorkKey,
    container::{ContainerSpec, Hook},
};
use tokio::sync::{Notify, mpsc};

use crate::{
    pulls::Ticket,
    session::{ExecRequest, ExecSession, LogLine, LogOptions},
};

/// Why a driver did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// The engine does not answer. Nothing is known of what became of the request; it is made again.
    #[error("{driver} does not answer: {reason}", driver = .driver.as_str())]
    Away {
        /// Which driver.
        driver: Driver,
        /// In its own words.
        reason: String,
    },
    /// It cannot be done as asked. Asking again gives the same answer.
    #[error("{0}")]
    Refused(String),
    /// No addresses are left for the network it needs. It may be done later, when some are free.
    #[error("{0}")]
    NoSubnet(String),
    /// Something on this node that it shares with another replica is not there yet.
    #[error("{0}")]
    NotYet(String),
    /// What it was about is not there.
    #[error("it is gone")]
    Gone,
}

/// What a driver knows a replica by: a container's id, or a process's folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Handle(pub(crate) String);

/// Something of this node's own that exists, running or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) key: WorkKey,
    pub(crate) attempt: Attempt,
    pub(crate) spec_hash: String,
    /// When it was placed; what an older agent made does not say.
    pub(crate) placed_at: Option<Time>,
    pub(crate) handle: Handle,
    /// How it is to be ended when its work is no longer known.
    pub(crate) ending: Ending,
}

impl Found {
    /// Whether it is what the work asks for. The same numbers with another spec are from a time that was undone by a
    /// restored backup, and placed at another time from a former life of the slot.
    pub(crate) fn answers(&self, work: &Work) -> bool {
        let Assignment { placed_at, terms, .. } = &work.assignment;
        self.key == work.key
            && self.attempt == work.attempt
            && *self.spec_hash == *terms.spec_hash.0
            && self.placed_at.is_none_or(|at| at == *placed_at)
    }
}

/// What a look at a replica shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) phase: Phase,
    /// Where it can be reached from this node, where it has an address of its own.
    pub(crate) address: Option<IpAddr>,
    /// Its published ports, each `8080/tcp=127.0.0.1:49153`.
    pub(crate) ports: Vec<String>,
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Made, never started.
    Made,
    /// Made, and its start failed.
    Refused { reason: String },
    /// Its process lives.
    Up(Pulse),
    /// Its process has ended.
    Ended(Exit),
}

/// What its health check says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pulse {
    /// It has none.
    Unchecked,
    /// It has not passed yet, and may still.
    Starting,
    /// It passes.
    Healthy,
    /// It fails.
    Unhealthy { streak: u64, output: String },
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// `None` where nobody saw it end.
    pub(crate) code: Option<i64>,
    pub(crate) cause: ExitCause,
}

/// Who ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitCause {
    /// Itself, or a signal.
    Own,
    /// The kernel, because it used too much memory.
    OutOfMemory,
}

/// How a replica is asked to end before it is made to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) signal: String,
    pub(crate) grace: Duration,
}

/// What Docker and Compose give a process that says nothing.
const DEFAULT_GRACE: Duration = Duration::from_secs(10);

impl Ending {
    pub(crate) fn of(container: &ContainerSpec, grace: Option<Duration>) -> Self {
        let signal = container.stop_signal.clone().unwrap_or_else(|| "SIGTERM".to_owned());
        Self { signal, grace: grace.or(container.stop_grace_period).unwrap_or(DEFAULT_GRACE) }
    }
}

/// A secret or config that lies ready on this machine.
#[derive(Clone, Debug)]
pub(crate) struct PlacedFile {
    pub(crate) path: PathBuf,
    pub(crate) target: String,
}

/// What a replica has used since it started, and uses now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) cpu_micros: u64,
    pub(crate) memory_bytes: u64,
}

/// Wakes whoever watches a replica, because something about it may have changed. A hint, never the news itself.
#[derive(Debug, Default)]
pub(crate) struct Pokes {
    sleepers: std::sync::Mutex<BTreeMap<WorkKey, Arc<Notify>>>,
}

impl Pokes {
    pub(crate) fn sleeper(&self, key: &WorkKey) -> Arc<Notify> {
        Arc::clone(self.lock().entry(key.clone()).or_default())
    }

    pub(crate) fn forget(&self, key: &WorkKey) {
        self.lock().remove(key);
    }

    pub(crate) fn poke(&self, key: &WorkKey) {
        if let Some(sleeper) = self.lock().get(key) {
            sleeper.notify_one();
        }
    }

    pub(crate) fn poke_all(&self) {
        for sleeper in self.lock().values() {
            sleeper.notify_one();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<WorkKey, Arc<Notify>>> {
        // A panic while the map is borrowed leaves a map; there is no half-made state to fear.
        self.sleepers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// One of the drivers of this node.
#[derive(Debug)]
pub(crate) enum Runtime {
    Docker(docker::Docker),
    Exec(exec::Exec),
}

macro_rules! ask {
    ($runtime:expr, $driver:ident => $answer:expr) => {
        match $runtime {
            Runtime::Docker($driver) => $answer,
            Runtime::Exec($driver) => $answer,
        }
    };
}

impl Runtime {
    pub(crate) const fn driver(&self) -> Driver {
        match self {
            Self::Docker(_) => Driver::Docker,
            Self::Exec(_) => Driver::Exec,
        }
    }

    /// Whether it can be asked at all right now.
    pub(crate) async fn answers(&self) -> bool {
        ask!(self, driver => driver.answers().await)
    }

    /// Everything of this node's own.
    pub(crate) async fn list(&self) -> Result<Vec<Found>, RuntimeError> {
        ask!(self, driver => driver.list().await)
    }

    /// All attempts of one generation that exist here.
    pub(crate) async fn attempts(&self, key: &WorkKey) -> Result<Vec<Found>, RuntimeError> {
        ask!(self, driver => driver.attempts(key).await)
    }

    /// The image, where it is not here yet; a ticket that is dropped cancels the fetch.
    pub(crate) async fn fetch(&self, work: &Work) -> Result<Option<Ticket>, RuntimeError> {
        match self {
            Self::Docker(docker) => docker.fetch(work).await,
            Self::Exec(_) => Ok(None),
        }
    }

    pub(crate) async fn make(&self, work: &Work, files: &[PlacedFile]) -> Result<Handle, RuntimeError> {
        ask!(self, driver => driver.make(work, files).await)
    }

    pub(crate) async fn start(&self, handle: &Handle) -> Result<(), RuntimeError> {
        ask!(self, driver => driver.start(handle).await)
    }

    pub(crate) async fn look(&self, handle: &Handle) -> Result<Seen, RuntimeError> {
        ask!(self, driver => driver.look(handle).await)
    }

    /// Asks it to end, waits, and makes it end. Returns when its process is gone.
    pub(crate) async fn end(&self, handle: &Handle, ending: &Ending) -> Result<(), RuntimeError> {
        ask!(self, driver => driver.end(handle, ending).await)
    }

    /// Takes away what an ended replica leaves, and what is gone with it: files and volumes without a name.
    pub(crate) async fn remove(&self, handle: &Handle) -> Result<(), RuntimeError> {
        ask!(self, driver => driver.remove(handle).await)
    }

    /// Lets an ended replica's output stay for people to read, and nothing else of it.
    pub(crate) fn retire(&self, handle: &Handle) {
        match self {
            // An ended container is nothing but its files.
            Self::Docker(_) => {}
            Self::Exec(exec) => exec.retire(handle),
        }
    }

    /// Whether those it shares something with are there.
    pub(crate) async fn company(&self, work: &Work) -> Result<(), RuntimeError> {
        match self {
            Self::Docker(docker) => docker.company(work).await,
            Self::Exec(_) => Ok(()),
        }
    }

    /// Runs a command beside the replica's process, to its end.
    pub(crate) async fn hook(&self, handle: &Handle, hook: &Hook) -> Result<i64, RuntimeError> {
        ask!(self, driver => driver.hook(handle, hook).await)
    }

    /// Takes away what no work needs any more and no replica owns.
    pub(crate) async fn tidy<'w>(&self, work: impl Iterator<Item = &'w Work>) -> Result<(), RuntimeError> {
        match self {
            Self::Docker(docker) => docker.tidy_networks(work).await,
            Self::Exec(_) => Ok(()),
        }
    }

    pub(crate) async fn spent(&self, handle: &Handle) -> Result<Spent, RuntimeError> {
        ask!(self, driver => driver.spent(handle).await)
    }

    pub(crate) async fn logs(
        &self,
        handle: &Handle,
        options: LogOptions,
    ) -> Result<mpsc::Receiver<LogLine>, RuntimeError> {
        ask!(self, driver => driver.logs(handle, options).await)
    }

    pub(crate) async fn session(&self, handle: &Handle, request: ExecRequest) -> Result<ExecSession, RuntimeError> {
        ask!(self, driver => driver.session(handle, request).await)
    }
}
