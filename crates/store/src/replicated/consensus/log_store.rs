//! openraft's log storage, on top of the write-ahead log.
//!
//! Owns: the entries in memory since the last purge, and the writer thread.
//! Must not touch: the bytes on disk, which [`Wal`] writes.
//! Invariant: one thread writes everything in the requested order, and nothing is acknowledged before it is synced.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    io,
    ops::RangeBounds,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use openraft::{
    LogId, LogState, OptionalSend, RaftLogReader, StorageIOError, Vote,
    storage::{LogFlushed, RaftLogStorage},
};
use tokio::sync::oneshot;

use super::{
    super::{
        record::{Body, EntryRecord, Position, Record},
        wal::{RecoveryMode, Wal, WalError},
    },
    Entry, StorageError, Types, to_entry, to_record,
};

/// The most bytes of entries sent to another member at once: enough to fill a link, few enough not to delay heartbeats.
const MAX_READ_BYTES: usize = 1024 * 1024;

/// How often a write is retried while the disk is full.
const DISK_FULL_RETRY: Duration = Duration::from_millis(200);

/// The log. Clones share it.
#[derive(Clone)]
pub(crate) struct LogStore {
    shared: Arc<Shared>,
    writer: mpsc::Sender<Job>,
}

pub(crate) struct Shared {
    log: Mutex<Log>,
    /// Bytes of entries appended since the log was opened, for the snapshot policy.
    appended_bytes: AtomicU64,
    /// Bytes of reserved disk space, as of the last write.
    reserved_bytes: AtomicU64,
    /// Whether a write waits for disk space.
    waits_for_space: AtomicBool,
    /// Set when the member shuts down, so that a waiting write gives up.
    closing: AtomicBool,
}

#[derive(Default)]
struct Log {
    entries: BTreeMap<u64, Arc<EntryRecord>>,
    vote: Option<Vote<u64>>,
    committed: Option<LogId<u64>>,
    purged: Option<LogId<u64>>,
}

enum Job {
    /// Synced before it is acknowledged.
    Append(Vec<Record>, LogFlushed<Types>),
    /// Synced before it is acknowledged.
    WriteSynced(Record, oneshot::Sender<Result<(), io::Error>>),
    /// Written without a sync of its own.
    Write(Record),
    /// Written and synced; then purged segments are removed.
    Purge(Record, oneshot::Sender<Result<(), io::Error>>),
    /// Reserves disk space for this many bytes.
    Reserve(u64, oneshot::Sender<Result<(), WalError>>),
}

/// The disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskFull;

impl LogStore {
    pub(crate) fn open(dir: &Path) -> Result<Self, WalError> {
        let (wal, recovered) = Wal::open(dir, RecoveryMode::Strict)?;
        let log = Log {
            entries: recovered.entries.into_iter().map(|entry| (entry.at.index, Arc::new(entry))).collect(),
            vote: recovered.vote.map(Vote::from),
            committed: recovered.committed.map(LogId::from),
            purged: recovered.purged.map(LogId::from),
        };
        let shared = Arc::new(Shared {
            log: Mutex::new(log),
            appended_bytes: AtomicU64::new(0),
            reserved_bytes: AtomicU64::new(0),
            waits_for_space: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        });
        let (writer, jobs) = mpsc::channel();
        let working = Writer { wal, shared: Arc::clone(&shared) };
        thread::Builder::new()
            .name("log-writer".to_owned())
            .spawn(move || working.run(&jobs))
            .map_err(|source| WalError::Io { action: "start the writer of", path: dir.to_owned(), source })?;
        Ok(Self { shared, writer })
    }

    /// Reserves disk space for an entry of this size before it is proposed to openraft.
    pub(crate) async fn reserve_space(&self, bytes: usize) -> Result<(), DiskFull> {
        if self.shared.waits_for_space.load(Ordering::Relaxed) {
            return Err(DiskFull);
        }
        let bytes = bytes as u64;
        if self.shared.reserved_bytes.load(Ordering::Relaxed) >= bytes {
            return Ok(());
        }
        let (done, made) = oneshot::channel();
        if self.send(Job::Reserve(bytes, done)).is_err() {
            // The writer has stopped; the write itself returns the cause.
            return Ok(());
        }
        match made.await {
            Ok(Err(error)) if error.is_full() => Err(DiskFull),
            Ok(Ok(()) | Err(_)) | Err(_) => Ok(()),
        }
    }

    /// Lets a write that waits for disk space give up, because the member is shutting down.
    pub(crate) fn stop_waiting(&self) {
        self.shared.closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn purged(&self) -> Option<Position> {
        self.log().purged.map(Position::from)
    }

    pub(crate) fn appended_bytes(&self) -> u64 {
        self.shared.appended_bytes.load(Ordering::Relaxed)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        // A panic under this lock can only be an out-of-memory between two complete updates.
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, job: Job) -> Result<(), io::Error> {
        self.writer.send(job).map_err(|_| io::Error::other("the writer of the log has stopped"))
    }

    async fn run_job(&self, job: impl FnOnce(oneshot::Sender<Result<(), io::Error>>) -> Job) -> Result<(), io::Error> {
        let (done, settled) = oneshot::channel();
        self.send(job(done))?;
        settled.await.unwrap_or_else(|_| Err(io::Error::other("the writer of the log has stopped")))
    }
}

/// The writer thread.
struct Writer {
    wal: Wal,
    shared: Arc<Shared>,
}

impl Writer {
    /// Runs until the log is dropped.
    fn run(mut self, jobs: &mpsc::Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            match job {
                Job::Append(records, flushed) => {
                    flushed.log_io_completed(self.write_synced(&records).map_err(io::Error::other));
                }
                Job::WriteSynced(record, done) => {
                    let _ = done.send(self.write_synced(&[record]).map_err(io::Error::other));
                }
                Job::Write(record) => {
                    if let Err(error) = self.wal.write(&[record]) {
                        tracing::warn!(%error, "the commit index could not be written to the log; a later write repeats it");
                    }
                }
                Job::Purge(record, done) => {
                    let purged = self.write_synced(&[record]).and_then(|()| self.wal.drop_purged());
                    let _ = done.send(purged.map_err(io::Error::other));
                }
                Job::Reserve(bytes, done) => {
                    let _ = done.send(self.wal.reserve_space(bytes));
                }
            }
            self.shared.reserved_bytes.store(self.wal.reserved_bytes(), Ordering::Relaxed);
        }
    }

    /// Writes and syncs records. Waits while the disk is full: nothing is acknowledged meanwhile, and a member that
    /// gave up would have to be restarted by hand.
    fn write_synced(&mut self, records: &[Record]) -> Result<(), WalError> {
        while let Err(error) = self.wal.write(records) {
            if !error.is_full() || self.shared.closing.load(Ordering::Relaxed) {
                return Err(error);
            }
            if !self.shared.waits_for_space.swap(true, Ordering::Relaxed) {
                tracing::warn!(%error, code = "disk_full", "the log waits for disk space");
            }
            thread::sleep(DISK_FULL_RETRY);
        }
        if self.shared.waits_for_space.swap(false, Ordering::Relaxed) {
            tracing::info!("the log has disk space again");
        }
        self.wal.sync()
    }
}

fn size(entry: &EntryRecord) -> usize {
    match &entry.body {
        Body::Batch(payload) => payload.0.len(),
        Body::Blank | Body::Members(_) => 64,
    }
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        Ok(self.log().entries.range(range).map(|(_, entry)| to_entry(entry)).collect())
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, StorageError> {
        let mut bytes = 0;
        let fits = |entry: &Arc<EntryRecord>| {
            let first = bytes == 0;
            bytes += size(entry);
            first || bytes <= MAX_READ_BYTES
        };
        let mut fits = fits;
        Ok(self
            .log()
            .entries
            .range(start..end)
            .map(|(_, entry)| entry)
            .take_while(|entry| fits(entry))
            .map(|entry| to_entry(entry))
            .collect())
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let log = self.log();
        let last = log.entries.values().next_back().map(|entry| LogId::from(entry.at)).or(log.purged);
        Ok(LogState { last_purged_log_id: log.purged, last_log_id: last })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> Result<(), StorageError> {
        let record = Record::Vote(vote.into());
        self.run_job(|done| Job::WriteSynced(record, done))
            .await
            .map_err(|error| StorageIOError::write_vote(&error))?;
        self.log().vote = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<u64>>, StorageError> {
        Ok(self.log().vote)
    }

    async fn save_committed(&mut self, committed: Option<LogId<u64>>) -> Result<(), StorageError> {
        self.log().committed = committed;
        if let Some(committed) = committed {
            self.send(Job::Write(Record::Committed(committed.into())))
                .map_err(|error| StorageIOError::write(&error))?;
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId<u64>>, StorageError> {
        Ok(self.log().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Types>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut records = Vec::new();
        let mut bytes = 0;
        let mut log = self.log();
        for entry in entries {
            let record = to_record(entry);
            bytes += size(&record);
            log.entries.insert(record.at.index, Arc::new(record.clone()));
            records.push(Record::Entry(record));
        }
        drop(log);
        self.shared.appended_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.send(Job::Append(records, callback)).map_err(|error| StorageIOError::write_logs(&error).into())
    }

    async fn truncate(&mut self, log_id: LogId<u64>) -> Result<(), StorageError> {
        let record = Record::Truncate { from: log_id.index };
        self.run_job(|done| Job::WriteSynced(record, done))
            .await
            .map_err(|error| StorageIOError::write_logs(&error))?;
        self.log().entries.split_off(&log_id.index);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId<u64>) -> Result<(), StorageError> {
        let record = Record::Purge(log_id.into());
        self.run_job(|done| Job::Purge(record, done)).await.map_err(|error| StorageIOError::write_logs(&error))?;
        let mut log = self.log();
        log.entries = log.entries.split_off(&(log_id.index + 1));
        log.purged = Some(log_id);
        Ok(())
    }
}
