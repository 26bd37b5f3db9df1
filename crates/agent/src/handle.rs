//! What the rest of the daemon holds of a running agent.
//!
//! Owns: finding the replica that is asked about, and letting go of the agent without touching what it runs.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use longshore_model::{Generation, GroupKey, Sighting, SlotKey, WorkKey, node::Survey};
use tokio::{sync::mpsc, task::JoinHandle};

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

    /// The output of a slot's newest generation that was started here.
    pub async fn logs(
        &self,
        group: &GroupKey,
        slot: &SlotKey,
        options: LogOptions,
    ) -> Result<mpsc::Receiver<LogLine>, ReplicaUnknown> {
        let (runtime, handle) = self.newest(group, slot).await?;
        Ok(runtime.logs(&handle, options).await?)
    }

    /// Runs a command beside a slot's newest generation that was started here.
    pub async fn exec(
        &self,
        group: &GroupKey,
        slot: &SlotKey,
        request: ExecRequest,
    ) -> Result<ExecSession, ReplicaUnknown> {
        let (runtime, handle) = self.newest(group, slot).await?;
        Ok(runtime.session(&handle, request).await?)
    }

    /// What this machine is and has.
    pub async fn survey(&self) -> Survey {
        survey::survey(self.shared.runtimes.values().map(AsRef::as_ref), &self.data_dir).await
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
    }

    async fn newest(&self, group: &GroupKey, slot: &SlotKey) -> Result<(Arc<Runtime>, Handle), ReplicaUnknown> {
        let mut generations: Vec<(WorkKey, longshore_model::Driver)> = {
            let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
            let of_slot = book.work().filter(|work| work.key.group == *group && work.key.slot == *slot);
            of_slot.map(|work| (work.key.clone(), work.spec.driver)).collect()
        };
        generations.sort_by_key(|(key, _)| std::cmp::Reverse(key.generation));
        for (key, driver) in generations {
            let Some(runtime) = self.shared.runtimes.get(&driver) else { continue };
            let attempts = runtime.attempts(&key).await?;
            if let Some(newest) = attempts.into_iter().max_by_key(|found| found.attempt) {
                return Ok((Arc::clone(runtime), newest.handle));
            }
        }
        let nobody = WorkKey { group: group.clone(), slot: slot.clone(), generation: Generation(0) };
        Err(ReplicaUnknown::NotHere(nobody.slot.printed(&nobody.group)))
    }
}
