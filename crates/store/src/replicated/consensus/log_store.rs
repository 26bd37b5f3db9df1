//! The log as the consensus library wants it.
//!
//! Owns: the entries in memory since the last purge, and the thread that writes.
//! Must not touch: the bytes on disk; [`Wal`] does.
//! Invariant: everything is written by one thread in the order asked, and nothing is acknowledged before it is synced.

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
        wal::{Demand, Wal, WalError},
    },
    Entry, StorageError, Types, to_entry, to_record,
};

/// Entries sent to another member at once: enough to fill a link, small enough that a heartbeat is not late behind them.
const MOST_BYTES_AT_ONCE: usize = 1024 * 1024;

/// How often a write that found no space is tried again.
const SPACE_AGAIN: Duration = Duration::from_millis(200);

/// The log. Clones read and write the same one.
#[derive(Clone)]
pub(crate) struct LogStore {
    shared: Arc<Shared>,
    writer: mpsc::Sender<Job>,
}

pub(crate) struct Shared {
    log: Mutex<Log>,
    /// Bytes of entries appended since the log was opened; the snapshot policy reads it.
    appended_bytes: AtomicU64,
    /// Bytes that will find room, as of the last write.
    room: AtomicU64,
    /// Whether a write waits for space.
    waits_for_space: AtomicBool,
    /// Whether nobody waits for the writer any more.
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
    /// Synced before it is answered.
    Append(Vec<Record>, LogFlushed<Types>),
    /// Synced before it is answered.
    Settle(Record, oneshot::Sender<Result<(), io::Error>>),
    /// Written, and synced with whatever comes next.
    Note(Record),
    /// Written and synced, then old segments go.
    Purge(Record, oneshot::Sender<Result<(), io::Error>>),
    /// Space is set aside for so many bytes.
    MakeRoom(u64, oneshot::Sender<Result<(), WalError>>),
}

/// The disk has no space for what is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskFull;

impl LogStore {
    pub(crate) fn open(dir: &Path) -> Result<Self, WalError> {
        let (wal, recovered) = Wal::open(dir, Demand::Everything)?;
        let log = Log {
            entries: recovered.entries.into_iter().map(|entry| (entry.at.index, Arc::new(entry))).collect(),
            vote: recovered.vote.map(Vote::from),
            committed: recovered.committed.map(LogId::from),
            purged: recovered.purged.map(LogId::from),
        };
        let shared = Arc::new(Shared {
            log: Mutex::new(log),
            appended_bytes: AtomicU64::new(0),
            room: AtomicU64::new(0),
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

    /// Makes sure that an entry of this size will find room, before anybody is told that it is under way.
    pub(crate) async fn make_room(&self, bytes: usize) -> Result<(), DiskFull> {
        if self.shared.waits_for_space.load(Ordering::Relaxed) {
            return Err(DiskFull);
        }
        let bytes = bytes as u64;
        if self.shared.room.load(Ordering::Relaxed) >= bytes {
            return Ok(());
        }
        let (done, made) = oneshot::channel();
        if self.send(Job::MakeRoom(bytes, done)).is_err() {
            // The writer has stopped; the write itself says why.
            return Ok(());
        }
        match made.await {
            Ok(Err(error)) if error.is_full() => Err(DiskFull),
            Ok(Ok(()) | Err(_)) | Err(_) => Ok(()),
        }
    }

    /// A write that waits for space is given up: the member is being closed.
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
        // A panic under this lock can only come from memory running out between two whole updates.
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, job: Job) -> Result<(), io::Error> {
        self.writer.send(job).map_err(|_| io::Error::other("the writer of the log has stopped"))
    }

    async fn settle(&self, job: impl FnOnce(oneshot::Sender<Result<(), io::Error>>) -> Job) -> Result<(), io::Error> {
        let (done, settled) = oneshot::channel();
        self.send(job(done))?;
        settled.await.unwrap_or_else(|_| Err(io::Error::other("the writer of the log has stopped")))
    }
}

/// The one who writes.
struct Writer {
    wal: Wal,
    shared: Arc<Shared>,
}

impl Writer {
    /// Runs until nobody can ask any more.
    fn run(mut self, jobs: &mpsc::Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            match job {
                Job::Append(records, flushed) => {
                    flushed.log_io_completed(self.durably(&records).map_err(io::Error::other));
                }
                Job::Settle(record, done) => {
                    let _ = done.send(self.durably(&[record]).map_err(io::Error::other));
                }
                Job::Note(record) => {
                    if let Err(error) = self.wal.write(&[record]) {
                        tracing::warn!(%error, "a note to the log was not written; it is written again later");
                    }
                }
                Job::Purge(record, done) => {
                    let purged = self.durably(&[record]).and_then(|()| self.wal.drop_purged());
                    let _ = done.send(purged.map_err(io::Error::other));
                }
                Job::MakeRoom(bytes, done) => {
                    let _ = done.send(self.wal.make_room(bytes));
                }
            }
            self.shared.room.store(self.wal.room(), Ordering::Relaxed);
        }
    }

    /// Returns once it is on the disk. A full disk is waited for: nothing is acknowledged meanwhile, and a member that
    /// gave up would have to be restarted by somebody once there is space again.
    fn durably(&mut self, records: &[Record]) -> Result<(), WalError> {
        while let Err(error) = self.wal.write(records) {
            if !error.is_full() || self.shared.closing.load(Ordering::Relaxed) {
                return Err(error);
            }
            if !self.shared.waits_for_space.swap(true, Ordering::Relaxed) {
                tracing::warn!(%error, code = "disk_full", "the log waits for space on its disk");
            }
            thread::sleep(SPACE_AGAIN);
        }
        if self.shared.waits_for_space.swap(false, Ordering::Relaxed) {
            tracing::info!("there is space for the log again");
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
            first || bytes <= MOST_BYTES_AT_ONCE
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
        self.settle(|done| Job::Settle(record, done)).await.map_err(|error| StorageIOError::write_vote(&error))?;
        self.log().vote = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<u64>>, StorageError> {
        Ok(self.log().vote)
    }

    async fn save_committed(&mut self, committed: Option<LogId<u64>>) -> Result<(), StorageError> {
        self.log().committed = committed;
        if let Some(committed) = committed {
            self.send(Job::Note(Record::Committed(committed.into()))).map_err(|error| StorageIOError::write(&error))?;
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
        self.settle(|done| Job::Settle(record, done)).await.map_err(|error| StorageIOError::write_logs(&error))?;
        self.log().entries.split_off(&log_id.index);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId<u64>) -> Result<(), StorageError> {
        let record = Record::Purge(log_id.into());
        self.settle(|done| Job::Purge(record, done)).await.map_err(|error| StorageIOError::write_logs(&error))?;
        let mut log = self.log();
        log.entries = log.entries.split_off(&(log_id.index + 1));
        log.purged = Some(log_id);
        Ok(())
    }
}
