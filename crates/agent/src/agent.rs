//! The agent itself: follows the work feed, keeps the desired work, and runs one task per generation.
//!
//! Owns: the connection to the control plane, and which task runs which work.
//! Invariant: a message is on disk before it is acted on; a connection that ends changes nothing but the next attempt
//! to connect.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longshore_model::{ReplicaKey, Work, WorkFeed, agent_protocol::CleanupState};
use tokio::{
    sync::{Semaphore, watch},
    task::{AbortHandle, JoinHandle},
};

use crate::{
    agent_handle::AgentHandle,
    backoff::Backoff,
    config::AgentConfig,
    control_link::ControlLink,
    created_markers::CreatedMarkers,
    desired_work::{DesiredWork, FeedOutcome},
    disk::DiskMonitor,
    driver_availability::DriverAvailability,
    heartbeat::{self, HeartbeatState},
    orphan_gc,
    replica::{self, AgentContext},
    runtime::{self, RuntimeContext},
    secret_files::SecretFiles,
    wakeups::Wakeups,
    work_file::WorkFile,
};

/// Why an agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartAgentError {
    /// The data folder cannot be read or written.
    #[error("`{}` cannot be used", folder.display())]
    Folder {
        /// [`AgentConfig::data_dir`].
        folder: std::path::PathBuf,
        /// The error of the file system.
        #[source]
        cause: io::Error,
    },
}

/// Runs the work of one node.
pub struct Agent {
    ctx: Arc<AgentContext>,
    heartbeat: Arc<HeartbeatState>,
    work_file: WorkFile,
    desired: Arc<Mutex<DesiredWork>>,
    workers: BTreeMap<ReplicaKey, Worker>,
    orphan_gc: Option<AbortHandle>,
}

/// The task of one generation, and the channel with its newest work.
struct Worker {
    work: watch::Sender<Work>,
    task: JoinHandle<()>,
}

impl Agent {
    /// Starts an agent: it adopts what runs, resumes the work in its work file, and connects.
    pub fn start(config: &AgentConfig, link: Arc<dyn ControlLink>) -> Result<AgentHandle, StartAgentError> {
        let unusable = |cause| StartAgentError::Folder { folder: config.data_dir.clone(), cause };
        let work_file = WorkFile::in_folder(&config.data_dir).map_err(unusable)?;
        let desired = Arc::new(Mutex::new(work_file.read().map_err(unusable)?));
        let wakeups = Arc::new(Wakeups::default());
        let markers = CreatedMarkers::in_folder(&config.data_dir).map_err(unusable)?;
        let building = RuntimeContext { config, link: &link, wakeups: &wakeups, markers: &markers };
        let runtimes = runtime::enabled(&building).map_err(unusable)?;
        let expected = runtimes.values().filter(|runtime| runtime.is_expected()).map(|runtime| runtime.driver());
        let ctx = Arc::new(AgentContext {
            drivers: DriverAvailability::expecting(expected),
            runtimes,
            link: Arc::clone(&link),
            outbox: Arc::default(),
            wakeups,
            markers,
            files: SecretFiles::in_folders(config.secrets_dir.clone(), config.users_secrets_dir.clone()),
            start_permits: Semaphore::new(config.parallel_starts.max(1)),
            deregistration_delay: config.deregistration_delay,
            synced: watch::Sender::new(false),
        });
        let heartbeat = Arc::new(HeartbeatState::default());
        let agent = Self {
            ctx: Arc::clone(&ctx),
            heartbeat: Arc::clone(&heartbeat),
            work_file,
            desired: Arc::clone(&desired),
            workers: BTreeMap::new(),
            orphan_gc: None,
        };
        let tasks = vec![
            tokio::spawn(Arc::clone(&ctx.outbox).deliver(link)),
            tokio::spawn(heartbeat::send(Arc::clone(&ctx), Arc::clone(&heartbeat), config.heartbeat_interval)),
            tokio::spawn(heartbeat::probe_drivers(Arc::clone(&ctx), Arc::clone(&heartbeat), config.heartbeat_interval)),
            tokio::spawn(heartbeat::collect_samples(
                Arc::clone(&ctx),
                Arc::clone(&heartbeat),
                config.status_interval,
                DiskMonitor::new(config.data_dir.clone()),
            )),
            tokio::spawn(agent.run()),
        ];
        Ok(AgentHandle::new(ctx, desired, tasks, config))
    }

    async fn run(mut self) {
        let resumed: Vec<Work> = self.desired().work().cloned().collect();
        for work in resumed {
            self.assign(work);
        }
        let mut backoff = Backoff::for_requests();
        loop {
            let cursor = self.desired().cursor();
            match self.ctx.link.connect(cursor).await {
                Ok(mut feed) => {
                    backoff = Backoff::for_requests();
                    // The server may be another one now, without the reports sent before.
                    self.ctx.outbox.resend_all();
                    while let Some(message) = feed.recv().await {
                        self.apply(message).await;
                    }
                }
                Err(error) => tracing::debug!(%error, "not connected"),
            }
            tokio::time::sleep(backoff.next_pause()).await;
        }
    }

    async fn apply(&mut self, message: WorkFeed) {
        let is_snapshot = matches!(message, WorkFeed::Snapshot { .. });
        let outcome = self.desired().apply(message);
        let FeedOutcome::Applied { changed, gone } = outcome else { return };
        self.save().await;
        for key in gone {
            self.unassign(&key);
        }
        for work in changed {
            self.assign(work);
        }
        let cursor = self.desired().cursor();
        self.heartbeat.set_cursor(cursor);
        if is_snapshot {
            self.ctx.synced.send_replace(true);
            self.start_orphan_gc();
        }
    }

    async fn save(&self) {
        let (work_file, desired) = (self.work_file.clone(), self.desired().clone());
        let written = tokio::task::spawn_blocking(move || work_file.write(&desired)).await;
        // The work is carried out anyway: a full disk must not stop a rollout.
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "the desired work could not be written to disk");
        }
    }

    fn assign(&mut self, work: Work) {
        if let Some(worker) = self.workers.get(&work.key)
            && worker.work.send(work.clone()).is_ok()
        {
            return;
        }
        let key = work.key.clone();
        let (sender, newest) = watch::channel(work);
        let task = tokio::spawn(replica::run(Arc::clone(&self.ctx), newest));
        self.workers.insert(key, Worker { work: sender, task });
    }

    /// A generation is no longer this node's: its task ends at the next safe point, then its attempts are removed.
    fn unassign(&mut self, key: &ReplicaKey) {
        let Some(Worker { work, task }) = self.workers.remove(key) else { return };
        drop(work);
        let (ctx, key, desired) = (Arc::clone(&self.ctx), key.clone(), Arc::clone(&self.desired));
        tokio::spawn(async move {
            let _ = task.await;
            // It may have been assigned again meanwhile.
            if lock(&desired).get(&key).is_some() {
                return;
            }
            ctx.outbox.forget(&key);
            ctx.wakeups.forget(&key);
            for runtime in ctx.runtimes.values() {
                for existing in runtime.attempts(&key).await.unwrap_or_default() {
                    let _ = replica::stop_and_remove(&ctx, &**runtime, &existing).await;
                }
                let work: Vec<Work> = lock(&desired).work().cloned().collect();
                let _ = runtime.remove_unused_networks(&work).await;
            }
            let _ = replica::remove_stale_attempt_data(&ctx, || lock(&desired).clone()).await;
        });
    }

    fn start_orphan_gc(&mut self) {
        if let Some(earlier) = self.orphan_gc.take() {
            earlier.abort();
        }
        self.heartbeat.set_cleanup(CleanupState::InProgress);
        let keys = self.desired().work().map(|work| work.key.clone()).collect();
        let (ctx, heartbeat) = (Arc::clone(&self.ctx), Arc::clone(&self.heartbeat));
        let desired = Arc::clone(&self.desired);
        let collecting = async move {
            let away = orphan_gc::remove_orphans(&ctx, &keys).await;
            heartbeat.set_cleanup(CleanupState::Done);
            orphan_gc::remove_orphans_later(&ctx, &keys, away).await;
            if let Err(error) = replica::remove_stale_attempt_data(&ctx, || lock(&desired).clone()).await {
                tracing::debug!(%error, "files and markers of removed attempts stay until the next snapshot");
            }
        };
        self.orphan_gc = Some(tokio::spawn(collecting).abort_handle());
    }

    fn desired(&self) -> MutexGuard<'_, DesiredWork> {
        lock(&self.desired)
    }
}

fn lock(desired: &Mutex<DesiredWork>) -> MutexGuard<'_, DesiredWork> {
    // A message is applied as a whole, so a panic elsewhere leaves no partial update.
    desired.lock().unwrap_or_else(PoisonError::into_inner)
}
