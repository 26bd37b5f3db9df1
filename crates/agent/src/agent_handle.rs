//! The daemon's handle to a running agent.
//!
//! Owns: finding the replica a request is about, and shutting down the agent without touching what it runs.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use longshore_model::{Attempt, Driver, ReplicaKey, ReplicaReport, node::NodeFingerprint};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::{
    config::AgentConfig,
    control_link::RegistryLogin,
    desired_work::DesiredWork,
    engine_query::{EngineAnswer, EngineQuery, VolumeRemoval},
    fingerprint::{self, FingerprintConfig},
    logs_exec::{ExecInput, ExecRequest, ExecSession, LogLine, LogOptions, Terminal},
    replica::AgentContext,
    runtime::{Handle, Runtime, RuntimeError},
};

/// A running agent. Dropping the handle leaves the agent running.
pub struct AgentHandle {
    ctx: Arc<AgentContext>,
    desired: Arc<Mutex<DesiredWork>>,
    tasks: Vec<JoinHandle<()>>,
    fingerprint: FingerprintConfig,
}

/// Why logs or exec of a replica failed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaAccessError {
    /// The attempt does not exist on this node.
    #[error("`{0}` has never been started on this node")]
    NotFound(String),
    /// The driver failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl AgentHandle {
    pub(crate) fn new(
        ctx: Arc<AgentContext>,
        desired: Arc<Mutex<DesiredWork>>,
        tasks: Vec<JoinHandle<()>>,
        config: &AgentConfig,
    ) -> Self {
        let fingerprint = FingerprintConfig {
            data_dir: config.data_dir.clone(),
            disk_bytes: config.disk_bytes,
            flags: config.flags.clone(),
            sysfs: config.finds_devices.then(|| config.sysfs.clone()),
        };
        Self { ctx, desired, tasks, fingerprint }
    }

    /// The output of one attempt.
    pub async fn logs(
        &self,
        key: &ReplicaKey,
        attempt: Attempt,
        options: LogOptions,
    ) -> Result<mpsc::Receiver<LogLine>, ReplicaAccessError> {
        let (runtime, handle) = self.find(key, attempt).await?;
        Ok(runtime.logs(&handle, options).await?)
    }

    /// Runs a command next to the process of one attempt.
    pub async fn exec(
        &self,
        key: &ReplicaKey,
        attempt: Attempt,
        request: ExecRequest,
    ) -> Result<ExecSession, ReplicaAccessError> {
        let (runtime, handle) = self.find(key, attempt).await?;
        Ok(runtime.exec(&handle, request).await?)
    }

    /// Input and output of the process of a one-off job, on a terminal if it was given one. Once it has ended, its log
    /// and its exit code.
    pub async fn attach(
        &self,
        key: &ReplicaKey,
        attempt: Attempt,
        terminal: Terminal,
    ) -> Result<ExecSession, ReplicaAccessError> {
        let (runtime, handle) = self.find(key, attempt).await?;
        match runtime.attach(&handle).await? {
            Some(session) => {
                if let Terminal::Size { columns, rows } = terminal {
                    // The channel of a new session is empty.
                    let _ = session.input.try_send(ExecInput::Resize { columns, rows });
                }
                Ok(session)
            }
            None => Ok(ExecSession::replay(runtime, handle).await?),
        }
    }

    /// What the Docker Engine of this node has; nothing if the node has none. `logins` are for registries that are asked.
    pub async fn query_engine(
        &self,
        query: &EngineQuery,
        logins: &BTreeMap<String, RegistryLogin>,
    ) -> Result<EngineAnswer, RuntimeError> {
        match self.ctx.runtimes.get(&Driver::Docker) {
            Some(runtime) => runtime.query_engine(query, logins).await,
            None => Ok(EngineAnswer::default()),
        }
    }

    /// Deletes a volume of the Docker Engine of this node, if this cluster created it.
    pub async fn remove_volume(&self, name: &str) -> Result<VolumeRemoval, RuntimeError> {
        match self.ctx.runtimes.get(&Driver::Docker) {
            Some(runtime) => runtime.remove_volume(name).await,
            None => Ok(VolumeRemoval::Removed),
        }
    }

    /// Platform, capacity and available drivers of this machine.
    pub async fn fingerprint(&self) -> NodeFingerprint {
        fingerprint::collect(&self.ctx, &self.fingerprint).await
    }

    /// Changes whenever a driver becomes available or unavailable, after which the fingerprint may differ.
    pub fn driver_changes(&self) -> watch::Receiver<u64> {
        self.ctx.drivers.changes()
    }

    /// The last report about a generation.
    pub fn last_report(&self, key: &ReplicaKey) -> Option<ReplicaReport> {
        self.ctx.outbox.last_report(key)
    }

    /// Ends the agent and leaves everything it runs running.
    pub fn shut_down(&self) {
        for task in &self.tasks {
            task.abort();
        }
        self.ctx.files.unmount_if_empty();
    }

    async fn find(&self, key: &ReplicaKey, attempt: Attempt) -> Result<(Arc<dyn Runtime>, Handle), ReplicaAccessError> {
        let driver = {
            let desired = self.desired.lock().unwrap_or_else(PoisonError::into_inner);
            desired.get(key).map(|work| work.spec.driver)
        };
        if let Some(runtime) = driver.and_then(|driver| self.ctx.runtimes.get(&driver)) {
            let attempts = runtime.attempts(key).await?;
            if let Some(existing) = attempts.into_iter().find(|existing| existing.attempt == attempt) {
                return Ok((Arc::clone(runtime), existing.handle));
            }
        }
        Err(ReplicaAccessError::NotFound(key.slot.replica_id(&key.group)))
    }
}
