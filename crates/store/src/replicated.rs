//! The replicated state machine: a log on disk, consensus through openraft, and the API of one member.
//!
//! ```text
//!  propose ─▶ proposer ─▶ one entry, many commands ─▶ log on disk, quorum ─▶ machine ─▶ feed ─▶ watchers
//!  read ────▶ reader ───▶ one barrier request to a quorum, many readers ──────▶ │
//!  serve ◀──▶ transport ◀──▶ other members                                      └─▶ snapshots
//! ```
//!
//! Owns: durability, consensus, linearizable reads, watches, the audit log and idempotency.
//! Must not touch: what a command means, when one is proposed, and how bytes are transported.
//! Invariant: an acknowledged command is on the disks of a quorum and is never undone; nothing is applied twice; no
//! openraft type is visible outside.

mod consensus;
mod encoding;
mod fair_eviction;
mod leader_request;
mod leadership_monitor;
mod member;
mod plan_parts;
mod proposal;
mod proposer;
mod reader;
mod record;
mod recovery;
mod snapshot;
mod state_machine;
mod transport;
mod wal;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use longshore_durable_file::{self as durable_file, Durability};
use longshore_model::{AuditEvent, MemberId, StateIndex};
use tokio::{
    sync::{mpsc, oneshot, watch as latest},
    task::JoinHandle,
};

use self::{
    consensus::{BarrierError, LogStore, RaftNode, RaftNodeConfig, StateMachineHandle},
    leader_request::{Request, Response},
    proposer::{Proposer, QueuedProposal},
    reader::Reader,
    state_machine::Item,
};
pub use self::{
    encoding::EncodingError,
    member::{Leadership, LeadershipRole, Member, Members, MembershipError},
    proposal::{
        Applied, CommitCertainty, Dedup, Fingerprint, IdempotencyKey, InvalidIdempotencyKey, Outcome, Proposal,
        ProposeError,
    },
    recovery::{Recovery, RecoveryError, read_backup, recover_as_single_voter, restore},
    snapshot::SnapshotError,
    transport::{Call, Delivery, MAX_MESSAGE_BYTES, NoTransport, Transport, Unreachable},
    wal::WalError,
    watch::{Change, Filter, WatchEvent, Watcher},
};
use crate::State;
pub use crate::plan_check::DroppedItem;

/// Configuration of a member.
#[derive(Clone, Debug)]
pub struct ReplicatedConfig {
    /// Directory of the log and the snapshots. It belongs to one member id for good.
    pub dir: PathBuf,
    /// The id of this member.
    pub id: MemberId,
    /// Interval of the leader's heartbeats.
    pub heartbeat: Duration,
    /// A follower starts an election after a random time in this range without a heartbeat.
    pub election: Range<Duration>,
    /// How long a proposal or a read waits for a leader and a quorum before it fails.
    pub request_timeout: Duration,
    /// A snapshot is taken after this many entries, …
    pub snapshot_after_entries: u64,
    /// … or after this many bytes of entries.
    pub snapshot_after_bytes: u64,
    /// Weight of the events kept in memory for watchers that fall behind.
    pub watch_events: usize,
}

impl ReplicatedConfig {
    /// The default configuration.
    pub fn new(dir: impl Into<PathBuf>, id: MemberId) -> Self {
        Self {
            dir: dir.into(),
            id,
            heartbeat: Duration::from_millis(150),
            election: Duration::from_millis(500)..Duration::from_secs(1),
            // Longer than an election, shorter than a client's timeout.
            request_timeout: Duration::from_secs(3),
            snapshot_after_entries: 10_000,
            snapshot_after_bytes: 64 * 1024 * 1024,
            watch_events: 65_536,
        }
    }
}

/// Why a member could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory belongs to another member.
    #[error("`{}` belongs to member {owner}, not to member {asked}", .dir.display())]
    OtherMember {
        /// The directory.
        dir: PathBuf,
        /// The member id in the directory.
        owner: String,
        /// The configured member id.
        asked: MemberId,
    },
    /// The directory could not be used.
    #[error("could not use the directory `{}`", .dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The member has been part of a cluster, and its log is gone. Without it the member would vote and acknowledge as if
    /// it had never done so before, and acknowledged writes would be lost.
    #[error("the log in `{}` is gone, and nothing else knows what this member voted for and acknowledged", .dir.display())]
    LogMissing {
        /// The directory.
        dir: PathBuf,
    },
    /// The log could not be read.
    #[error("the log could not be opened")]
    Log(#[from] WalError),
    /// The newest snapshot could not be read.
    #[error("the snapshot could not be opened")]
    Snapshot(#[from] SnapshotError),
    /// Entries between the snapshot and the log are missing.
    #[error("the log in `{}` begins after entry {log_begins_after}, but the newest snapshot ends at entry {snapshot_ends_at}", .dir.display())]
    SnapshotMissing {
        /// The directory.
        dir: PathBuf,
        /// The last entry that was purged from the log.
        log_begins_after: u64,
        /// The last entry in the snapshot.
        snapshot_ends_at: u64,
    },
    /// The member did not start.
    #[error("the member did not start: {0}")]
    NotStarted(String),
}

/// Why a linearizable read failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Too few voters are reachable.
    #[error("too few voters can be reached to be sure what is newest")]
    QuorumLost,
    /// This member's storage failed, and it has stopped.
    #[error("the log of this member failed: {0}")]
    StorageFailed(String),
    /// This member is shutting down.
    #[error("this member is shutting down")]
    ShuttingDown,
}

impl ReadError {
    /// Stable: clients branch on these strings. Add codes, never rename one.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::QuorumLost => "quorum_lost",
            Self::StorageFailed(_) => "storage_failed",
            Self::ShuttingDown => "shutting_down",
        }
    }
}

/// An immutable snapshot of the state; a later read returns a newer one.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The state.
    pub state: Arc<State>,
    /// Whether the read was linearizable.
    pub freshness: Freshness,
}

/// Whether a read is linearizable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The state includes everything acknowledged before the read.
    Linearizable,
    /// The state applied on this member; others may have applied more.
    Stale,
}

/// Replication metrics of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicationStatus {
    /// The current term.
    pub term: u64,
    /// Index of the last entry in its log.
    pub last_entry: u64,
    /// Index of the last applied entry.
    pub applied_entry: u64,
    /// Index of the last entry in a snapshot.
    pub snapshot_entry: u64,
    /// Entries each member is behind. Only set on the leader.
    pub lag: BTreeMap<MemberId, u64>,
    /// Time spent applying entries since the member was opened.
    pub applying: Duration,
    /// Why the member stopped, if it did.
    pub failure: Option<String>,
}

/// One member of a replicated state machine. Clones refer to the same member.
#[derive(Clone)]
pub struct Replicated {
    inner: Arc<Inner>,
}

struct Inner {
    node: Arc<RaftNode>,
    state_machine: Arc<StateMachineHandle>,
    config: ReplicatedConfig,
    proposals: mpsc::Sender<QueuedProposal>,
    reads: mpsc::Sender<reader::ReadWaiter>,
    leadership: latest::Receiver<Leadership>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Replicated {
    /// Opens a member's directory, creating it if needed, and starts the member. Existing votes, entries and snapshots
    /// are kept. A new member waits until a leader adds it, or for [`initialise`](Self::initialise).
    pub async fn open(config: ReplicatedConfig, transport: Arc<dyn Transport>) -> Result<Self, OpenError> {
        let is_claimed = is_claimed(&config.dir, config.id)?;
        if is_claimed && !recovery::is_not_empty(&config.dir.join("log")) {
            return Err(OpenError::LogMissing { dir: config.dir });
        }
        let (log, state_machine) = open_storage(&config).await?;
        // Written after the log exists: from now on a directory without one has lost it.
        if !is_claimed {
            claim(&config.dir, config.id)?;
        }
        let state_machine = Arc::new(state_machine);
        let snapshots = config.dir.join("snapshots");
        let node_config = RaftNodeConfig {
            id: config.id,
            heartbeat: config.heartbeat,
            election: config.election.clone(),
            snapshots: &snapshots,
        };
        let node = RaftNode::start(node_config, log, Arc::clone(&state_machine), transport)
            .await
            .map_err(OpenError::NotStarted)?;
        Ok(Self::run(Arc::new(node), state_machine, config))
    }

    fn run(node: Arc<RaftNode>, state_machine: Arc<StateMachineHandle>, config: ReplicatedConfig) -> Self {
        let (proposals, queue) = mpsc::channel(proposer::QUEUE_CAPACITY);
        let proposer = Proposer::new(
            Arc::clone(&node),
            Arc::clone(&state_machine),
            queue,
            config.request_timeout,
            config.election.end,
        );
        let (reads, queue) = mpsc::channel(reader::QUEUE_CAPACITY);
        let reader = Reader { node: Arc::clone(&node), queue, timeout: config.request_timeout };
        let (published, leadership) =
            latest::channel(Leadership { term: 0, leader: None, role: LeadershipRole::Following });
        let keeper = leadership_monitor::LeadershipMonitor {
            node: Arc::clone(&node),
            published,
            config: config.clone(),
            bytes_at_snapshot: 0,
            snapshot_asked_at: 0,
        };
        let tasks = vec![
            tokio::spawn(proposer.run()),
            tokio::spawn(reader.run()),
            tokio::spawn(keeper.run()),
            tokio::spawn(Arc::clone(&state_machine.feed).notify_watchers()),
        ];
        let tasks = Mutex::new(tasks);
        Self { inner: Arc::new(Inner { node, state_machine, config, proposals, reads, leadership, tasks }) }
    }

    /// Whether a member was opened in this directory before and is still there.
    pub fn exists(dir: &Path) -> bool {
        dir.join(OWNER_FILE).exists()
    }

    /// Makes this member the only voter of a new cluster.
    pub async fn initialise(&self, me: Member) -> Result<(), MembershipError> {
        self.inner.node.initialise(me).await
    }

    /// Adds a member that replicates the log without voting. Only on the leader.
    pub async fn add_learner(&self, member: Member) -> Result<(), MembershipError> {
        self.inner.node.add_learner(member, self.inner.config.request_timeout).await
    }

    /// Sets the voters, which may differ from the current ones by one; a new voter must be a learner. Only on the
    /// leader.
    pub async fn set_voters(&self, voters: BTreeSet<MemberId>) -> Result<(), MembershipError> {
        let now = self.members();
        if voters.is_empty() {
            return Err(MembershipError::NoVoterLeft);
        }
        if let Some(unknown) = voters.iter().find(|voter| !now.members.contains_key(voter)) {
            return Err(MembershipError::UnknownMember(*unknown));
        }
        let changes = now.voters.symmetric_difference(&voters).count();
        if changes > 1 {
            return Err(MembershipError::MoreThanOneChange { changes });
        }
        if changes == 0 {
            return Ok(());
        }
        let voters = voters.into_iter().map(|voter| voter.0).collect();
        self.inner.node.set_voters(voters, self.inner.config.request_timeout).await
    }

    /// Changes the address of a member. Only on the leader, which must be able to reach the new address.
    pub async fn relocate(&self, member: Member) -> Result<(), MembershipError> {
        if !self.members().members.contains_key(&member.id) {
            return Err(MembershipError::UnknownMember(member.id));
        }
        self.inner.node.relocate(member, self.inner.config.request_timeout).await
    }

    /// Removes a learner. Only on the leader.
    pub async fn remove_member(&self, member: MemberId) -> Result<(), MembershipError> {
        let now = self.members();
        if now.voters.contains(&member) {
            return Err(MembershipError::StillVotes(member));
        }
        if !now.members.contains_key(&member) {
            return Err(MembershipError::UnknownMember(member));
        }
        self.inner.node.remove_learner(member, self.inner.config.request_timeout).await
    }

    /// All members known to this one.
    pub fn members(&self) -> Members {
        self.inner.node.members()
    }

    /// Proposes one command, on any member, and waits until it is committed and applied on the leader.
    pub async fn propose(&self, proposal: Proposal) -> Result<Applied, ProposeError> {
        self.enqueue(proposal).await?.await.unwrap_or(Err(ProposeError::ShuttingDown))
    }

    /// Proposes many commands at once. Each is committed on its own, in this order, and has its own answer.
    pub async fn propose_all(&self, proposals: Vec<Proposal>) -> Vec<Result<Applied, ProposeError>> {
        let mut waiting = Vec::with_capacity(proposals.len());
        for proposal in proposals {
            waiting.push(self.enqueue(proposal).await);
        }
        answers(waiting).await
    }

    async fn enqueue(
        &self,
        proposal: Proposal,
    ) -> Result<oneshot::Receiver<Result<Applied, ProposeError>>, ProposeError> {
        let (queued, answer) = QueuedProposal::new(proposal, self.inner.config.request_timeout)?;
        match self.inner.proposals.send_timeout(queued, self.inner.config.request_timeout).await {
            Ok(()) => Ok(answer),
            Err(mpsc::error::SendTimeoutError::Timeout(_)) => Err(ProposeError::Overloaded),
            Err(mpsc::error::SendTimeoutError::Closed(_)) => Err(ProposeError::ShuttingDown),
        }
    }

    /// Returns a state that includes everything acknowledged before this call, on any member.
    pub async fn read(&self) -> Result<Reading, ReadError> {
        let (waiting, done) = oneshot::channel();
        self.inner.reads.send(waiting).await.map_err(|_| ReadError::ShuttingDown)?;
        done.await.unwrap_or(Err(ReadError::ShuttingDown))?;
        Ok(Reading { state: self.inner.state_machine.state(), freshness: Freshness::Linearizable })
    }

    /// Returns the state applied on this member, which may be stale.
    pub fn read_local(&self) -> Reading {
        Reading { state: self.inner.state_machine.state(), freshness: Freshness::Stale }
    }

    /// The current leadership and its changes.
    pub fn leadership(&self) -> latest::Receiver<Leadership> {
        self.inner.leadership.clone()
    }

    /// Watches the changes after a state that the caller has read. An idle watcher costs this member nothing.
    pub fn watch(&self, after: StateIndex, filter: Filter) -> Watcher {
        self.inner.state_machine.feed.watcher(after, filter)
    }

    /// The recent changes kept for watchers since this member started, oldest first.
    pub fn last_changes(&self) -> Vec<Arc<Change>> {
        self.inner.state_machine.feed.kept()
    }

    /// Audit records after a number, oldest first, as applied on this member.
    pub fn audit(&self, after: u64, most: usize) -> Vec<Arc<AuditEvent>> {
        self.inner.state_machine.with_machine(|machine| machine.audit_after(after, most))
    }

    /// The newest audit records, oldest first.
    pub fn newest_audit(&self, most: usize) -> Vec<Arc<AuditEvent>> {
        self.inner.state_machine.with_machine(|machine| machine.newest_audit(most))
    }

    /// Whether this member has applied a request with this key.
    pub fn has_answered(&self, key: &IdempotencyKey) -> bool {
        self.inner.state_machine.with_machine(|machine| machine.has_answered(key))
    }

    /// Replication metrics of this member.
    pub fn status(&self) -> ReplicationStatus {
        ReplicationStatus { applying: self.inner.state_machine.applying(), ..self.inner.node.status() }
    }

    /// Handles a message from another member and returns the encoded response.
    pub async fn serve(&self, message: &[u8]) -> Vec<u8> {
        self.inner.node.serve(message, |request| self.lead(request)).await
    }

    async fn lead(&self, request: Request) -> Response {
        match request {
            Request::Barrier => match self.inner.node.barrier(self.inner.config.request_timeout).await {
                Ok(index) => Response::Barrier(index),
                Err(BarrierError::NotLeading) => Response::NotLeading(self.inner.node.raft_status().leader),
                Err(BarrierError::NoQuorum | BarrierError::Stopped(_)) => Response::NoQuorum,
            },
            Request::Propose(items) => self.lead_proposals(&items).await,
        }
    }

    async fn lead_proposals(&self, items: &[record::Payload]) -> Response {
        let status = self.inner.node.raft_status();
        // Not forwarded again: that could loop while members disagree about the leader.
        if !matches!(status.role, consensus::RaftRole::Leader { .. }) {
            return Response::NotLeading(status.leader);
        }
        let mut waiting = Vec::with_capacity(items.len());
        for item in items {
            waiting.push(match encoding::decode::<Item>(&item.0) {
                Ok(item) => self.enqueue(item.proposal).await,
                Err(error) => Err(ProposeError::StorageFailed(error.to_string())),
            });
        }
        Response::Answers(answers(waiting).await)
    }

    /// A snapshot of everything replicated, as of a linearizable read, in bytes that [`restore`] accepts.
    pub async fn backup(&self) -> Result<Vec<u8>, BackupError> {
        self.read().await?;
        let (head, machine) = self.inner.state_machine.copy();
        let packed = tokio::task::spawn_blocking(move || snapshot::to_bytes(&head, &machine)).await;
        Ok(packed.map_err(|error| BackupError::Interrupted(error.to_string()))??)
    }

    /// Stops the member, waits until its log is closed, and closes its watchers.
    pub async fn close(&self) {
        self.inner.state_machine.stop_waiting();
        self.inner.node.stop().await;
        let tasks = std::mem::take(&mut *self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            task.abort();
            // An aborted task ends with an error by design.
            let _ = task.await;
        }
        self.inner.state_machine.feed.close();
    }
}

/// Waits for the answers to queued proposals, in order.
async fn answers(
    queued: Vec<Result<oneshot::Receiver<Result<Applied, ProposeError>>, ProposeError>>,
) -> Vec<Result<Applied, ProposeError>> {
    let mut answers = Vec::with_capacity(queued.len());
    for queued in queued {
        answers.push(match queued {
            Ok(answer) => answer.await.unwrap_or(Err(ProposeError::ShuttingDown)),
            Err(error) => Err(error),
        });
    }
    answers
}

/// Why a backup failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The newest state could not be read.
    #[error("the newest state could not be read")]
    Read(#[from] ReadError),
    /// The snapshot could not be encoded.
    #[error("the state could not be encoded")]
    Pack(#[from] SnapshotError),
    /// The task was interrupted.
    #[error("the backup was interrupted: {0}")]
    Interrupted(String),
}

async fn open_storage(config: &ReplicatedConfig) -> Result<(LogStore, StateMachineHandle), OpenError> {
    let (dir, most_events) = (config.dir.clone(), config.watch_events);
    let opened = tokio::task::spawn_blocking(move || {
        let state_machine = StateMachineHandle::open(dir.join("snapshots"), most_events)?;
        let log = LogStore::open(&dir.join("log"))?;
        let snapshot_ends_at = state_machine.applied().map_or(0, |at| at.index);
        let log_begins_after = log.purged().map_or(0, |at| at.index);
        if log_begins_after > snapshot_ends_at {
            return Err(OpenError::SnapshotMissing { dir, log_begins_after, snapshot_ends_at });
        }
        Ok((log, state_machine))
    });
    opened.await.map_err(|error| OpenError::NotStarted(error.to_string()))?
}

/// Whether the directory belongs to this member already; an error if it belongs to another one.
fn is_claimed(dir: &Path, id: MemberId) -> Result<bool, OpenError> {
    match fs::read_to_string(dir.join(OWNER_FILE)) {
        Ok(owner) if owner.trim() == id.to_string() => Ok(true),
        Ok(owner) => {
            let owner = owner.trim().to_owned();
            Err(OpenError::OtherMember { dir: dir.to_owned(), owner, asked: id })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(OpenError::Directory { dir: dir.to_owned(), source }),
    }
}

/// Writes the member's id into its directory unless it is there; an error if the directory belongs to another member.
fn claim(dir: &Path, id: MemberId) -> Result<(), OpenError> {
    if is_claimed(dir, id)? {
        return Ok(());
    }
    let failed = |source| OpenError::Directory { dir: dir.to_owned(), source };
    fs::create_dir_all(dir).map_err(failed)?;
    durable_file::replace(&dir.join(OWNER_FILE), id.to_string().as_bytes(), Durability::Synced).map_err(failed)
}

/// File with the id of the member that the directory belongs to.
const OWNER_FILE: &str = "member";

#[cfg(test)]
mod tests;
