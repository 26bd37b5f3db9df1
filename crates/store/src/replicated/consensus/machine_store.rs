//! The machine as the consensus library wants it.
//!
//! Owns: applying entries, and snapshots being taken, kept and installed.
//! Must not touch: the library's pace. A snapshot is written from a copy that shares its maps with the living machine,
//! so applying goes on meanwhile.
//! Invariant: the machine, the place it has got to and its members change together, under one lock.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use longshore_model::Plan;
use openraft::{
    EntryPayload, LogId, OptionalSend, RaftSnapshotBuilder, Snapshot, SnapshotMeta, StorageIOError, StoredMembership,
    storage::RaftStateMachine,
};

use super::{
    super::{
        Applied, Change, Member,
        encoding::{self, EncodingError},
        machine::{Batch, Machine},
        record::Position,
        snapshot::{self, Head, SnapshotError},
        watch::Feed,
    },
    Entry, StorageError, Types, stored,
};
use crate::{
    State,
    recheck::{DroppedItem, whereabouts::Whereabouts},
};

/// How often a snapshot that found no space is tried again.
const SPACE_AGAIN: Duration = Duration::from_secs(1);

/// A snapshot in a file of its own.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotFile {
    pub(crate) path: PathBuf,
}

/// The living machine.
pub(crate) struct Held {
    inner: Mutex<Inner>,
    pub(crate) feed: Arc<Feed>,
    dir: PathBuf,
    /// Nanoseconds spent applying.
    applying: AtomicU64,
    /// Whether nobody waits for a snapshot any more.
    closing: AtomicBool,
}

struct Inner {
    machine: Machine,
    /// Of what the machine holds.
    whereabouts: Whereabouts,
    applied: Option<LogId<u64>>,
    members: StoredMembership<u64, Member>,
    /// The last state handed out; those who ask for the same one share it.
    handed_out: Weak<State>,
    current: Option<(SnapshotMeta<u64, Member>, SnapshotFile)>,
}

impl Held {
    /// Loads the newest snapshot of `dir`, or begins with nothing.
    pub(crate) fn open(dir: PathBuf, most_events: usize) -> Result<Self, SnapshotError> {
        snapshot::clear_unfinished(&dir)?;
        let mut inner = Inner {
            machine: Machine::default(),
            whereabouts: Whereabouts::default(),
            applied: None,
            members: StoredMembership::default(),
            handed_out: Weak::new(),
            current: None,
        };
        if let Some((path, head, machine)) = snapshot::newest(&dir)? {
            inner.replace(machine, &head);
            inner.current = Some((meta(&head), SnapshotFile { path }));
        }
        let feed = Feed::new(most_events, inner.machine.state.index());
        Ok(Self { inner: Mutex::new(inner), feed, dir, applying: AtomicU64::new(0), closing: AtomicBool::new(false) })
    }

    /// The state as of now, shared with everybody who asked since it last changed.
    pub(crate) fn state(&self) -> Arc<State> {
        let mut inner = self.inner();
        if let Some(state) = inner.handed_out.upgrade()
            && state.index() == inner.machine.state.index()
        {
            return state;
        }
        let state = Arc::new(inner.machine.state.clone());
        inner.handed_out = Arc::downgrade(&state);
        state
    }

    /// Looks at the machine in place. Nothing is applied meanwhile: the look must be short.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Machine) -> T) -> T {
        look(&self.inner().machine)
    }

    /// Takes out of a plan what no longer fits the applied state.
    pub(crate) fn recheck(&self, plan: &mut Plan) -> Vec<DroppedItem> {
        let inner = self.inner();
        inner.whereabouts.recheck(&inner.machine.state, plan)
    }

    /// Where the machine has got to.
    pub(crate) fn applied(&self) -> Option<Position> {
        self.inner().applied.map(Position::from)
    }

    /// A copy of everything, as one moment knew it.
    pub(crate) fn copy(&self) -> (Head, Machine) {
        let inner = self.inner();
        (inner.head(), inner.machine.clone())
    }

    /// Time spent applying.
    pub(crate) fn applying(&self) -> Duration {
        Duration::from_nanos(self.applying.load(Ordering::Relaxed))
    }

    /// A snapshot that waits for space is given up: the member is being closed.
    pub(crate) fn stop_waiting(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A panic while applying stops the member; what is left is only read.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn head(&self) -> Head {
        Head {
            at: self.applied.map(Position::from),
            members_at: self.members.log_id().map(Position::from),
            members: self.members.membership().into(),
        }
    }

    fn replace(&mut self, machine: Machine, head: &Head) {
        self.whereabouts = Whereabouts::of(&machine.state);
        self.machine = machine;
        self.applied = head.at.map(LogId::from);
        self.members = stored(head.members_at, head.members.clone());
    }

    fn apply(&mut self, entry: Entry, changes: &mut Vec<Change>) -> Result<Vec<Applied>, EncodingError> {
        let answers = match entry.payload {
            EntryPayload::Blank => Vec::new(),
            EntryPayload::Normal(payload) => {
                let batch: Batch = encoding::decode(&payload.0)?;
                let before = changes.len();
                let answers = self.machine.apply(&batch, changes)?;
                for change in &changes[before..] {
                    self.whereabouts.follow(&change.events);
                }
                answers
            }
            EntryPayload::Membership(members) => {
                self.members = StoredMembership::new(Some(entry.log_id), members);
                Vec::new()
            }
        };
        self.applied = Some(entry.log_id);
        Ok(answers)
    }
}

fn meta(head: &Head) -> SnapshotMeta<u64, Member> {
    let at = head.at.unwrap_or_default();
    SnapshotMeta {
        last_log_id: head.at.map(LogId::from),
        last_membership: stored(head.members_at, head.members.clone()),
        snapshot_id: format!("{}-{}-{}", at.term, at.leader, at.index),
    }
}

/// Handle of the library on the machine.
#[derive(Clone)]
pub(crate) struct MachineStore(pub(crate) Arc<Held>);

impl RaftStateMachine<Types> for MachineStore {
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId<u64>>, StoredMembership<u64, Member>), StorageError> {
        let inner = self.0.inner();
        Ok((inner.applied, inner.members.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Vec<Applied>>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let started = Instant::now();
        let mut changes = Vec::new();
        let mut inner = self.0.inner();
        let mut answers = Vec::new();
        for entry in entries {
            let at = entry.log_id;
            answers.push(inner.apply(entry, &mut changes).map_err(|error| StorageIOError::apply(at, &error))?);
        }
        drop(inner);
        self.0.feed.push(changes);
        let spent = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0.applying.fetch_add(spent, Ordering::Relaxed);
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let (head, machine) = self.0.copy();
        Builder { held: Arc::clone(&self.0), head, machine }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotFile>, StorageError> {
        // Only the suite of the library asks; members receive snapshots chunk by chunk in `network`.
        Ok(Box::new(SnapshotFile { path: self.0.dir.join("received.tmp") }))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, Member>,
        snapshot: Box<SnapshotFile>,
    ) -> Result<(), StorageError> {
        let held = Arc::clone(&self.0);
        let failed =
            |error: String| StorageIOError::read_snapshot(Some(meta.signature()), openraft::AnyError::error(error));
        let installed = tokio::task::spawn_blocking(move || held.install(snapshot.path)).await;
        installed.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(chain(&error)))?;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError> {
        let current = self.0.inner().current.clone();
        Ok(current.map(|(meta, file)| Snapshot { meta, snapshot: Box::new(file) }))
    }
}

impl Held {
    fn install(&self, snapshot: PathBuf) -> Result<(), SnapshotError> {
        let path = if snapshot.parent() == Some(&*self.dir) { snapshot } else { self.fetch(&snapshot)? };
        let (head, machine) = snapshot::read(&path)?;
        let mut inner = self.inner();
        inner.replace(machine, &head);
        inner.current = Some((meta(&head), SnapshotFile { path }));
        let index = inner.machine.state.index();
        drop(inner);
        self.feed.restart(index);
        snapshot::clear_old(&self.dir)
    }

    /// A snapshot of another directory, copied here. Members receive theirs into their own; only the suite does not.
    fn fetch(&self, from: &std::path::Path) -> Result<PathBuf, SnapshotError> {
        let received = self.dir.join("received.tmp");
        fs::create_dir_all(&self.dir).and_then(|()| fs::copy(from, &received)).map_err(|source| SnapshotError::Io {
            action: "copy",
            path: from.to_owned(),
            source,
        })?;
        snapshot::adopt(&self.dir, &received)
    }

    fn build(&self, head: &Head, machine: &Machine) -> Result<Snapshot<Types>, SnapshotError> {
        let path = snapshot::write(&self.dir, head, machine)?;
        let (meta, file) = (meta(head), SnapshotFile { path });
        self.inner().current = Some((meta.clone(), file.clone()));
        snapshot::clear_old(&self.dir)?;
        Ok(Snapshot { meta, snapshot: Box::new(file) })
    }
}

/// Writes one snapshot from a copy.
#[derive(Clone)]
pub(crate) struct Builder {
    held: Arc<Held>,
    head: Head,
    machine: Machine,
}

impl RaftSnapshotBuilder<Types> for Builder {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError> {
        let failed = |error: String| StorageIOError::write_snapshot(None, openraft::AnyError::error(error));
        loop {
            let this = self.clone();
            let built = tokio::task::spawn_blocking(move || this.held.build(&this.head, &this.machine)).await;
            match built.map_err(|error| failed(error.to_string()))? {
                Ok(snapshot) => return Ok(snapshot),
                // To the library a snapshot that failed is the end of its member. Without one the log only grows.
                Err(error) if error.is_full() && !self.held.closing.load(Ordering::Relaxed) => {
                    tracing::warn!(error = chain(&error), code = "disk_full", "a snapshot waits for space on its disk");
                    tokio::time::sleep(SPACE_AGAIN).await;
                }
                Err(error) => return Err(failed(chain(&error)).into()),
            }
        }
    }
}

/// An error and its causes on one line: the library keeps only text.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
