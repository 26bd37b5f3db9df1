//! What the rest of the daemon holds of a running agent.
//!
//! Owns: finding the replica that is asked about, and letting go of the agent without touching what it runs.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use longshore_model::{Attempt, Sighting, WorkKey, node::Survey};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::{
    book::Book,
    replica::Shared,
    runtime::{Handle, Runtime, RuntimeError},
    session::{ExecRequest, ExecSession, LogLine, LogOptions},
    survey,
};

/// A running agent. Dropping it leaves the agent running.
pub struct AgentHandle {
    shared: Arc<Shared>,
    book: Arc<Mutex<Book>>,
    tasks: Vec<JoinHandle<()>>,
    data_dir: PathBuf,
}

/// Why a replica could not be asked.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaUnknown {
    /// Nothing of that slot is here.
    #[error("`{0}` has never been started on this node")]
    NotHere(String),
    /// Its driver said no.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl AgentHandle {
    pub(crate) fn new(
        shared: Arc<Shared>,
        book: Arc<Mutex<Book>>,
        tasks: Vec<JoinHandle<()>>,
        data_dir: PathBuf,
    ) -> Self {
        Self { shared, book, tasks, data_dir }
    }

    /// The output of one start of a generation.
    pub async fn logs(
        &self,
        key: &WorkKey,
        attempt: Attempt,
        options: LogOptions,
    ) -> Result<mpsc::Receiver<LogLine>, ReplicaUnknown> {
        let (runtime, handle) = self.find(key, attempt).await?;
        Ok(runtime.logs(&handle, options).await?)
    }

    /// Runs a command beside it.
    pub async fn exec(
        &self,
        key: &WorkKey,
        attempt: Attempt,
        request: ExecRequest,
    ) -> Result<ExecSession, ReplicaUnknown> {
        let (runtime, handle) = self.find(key, attempt).await?;
        Ok(runtime.session(&handle, request).await?)
    }

    /// What this machine is and has.
    pub async fn survey(&self) -> Survey {
        survey::survey(&self.shared, &self.data_dir).await
    }

    /// Changes whenever a driver comes or goes: what a survey says may differ from then on.
    pub fn driver_turns(&self) -> watch::Receiver<u64> {
        self.shared.drivers.turns()
    }

    /// What was last reported of a generation.
    pub fn last_seen(&self, key: &WorkKey) -> Option<Sighting> {
        self.shared.outbox.last(key)
    }

    /// Ends the agent, and nothing it runs.
    pub fn shut_down(&self) {
        for task in &self.tasks {
            task.abort();
        }
        self.shared.files.let_go();
    }

    async fn find(&self, key: &WorkKey, attempt: Attempt) -> Result<(Arc<Runtime>, Handle), ReplicaUnknown> {
        let driver = {
            let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
            book.get(key).map(|work| work.spec.driver)
        };
        if let Some(runtime) = driver.and_then(|driver| self.shared.runtimes.get(&driver)) {
            let attempts = runtime.attempts(key).await?;
            if let Some(found) = attempts.into_iter().find(|found| found.attempt == attempt) {
                return Ok((Arc::clone(runtime), found.handle));
            }
        }
        Err(ReplicaUnknown::NotHere(key.slot.printed(&key.group)))
    }
}
