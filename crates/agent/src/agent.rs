//! The agent itself: reads its feed, keeps the book, and gives every generation a task.
//!
//! Owns: the connection to the control plane, and who works on what.
//! Invariant: a message is on disk before it is acted on; a connection that ends changes nothing but what is tried next.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longshore_model::{Driver, Work, WorkFeed, WorkKey, work::Standing};
use tokio::{
    sync::{Semaphore, watch},
    task::{AbortHandle, JoinHandle},
};

use crate::{
    backoff::Backoff,
    beat::{self, Vitals},
    book::{Book, Heard},
    config::AgentConfig,
    drivers::Drivers,
    files::Files,
    handle::AgentHandle,
    ledger::Ledger,
    link::ControlLink,
    marks::Marks,
    replica::{self, Shared},
    runtime::{Pokes, Runtime, docker::Docker, exec::Exec},
    sweep,
};

/// Why an agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartAgentError {
    /// Its folder cannot be used.
    #[error("`{}` cannot be used", folder.display())]
    Folder {
        /// Which.
        folder: std::path::PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
}

/// Runs the work of one node.
pub struct Agent {
    shared: Arc<Shared>,
    vitals: Arc<Vitals>,
    ledger: Ledger,
    book: Arc<Mutex<Book>>,
    workers: BTreeMap<WorkKey, Worker>,
    sweeper: Option<AbortHandle>,
}

/// A task and the wish it follows.
struct Worker {
    wish: watch::Sender<Work>,
    task: JoinHandle<()>,
}

impl Agent {
    /// Starts an agent: it adopts what runs, takes up the work it had, and connects.
    pub fn start(config: &AgentConfig, link: Arc<dyn ControlLink>) -> Result<AgentHandle, StartAgentError> {
        let unusable = |cause| StartAgentError::Folder { folder: config.data_dir.clone(), cause };
        let ledger = Ledger::in_folder(&config.data_dir).map_err(unusable)?;
        let book = Arc::new(Mutex::new(ledger.read().map_err(unusable)?));
        let pokes = Arc::new(Pokes::default());
        let marks = Marks::in_folder(&config.data_dir).map_err(unusable)?;
        let shared = Arc::new(Shared {
            runtimes: runtimes(config, &link, &pokes, &marks).map_err(unusable)?,
            link: Arc::clone(&link),
            outbox: Arc::default(),
            drivers: Drivers::default(),
            pokes,
            marks,
            files: Files::in_folder(config.secrets_dir.clone()),
            permits: Semaphore::new(config.parallel_starts.max(1)),
            farewell: config.farewell,
        });
        let vitals = Arc::new(Vitals::default());
        let tasks = vec![
            tokio::spawn(Arc::clone(&shared.outbox).deliver(link)),
            tokio::spawn(beat::beat(Arc::clone(&shared), Arc::clone(&vitals), config.heartbeat_interval)),
            tokio::spawn(beat::listen_to_drivers(Arc::clone(&shared), Arc::clone(&vitals), config.heartbeat_interval)),
            tokio::spawn(beat::sample(Arc::clone(&shared), Arc::clone(&vitals), config.status_interval)),
        ];
        let agent = Self {
            shared: Arc::clone(&shared),
            vitals,
            ledger,
            book: Arc::clone(&book),
            workers: BTreeMap::new(),
            sweeper: None,
        };
        let tasks = tasks.into_iter().chain([tokio::spawn(agent.follow())]).collect();
        Ok(AgentHandle::new(shared, book, tasks, config.data_dir.clone()))
    }

    async fn follow(mut self) {
        let known: Vec<Work> = self.book().work().cloned().collect();
        for work in known {
            self.take_up(work);
        }
        let mut backoff = Backoff::for_neighbours();
        loop {
            let known = self.book().cursor();
            match self.shared.link.connect(known).await {
                Ok(mut feed) => {
                    backoff = Backoff::for_neighbours();
                    // Whoever is on the other side now may have heard nothing of what was said before.
                    self.shared.outbox.repeat_all();
                    while let Some(message) = feed.recv().await {
                        self.hear(message).await;
                    }
                }
                Err(error) => tracing::debug!(%error, "not connected"),
            }
            tokio::time::sleep(backoff.pause()).await;
        }
    }

    async fn hear(&mut self, message: WorkFeed) {
        let is_snapshot = matches!(message, WorkFeed::Snapshot { .. });
        let heard = self.book().take(message);
        let Heard::News { changed, gone } = heard else { return };
        self.note().await;
        for key in gone {
            self.let_go(&key);
        }
        for work in changed {
            self.take_up(work);
        }
        let cursor = self.book().cursor();
        self.vitals.heard(cursor);
        if is_snapshot {
            self.sweep();
        }
    }

    async fn note(&self) {
        let (ledger, book) = (self.ledger.clone(), self.book().clone());
        let written = tokio::task::spawn_blocking(move || ledger.write(&book)).await;
        // The work is done all the same: a full disk must not stop a rollout, only the memory of it.
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "the list of work could not be written to disk");
        }
    }

    fn take_up(&mut self, work: Work) {
        if let Some(worker) = self.workers.get(&work.key)
            && worker.wish.send(work.clone()).is_ok()
        {
            return;
        }
        let key = work.key.clone();
        let (wish, wished) = watch::channel(work);
        let task = tokio::spawn(replica::run(Arc::clone(&self.shared), wished));
        self.workers.insert(key, Worker { wish, task });
    }

    /// A generation is no longer ours: its task ends at the next safe point, and whatever is left of it is swept away.
    fn let_go(&mut self, key: &WorkKey) {
        let Some(Worker { wish, task }) = self.workers.remove(key) else { return };
        drop(wish);
        let (shared, key, book) = (Arc::clone(&self.shared), key.clone(), Arc::clone(&self.book));
        tokio::spawn(async move {
            let _ = task.await;
            // It may be ours again by now.
            if lock(&book).get(&key).is_some() {
                return;
            }
            shared.outbox.forget(&key);
            shared.pokes.forget(&key);
            for runtime in shared.runtimes.values() {
                for found in runtime.attempts(&key).await.unwrap_or_default() {
                    let _ = replica::end_found(&shared, runtime, &found).await;
                }
                let work: Vec<Work> = lock(&book).work().cloned().collect();
                let _ = runtime.tidy(work.iter()).await;
            }
            let _ = replica::forget_leftovers(&shared, || lock(&book).clone()).await;
        });
    }

    fn sweep(&mut self) {
        if let Some(earlier) = self.sweeper.take() {
            earlier.abort();
        }
        self.vitals.stands(Standing::Settling);
        let wanted = self.book().work().map(|work| work.key.clone()).collect();
        let (shared, vitals) = (Arc::clone(&self.shared), Arc::clone(&self.vitals));
        let book = Arc::clone(&self.book);
        let sweeping = async move {
            sweep::sweep(&shared, &wanted).await;
            vitals.stands(Standing::Settled);
            if let Err(error) = replica::forget_leftovers(&shared, || lock(&book).clone()).await {
                tracing::debug!(%error, "leftovers of earlier attempts are looked for next time");
            }
        };
        self.sweeper = Some(tokio::spawn(sweeping).abort_handle());
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    // A message is taken in as a whole, or the process is gone.
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

fn runtimes(
    config: &AgentConfig,
    link: &Arc<dyn ControlLink>,
    pokes: &Arc<Pokes>,
    marks: &Marks,
) -> io::Result<BTreeMap<Driver, Arc<Runtime>>> {
    let mut runtimes = BTreeMap::new();
    if let Some(docker) = config.docker.clone() {
        let docker = Docker::new(config, docker, Arc::clone(link), Arc::clone(pokes), marks.clone());
        runtimes.insert(Driver::Docker, Arc::new(Runtime::Docker(docker)));
    }
    if let Some(exec) = config.exec.clone() {
        let exec = Exec::new(config, exec, Arc::clone(pokes))?;
        runtimes.insert(Driver::Exec, Arc::new(Runtime::Exec(exec)));
    }
    Ok(runtimes)
}
