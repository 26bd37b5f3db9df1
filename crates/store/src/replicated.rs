//! The state machine, replicated: a log on disk, a quorum that agrees on it, and everybody's way in.
//!
//! ```text
//!  propose ─▶ proposer ─▶ one entry, many commands ─▶ log on disk, quorum ─▶ machine ─▶ feed ─▶ watchers
//!  read ────▶ reader ───▶ one question to a quorum, many readers ─────────────▶ │
//!  serve ◀──▶ transport ◀──▶ other members                                      └─▶ snapshots
//! ```
//!
//! Owns: durability, agreement, linearizable reads, watches, the audit record and idempotency.
//! Must not touch: what a command means, when to propose one, and how bytes travel.
//! Invariant: what was acknowledged is on the disks of a quorum and is never undone; nothing is applied twice; no type of
//! the consensus library is seen from outside.

mod consensus;
mod encoding;
mod leadership;
mod machine;
mod member;
mod message;
mod plan_parts;
mod proposal;
mod proposer;
mod reader;
mod record;
mod recovery;
mod snapshot;
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

use longshore_model::{AuditEvent, MemberId, StateIndex};
use tokio::{
    sync::{mpsc, oneshot, watch as latest},
    task::JoinHandle,
};

use self::{
    consensus::{BarrierError, Held, LogStore, Node, NodeConfig},
    machine::Item,
    message::{Request, Response},
    proposer::{Proposer, Queued},
    reader::Reader,
};
pub use self::{
    encoding::EncodingError,
    member::{Leadership, Member, Members, MembershipError, Part},
    proposal::{Applied, Fate, Fingerprint, IdempotencyKey, KeyNotUsable, Novelty, Outcome, Proposal, ProposeError},
    recovery::{Recovery, RecoveryError, peek, recover_as_single_voter, restore},
    snapshot::SnapshotError,
    transport::{Alone, Call, LARGEST_MESSAGE, Sent, Transport, Unreachable},
    wal::WalError,
    watch::{Change, Filter, Watched, Watcher},
};
use crate::State;
pub use crate::recheck::DroppedItem;

/// How a member runs.
#[derive(Clone, Debug)]
pub struct ReplicatedConfig {
    /// Where log and snapshots are; belongs to one member for ever.
    pub dir: PathBuf,
    /// Which member this is.
    pub id: MemberId,
    /// Time between two signs of life of a leader.
    pub heartbeat: Duration,
    /// Silence after which another leader is elected, drawn anew each time.
    pub election: Range<Duration>,
    /// How long a proposal or a read waits for a leader and a quorum before it is refused.
    pub patience: Duration,
    /// A snapshot is taken after that many entries, …
    pub snapshot_after_entries: u64,
    /// … or after that many bytes of them.
    pub snapshot_after_bytes: u64,
    /// Events kept in memory for watchers that fall behind.
    pub watch_events: usize,
}

impl ReplicatedConfig {
    /// The usual settings.
    pub fn new(dir: impl Into<PathBuf>, id: MemberId) -> Self {
        Self {
            dir: dir.into(),
            id,
            heartbeat: Duration::from_millis(150),
            election: Duration::from_millis(500)..Duration::from_secs(1),
            // Longer than an election, shorter than a person's.
            patience: Duration::from_secs(3),
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
        /// Whose it is.
        owner: String,
        /// Who wanted it.
        asked: MemberId,
    },
    /// The directory could not be used.
    #[error("could not use the directory `{}`", .dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The log could not be read.
    #[error("the log could not be opened")]
    Log(#[from] WalError),
    /// The newest snapshot could not be read.
    #[error("the snapshot could not be opened")]
    Snapshot(#[from] SnapshotError),
    /// Log and snapshot do not meet.
    #[error("the log in `{}` begins after entry {log_begins_after}, but the newest snapshot ends at entry {snapshot_ends_at}", .dir.display())]
    SnapshotMissing {
        /// The directory.
        dir: PathBuf,
        /// The last entry no longer in the log.
        log_begins_after: u64,
        /// The last entry in the snapshot.
        snapshot_ends_at: u64,
    },
    /// The member did not start.
    #[error("the member did not start: {0}")]
    NotStarted(String),
}

/// Why there is no linearizable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Too few voters can be reached.
    #[error("too few voters can be reached to be sure what is newest")]
    QuorumLost,
    /// This member has stopped taking part.
    #[error("the log of this member failed: {0}")]
    StorageFailed(String),
    /// This member is being closed.
    #[error("this member is shutting down")]
    Closing,
}

impl ReadError {
    /// Stable: clients branch on these strings. Add codes, never rename one.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::QuorumLost => "quorum_lost",
            Self::StorageFailed(_) => "storage_failed",
            Self::Closing => "closing",
        }
    }
}

/// A state that was read. It never changes; reading again gives a newer one.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The state.
    pub state: Arc<State>,
    /// How new it is.
    pub freshness: Freshness,
}

/// How new a reading is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Everything acknowledged before the read is in it.
    Linearizable,
    /// What this member happened to know; others may know more.
    Stale,
}

/// Figures of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicationStatus {
    /// Grows with every election.
    pub term: u64,
    /// Last entry of its log.
    pub last_entry: u64,
    /// Last entry applied.
    pub applied_entry: u64,
    /// Last entry in a snapshot.
    pub snapshot_entry: u64,
    /// On a leader: how many entries each member is behind.
    pub lag: BTreeMap<MemberId, u64>,
    /// Time spent applying entries since the member was opened.
    pub applying: Duration,
    /// Why it stopped, if it did.
    pub failure: Option<String>,
}

/// One member of a replicated state machine. Clones are the same member.
#[derive(Clone)]
pub struct Replicated {
    inner: Arc<Inner>,
}

struct Inner {
    node: Arc<Node>,
    held: Arc<Held>,
    config: ReplicatedConfig,
    proposals: mpsc::Sender<Queued>,
    reads: mpsc::Sender<reader::Waiting>,
    leadership: latest::Receiver<Leadership>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Replicated {
    /// Opens a member's directory, making it if there is none, and takes part. Existing votes, entries and snapshots
    /// are kept as they are; a new member waits until a leader adds it, or until [`initialise`](Self::initialise).
    pub async fn open(config: ReplicatedConfig, transport: Arc<dyn Transport>) -> Result<Self, OpenError> {
        claim(&config.dir, config.id)?;
        let (log, held) = open_storage(&config).await?;
        let held = Arc::new(held);
        let snapshots = config.dir.join("snapshots");
        let node_config = NodeConfig {
            id: config.id,
            heartbeat: config.heartbeat,
            election: config.election.clone(),
            snapshots: &snapshots,
        };
        let node = Node::start(node_config, log, Arc::clone(&held), transport).await.map_err(OpenError::NotStarted)?;
        Ok(Self::run(Arc::new(node), held, config))
    }

    fn run(node: Arc<Node>, held: Arc<Held>, config: ReplicatedConfig) -> Self {
        let (proposals, queue) = mpsc::channel(proposer::QUEUE);
        let proposer = Proposer::new(Arc::clone(&node), Arc::clone(&held), queue, config.patience, config.election.end);
        let (reads, queue) = mpsc::channel(reader::QUEUE);
        let reader = Reader { node: Arc::clone(&node), queue, patience: config.patience };
        let (published, leadership) = latest::channel(Leadership { term: 0, leader: None, part: Part::Following });
        let keeper = leadership::Keeper {
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
            tokio::spawn(Arc::clone(&held.feed).herald()),
        ];
        let tasks = Mutex::new(tasks);
        Self { inner: Arc::new(Inner { node, held, config, proposals, reads, leadership, tasks }) }
    }

    /// Makes this member, and it alone, the first voter of a new cluster.
    pub async fn initialise(&self, me: Member) -> Result<(), MembershipError> {
        self.inner.node.initialise(me).await
    }

    /// Adds a member that receives everything and votes on nothing. Only on the leader.
    pub async fn add_learner(&self, member: Member) -> Result<(), MembershipError> {
        self.inner.node.add_learner(member, self.inner.config.patience).await
    }

    /// Sets who votes: one more or one fewer than now, all of them learners before. Only on the leader.
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
        self.inner.node.set_voters(voters, self.inner.config.patience).await
    }

    /// A member is reached elsewhere from now on. Only on the leader, which must be able to reach it there.
    pub async fn relocate(&self, member: Member) -> Result<(), MembershipError> {
        if !self.members().members.contains_key(&member.id) {
            return Err(MembershipError::UnknownMember(member.id));
        }
        self.inner.node.relocate(member, self.inner.config.patience).await
    }

    /// Removes a member that does not vote. Only on the leader.
    pub async fn remove_member(&self, member: MemberId) -> Result<(), MembershipError> {
        let now = self.members();
        if now.voters.contains(&member) {
            return Err(MembershipError::StillVotes(member));
        }
        if !now.members.contains_key(&member) {
            return Err(MembershipError::UnknownMember(member));
        }
        self.inner.node.remove_learner(member, self.inner.config.patience).await
    }

    /// Everybody, as far as this member knows.
    pub fn members(&self) -> Members {
        self.inner.node.members()
    }

    /// Proposes one command, on any member, and waits until it is decided and applied where it was decided.
    pub async fn propose(&self, proposal: Proposal) -> Result<Applied, ProposeError> {
        self.enqueue(proposal).await?.await.unwrap_or(Err(ProposeError::Closing))
    }

    /// Proposes many commands at once; each is decided on its own, in this order, and has its own answer.
    pub async fn propose_all(&self, proposals: Vec<Proposal>) -> Vec<Result<Applied, ProposeError>> {
        let mut waiting = Vec::with_capacity(proposals.len());
        for proposal in proposals {
            waiting.push(self.enqueue(proposal).await);
        }
        let mut answers = Vec::with_capacity(waiting.len());
        for waiting in waiting {
            answers.push(match waiting {
                Ok(answer) => answer.await.unwrap_or(Err(ProposeError::Closing)),
                Err(error) => Err(error),
            });
        }
        answers
    }

    async fn enqueue(
        &self,
        proposal: Proposal,
    ) -> Result<oneshot::Receiver<Result<Applied, ProposeError>>, ProposeError> {
        let (queued, answer) = Queued::new(proposal, self.inner.config.patience)?;
        match self.inner.proposals.send_timeout(queued, self.inner.config.patience).await {
            Ok(()) => Ok(answer),
            Err(mpsc::error::SendTimeoutError::Timeout(_)) => Err(ProposeError::Overloaded),
            Err(mpsc::error::SendTimeoutError::Closed(_)) => Err(ProposeError::Closing),
        }
    }

    /// Reads a state that holds everything acknowledged before this call, on any member.
    pub async fn read(&self) -> Result<Reading, ReadError> {
        let (waiting, done) = oneshot::channel();
        self.inner.reads.send(waiting).await.map_err(|_| ReadError::Closing)?;
        done.await.unwrap_or(Err(ReadError::Closing))?;
        Ok(Reading { state: self.inner.held.state(), freshness: Freshness::Linearizable })
    }

    /// Reads what this member knows now, which others may already know to be outdated.
    pub fn read_local(&self) -> Reading {
        Reading { state: self.inner.held.state(), freshness: Freshness::Stale }
    }

    /// Who leads, now and whenever it changes.
    pub fn leadership(&self) -> latest::Receiver<Leadership> {
        self.inner.leadership.clone()
    }

    /// Follows the changes after a state this caller has read. Costs this member nothing while nobody asks.
    pub fn watch(&self, after: StateIndex, filter: Filter) -> Watcher {
        self.inner.held.feed.watcher(after, filter)
    }

    /// The last changes, oldest first: as many as this member keeps for watchers, since it was started.
    pub fn last_changes(&self) -> Vec<Arc<Change>> {
        self.inner.held.feed.kept()
    }

    /// Records of who did what after a number, oldest first; what this member knows of them.
    pub fn audit(&self, after: u64, most: usize) -> Vec<Arc<AuditEvent>> {
        self.inner.held.look(|machine| machine.audit_after(after, most))
    }

    /// The newest records, oldest first.
    pub fn newest_audit(&self, most: usize) -> Vec<Arc<AuditEvent>> {
        self.inner.held.look(|machine| machine.newest_audit(most))
    }

    /// Whether a request under this key has its answer, as far as this member has applied.
    pub fn has_answered(&self, key: &IdempotencyKey) -> bool {
        self.inner.held.look(|machine| machine.has_answered(key))
    }

    /// Figures of this member.
    pub fn status(&self) -> ReplicationStatus {
        ReplicationStatus { applying: self.inner.held.applying(), ..self.inner.node.status() }
    }

    /// Answers a message that another member's transport brought here.
    pub async fn serve(&self, message: &[u8]) -> Vec<u8> {
        self.inner.node.serve(message, |request| self.lead(request)).await
    }

    async fn lead(&self, request: Request) -> Response {
        match request {
            Request::Barrier => match self.inner.node.barrier(self.inner.config.patience).await {
                Ok(index) => Response::Barrier(index),
                Err(BarrierError::NotLeading) => Response::NotLeading(self.inner.node.standing().leader),
                Err(BarrierError::NoQuorum | BarrierError::Stopped(_)) => Response::NoQuorum,
            },
            Request::Propose(items) => self.lead_proposals(&items).await,
        }
    }

    async fn lead_proposals(&self, items: &[record::Payload]) -> Response {
        let standing = self.inner.node.standing();
        // Handing it on once more could go round in circles while members disagree about who leads.
        if !matches!(standing.leads, consensus::Leads::Yes { .. }) {
            return Response::NotLeading(standing.leader);
        }
        let mut waiting = Vec::with_capacity(items.len());
        for item in items {
            waiting.push(match encoding::decode::<Item>(&item.0) {
                Ok(item) => self.enqueue(item.proposal).await,
                Err(error) => Err(ProposeError::StorageFailed(error.to_string())),
            });
        }
        let mut answers = Vec::with_capacity(waiting.len());
        for waiting in waiting {
            answers.push(match waiting {
                Ok(answer) => answer.await.unwrap_or(Err(ProposeError::Closing)),
                Err(error) => Err(error),
            });
        }
        Response::Answers(answers)
    }

    /// Everything replicated, as of a linearizable read, in bytes that [`restore`] takes.
    pub async fn backup(&self) -> Result<Vec<u8>, BackupError> {
        self.read().await?;
        let (head, machine) = self.inner.held.copy();
        let packed = tokio::task::spawn_blocking(move || snapshot::to_bytes(&head, &machine)).await;
        Ok(packed.map_err(|error| BackupError::Interrupted(error.to_string()))??)
    }

    /// Stops taking part and waits until the log is closed. Watchers are sent away.
    pub async fn close(&self) {
        self.inner.held.stop_waiting();
        self.inner.node.stop().await;
        let tasks = std::mem::take(&mut *self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            task.abort();
            // An aborted task ends with an error that says so.
            let _ = task.await;
        }
        self.inner.held.feed.close();
    }
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The newest state could not be read.
    #[error("the newest state could not be read")]
    Read(#[from] ReadError),
    /// It could not be packed.
    #[error("the state could not be packed")]
    Pack(#[from] SnapshotError),
    /// The work was interrupted.
    #[error("the backup was interrupted: {0}")]
    Interrupted(String),
}

async fn open_storage(config: &ReplicatedConfig) -> Result<(LogStore, Held), OpenError> {
    let (dir, most_events) = (config.dir.clone(), config.watch_events);
    let opened = tokio::task::spawn_blocking(move || {
        let held = Held::open(dir.join("snapshots"), most_events)?;
        let log = LogStore::open(&dir.join("log"))?;
        let snapshot_ends_at = held.applied().map_or(0, |at| at.index);
        let log_begins_after = log.purged().map_or(0, |at| at.index);
        if log_begins_after > snapshot_ends_at {
            return Err(OpenError::SnapshotMissing { dir, log_begins_after, snapshot_ends_at });
        }
        Ok((log, held))
    });
    opened.await.map_err(|error| OpenError::NotStarted(error.to_string()))?
}

/// Writes the member's id into its directory, or compares it with the one there.
fn claim(dir: &Path, id: MemberId) -> Result<(), OpenError> {
    let failed = |source| OpenError::Directory { dir: dir.to_owned(), source };
    fs::create_dir_all(dir).map_err(failed)?;
    let path = dir.join("member");
    match fs::read_to_string(&path) {
        Ok(owner) if owner.trim() == id.to_string() => Ok(()),
        Ok(owner) => {
            let owner = owner.trim().to_owned();
            Err(OpenError::OtherMember { dir: dir.to_owned(), owner, asked: id })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let partial = dir.join("member.tmp");
            fs::write(&partial, id.to_string())
                .and_then(|()| fs::File::open(&partial)?.sync_all())
                .and_then(|()| fs::rename(&partial, &path))
                .and_then(|()| fs::File::open(dir)?.sync_all())
                .map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests;
