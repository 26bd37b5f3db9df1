//! openraft's state machine storage.
//!
//! Owns: applying entries, and creating, keeping and installing snapshots.
//! Must not touch: the pace of `apply`. A snapshot is written from a copy that shares its maps with the live state
//! machine, so entries are applied meanwhile.
//! Invariant: the state machine, its applied position and its members change together, under one lock.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use longshore_model::{Plan, error_chain};
use openraft::{
    EntryPayload, LogId, OptionalSend, RaftSnapshotBuilder, Snapshot, SnapshotMeta, StorageIOError, StoredMembership,
    storage::RaftStateMachine,
};

use super::{
    super::{
        Applied, Change, Member,
        encoding::{self, EncodingError},
        record::Position,
        snapshot::{self, SnapshotError, SnapshotHeader},
        state_machine::{Batch, StateMachine},
        watch::ChangeFeed,
    },
    Entry, StorageError, Types, stored,
};
use crate::{
    State,
    plan_check::{DroppedItem, locations::Locations},
};

/// How often a snapshot is retried while the disk is full.
const DISK_FULL_RETRY: Duration = Duration::from_secs(1);

/// A snapshot file.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotFile {
    pub(crate) path: PathBuf,
}

/// The live state machine, shared by openraft and the member's tasks.
pub(crate) struct StateMachineHandle {
    inner: Mutex<Inner>,
    pub(crate) feed: Arc<ChangeFeed>,
    dir: PathBuf,
    /// Nanoseconds spent applying entries.
    applying: AtomicU64,
    /// Set when the member shuts down, so that a waiting snapshot gives up.
    closing: AtomicBool,
}

struct Inner {
    machine: StateMachine,
    /// Index of the generations in the state.
    locations: Locations,
    applied: Option<LogId<u64>>,
    members: StoredMembership<u64, Member>,
    /// The state returned last. Readers of the same index share it.
    last_returned: Weak<State>,
    current: Option<(SnapshotMeta<u64, Member>, SnapshotFile)>,
}

impl StateMachineHandle {
    /// Loads the newest snapshot of `dir`, or starts empty.
    pub(crate) fn open(dir: PathBuf, most_events: usize) -> Result<Self, SnapshotError> {
        snapshot::clear_unfinished(&dir)?;
        let mut inner = Inner {
            machine: StateMachine::default(),
            locations: Locations::default(),
            applied: None,
            members: StoredMembership::default(),
            last_returned: Weak::new(),
            current: None,
        };
        if let Some((path, header, machine)) = snapshot::newest(&dir)? {
            inner.replace(machine, &header);
            inner.current = Some((meta(&header), SnapshotFile { path }));
        }
        let feed = ChangeFeed::new(most_events, inner.machine.state.index());
        Ok(Self { inner: Mutex::new(inner), feed, dir, applying: AtomicU64::new(0), closing: AtomicBool::new(false) })
    }

    /// The current state, shared by all readers since its last change.
    pub(crate) fn state(&self) -> Arc<State> {
        let mut inner = self.inner();
        if let Some(state) = inner.last_returned.upgrade()
            && state.index() == inner.machine.state.index()
        {
            return state;
        }
        let state = Arc::new(inner.machine.state.clone());
        inner.last_returned = Arc::downgrade(&state);
        state
    }

    /// Calls a function with the state machine under its lock. Nothing is applied meanwhile, so it must be short.
    pub(crate) fn with_machine<T>(&self, with: impl FnOnce(&StateMachine) -> T) -> T {
        with(&self.inner().machine)
    }

    /// Removes the placements that no longer fit the applied state from a plan.
    pub(crate) fn drop_stale_placements(&self, plan: &mut Plan) -> Vec<DroppedItem> {
        let inner = self.inner();
        inner.locations.drop_stale_placements(&inner.machine.state, plan)
    }

    /// The applied position.
    pub(crate) fn applied(&self) -> Option<Position> {
        self.inner().applied.map(Position::from)
    }

    /// A consistent copy of the state machine and its header.
    pub(crate) fn copy(&self) -> (SnapshotHeader, StateMachine) {
        let inner = self.inner();
        (inner.header(), inner.machine.clone())
    }

    /// Time spent applying entries.
    pub(crate) fn applying(&self) -> Duration {
        Duration::from_nanos(self.applying.load(Ordering::Relaxed))
    }

    /// Lets a snapshot that waits for disk space give up, because the member is shutting down.
    pub(crate) fn stop_waiting(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A panic while applying stops the member; afterwards the state is only read.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn header(&self) -> SnapshotHeader {
        SnapshotHeader {
            at: self.applied.map(Position::from),
            members_at: self.members.log_id().map(Position::from),
            members: self.members.membership().into(),
        }
    }

    fn replace(&mut self, machine: StateMachine, header: &SnapshotHeader) {
        self.locations = Locations::of(&machine.state);
        self.machine = machine;
        self.applied = header.at.map(LogId::from);
        self.members = stored(header.members_at, header.members.clone());
    }

    fn apply(&mut self, entry: Entry, changes: &mut Vec<Change>) -> Result<Vec<Applied>, EncodingError> {
        let answers = match entry.payload {
            EntryPayload::Blank => Vec::new(),
            EntryPayload::Normal(payload) => {
                let batch: Batch = encoding::decode(&payload.0)?;
                let before = changes.len();
                let answers = self.machine.apply(&batch, changes)?;
                for change in &changes[before..] {
                    self.locations.follow(&change.events);
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

fn meta(header: &SnapshotHeader) -> SnapshotMeta<u64, Member> {
    let at = header.at.unwrap_or_default();
    SnapshotMeta {
        last_log_id: header.at.map(LogId::from),
        last_membership: stored(header.members_at, header.members.clone()),
        snapshot_id: format!("{}-{}-{}", at.term, at.leader, at.index),
    }
}

/// openraft's handle on the state machine.
#[derive(Clone)]
pub(crate) struct StateMachineStore(pub(crate) Arc<StateMachineHandle>);

impl RaftStateMachine<Types> for StateMachineStore {
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
        let (header, machine) = self.0.copy();
        Builder { state_machine: Arc::clone(&self.0), header, machine }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotFile>, StorageError> {
        // Only openraft's test suite calls this; members receive snapshots in chunks, see `network`.
        Ok(Box::new(SnapshotFile { path: self.0.dir.join("received.tmp") }))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, Member>,
        snapshot: Box<SnapshotFile>,
    ) -> Result<(), StorageError> {
        let state_machine = Arc::clone(&self.0);
        let failed =
            |error: String| StorageIOError::read_snapshot(Some(meta.signature()), openraft::AnyError::error(error));
        let installed = tokio::task::spawn_blocking(move || state_machine.install(snapshot.path)).await;
        installed.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error_chain(&error)))?;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError> {
        let current = self.0.inner().current.clone();
        Ok(current.map(|(meta, file)| Snapshot { meta, snapshot: Box::new(file) }))
    }
}

impl StateMachineHandle {
    fn install(&self, snapshot: PathBuf) -> Result<(), SnapshotError> {
        let path = if snapshot.parent() == Some(&*self.dir) { snapshot } else { self.fetch(&snapshot)? };
        let (header, machine) = snapshot::read(&path)?;
        let mut inner = self.inner();
        inner.replace(machine, &header);
        inner.current = Some((meta(&header), SnapshotFile { path }));
        let index = inner.machine.state.index();
        drop(inner);
        self.feed.restart(index);
        snapshot::clear_old(&self.dir)
    }

    /// Copies a snapshot from another directory. Only openraft's test suite needs this.
    fn fetch(&self, from: &std::path::Path) -> Result<PathBuf, SnapshotError> {
        let received = self.dir.join("received.tmp");
        fs::create_dir_all(&self.dir).and_then(|()| fs::copy(from, &received)).map_err(|source| SnapshotError::Io {
            action: "copy",
            path: from.to_owned(),
            source,
        })?;
        snapshot::adopt(&self.dir, &received)
    }

    fn build(&self, header: &SnapshotHeader, machine: &StateMachine) -> Result<Snapshot<Types>, SnapshotError> {
        let path = snapshot::write(&self.dir, header, machine)?;
        let (meta, file) = (meta(header), SnapshotFile { path });
        self.inner().current = Some((meta.clone(), file.clone()));
        snapshot::clear_old(&self.dir)?;
        Ok(Snapshot { meta, snapshot: Box::new(file) })
    }
}

/// Writes one snapshot from a copy of the state machine.
#[derive(Clone)]
pub(crate) struct Builder {
    state_machine: Arc<StateMachineHandle>,
    header: SnapshotHeader,
    machine: StateMachine,
}

impl RaftSnapshotBuilder<Types> for Builder {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError> {
        let failed = |error: String| StorageIOError::write_snapshot(None, openraft::AnyError::error(error));
        loop {
            let this = self.clone();
            let built =
                tokio::task::spawn_blocking(move || this.state_machine.build(&this.header, &this.machine)).await;
            match built.map_err(|error| failed(error.to_string()))? {
                Ok(snapshot) => return Ok(snapshot),
                // openraft stops the member when a snapshot fails. Without one the log only grows.
                Err(error) if error.is_full() && !self.state_machine.closing.load(Ordering::Relaxed) => {
                    tracing::warn!(error = error_chain(&error), code = "disk_full", "a snapshot waits for disk space");
                    tokio::time::sleep(DISK_FULL_RETRY).await;
                }
                Err(error) => return Err(failed(error_chain(&error)).into()),
            }
        }
    }
}
