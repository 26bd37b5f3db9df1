//! One running member of the consensus, in our own words.
//!
//! Owns: starting and stopping it, asking it, and naming its refusals.
//! Invariant: every call ends within the patience given; a library call that could wait for ever is wrapped here.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::Path,
    sync::Arc,
    time::Duration,
};

use longshore_model::MemberId;
use openraft::{
    ChangeMembers, ServerState, SnapshotPolicy,
    error::{ChangeMembershipError, CheckIsLeaderError, ClientWriteError, Fatal, InitializeError, RaftError},
};

use super::{
    super::{
        Applied, Member, Members, MembershipError, ReplicationStatus, encoding, message,
        record::Payload,
        transport::{Sent, Transport},
    },
    Raft,
    log_store::{DiskFull, LogStore},
    machine_store::{Held, MachineStore},
    network::{Answer, Ask, Line, Network, Receiver},
};

/// What the library is told.
pub(crate) struct NodeConfig<'a> {
    pub(crate) id: MemberId,
    pub(crate) heartbeat: Duration,
    pub(crate) election: Range<Duration>,
    pub(crate) snapshots: &'a Path,
}

/// A running member.
pub(crate) struct Node {
    raft: Raft,
    log: LogStore,
    transport: Arc<dyn Transport>,
    receiver: Receiver,
}

/// Why a batch was not decided.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// It was not appended: somebody else leads, or nobody.
    NotLeading,
    /// It was not appended: there is no space for it.
    DiskFull,
    /// It was appended, and no quorum confirmed it in time.
    TimedOut,
    /// It was appended, and then another leader came.
    Superseded,
    /// The member has stopped.
    Stopped(String),
}

/// What the library knows of leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) term: u64,
    pub(crate) leader: Option<Member>,
    pub(crate) leads: Leads,
}

/// Whether this member leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leads {
    Yes { since_quorum: Option<Duration> },
    No,
    Stopped,
}

/// Entries kept behind a snapshot, so that a member a moment behind needs no snapshot.
const KEPT_BEHIND_SNAPSHOT: u64 = 256;

impl Node {
    pub(crate) async fn start(
        config: NodeConfig<'_>,
        log: LogStore,
        held: Arc<Held>,
        transport: Arc<dyn Transport>,
    ) -> Result<Self, String> {
        let settings = openraft::Config {
            cluster_name: "longshore".to_owned(),
            heartbeat_interval: millis(config.heartbeat),
            election_timeout_min: millis(config.election.start),
            election_timeout_max: millis(config.election.end),
            install_snapshot_timeout: 30_000,
            max_payload_entries: 1024,
            // Taken by our own policy, which also knows bytes and a full disk.
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: KEPT_BEHIND_SNAPSHOT,
            purge_batch_size: 1,
            ..openraft::Config::default()
        };
        let settings = settings.validate().map_err(|error| error.to_string())?;
        let network = Network(Arc::clone(&transport));
        let raft = Raft::new(config.id.0, Arc::new(settings), network, log.clone(), MachineStore(held))
            .await
            .map_err(|error| error.to_string())?;
        Ok(Self { raft, log, transport, receiver: Receiver::new(config.snapshots.to_owned()) })
    }

    pub(crate) async fn stop(&self) {
        self.log.stop_waiting();
        // It fails only when the task was already gone.
        let _ = self.raft.shutdown().await;
    }

    /// Appends a batch and waits until it is applied here.
    pub(crate) async fn write(&self, batch: Payload, patience: Duration) -> Result<Vec<Applied>, WriteError> {
        // Asked before, because the library takes a failed write for the end of its member.
        self.log.make_room(batch.0.len()).await.map_err(|DiskFull| WriteError::DiskFull)?;
        match tokio::time::timeout(patience, self.raft.client_write(batch)).await {
            Err(_) => Err(WriteError::TimedOut),
            Ok(Ok(answer)) => Ok(answer.data),
            Ok(Err(RaftError::Fatal(fatal))) => Err(WriteError::Stopped(why_stopped(&fatal))),
            Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_)))) => {
                // The library answers the same whether the batch was never appended or was cut off again by a later
                // leader. Only a member that leads has appended anything; see `write` in the proposer.
                Err(WriteError::Superseded)
            }
            Ok(Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(_)))) => Err(WriteError::NotLeading),
        }
    }

    /// The entry that must be applied for a state to be as new as this call. Only the leader knows.
    pub(crate) async fn barrier(&self, patience: Duration) -> Result<u64, BarrierError> {
        match tokio::time::timeout(patience, self.raft.get_read_log_id()).await {
            Ok(Ok((read, _applied))) => Ok(read.map_or(0, |read| read.index)),
            Ok(Err(RaftError::Fatal(fatal))) => Err(BarrierError::Stopped(why_stopped(&fatal))),
            Err(_) | Ok(Err(RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(_)))) => {
                Err(BarrierError::NoQuorum)
            }
            Ok(Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(_)))) => Err(BarrierError::NotLeading),
        }
    }

    /// Waits until the entry is applied here.
    pub(crate) async fn applied_to(&self, index: u64, patience: Duration) -> Result<(), BarrierError> {
        let wait = self.raft.wait(Some(patience));
        wait.applied_index_at_least(Some(index), "a read").await.map(drop).map_err(|_| BarrierError::NoQuorum)
    }

    pub(crate) async fn initialise(&self, me: Member) -> Result<(), MembershipError> {
        match self.raft.initialize(BTreeMap::from([(me.id.0, me)])).await {
            Ok(()) => Ok(()),
            Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Err(MembershipError::AlreadyInitialised),
            Err(RaftError::APIError(InitializeError::NotInMembers(error))) => {
                Err(MembershipError::NotDecided(error.to_string()))
            }
            Err(RaftError::Fatal(fatal)) => Err(MembershipError::NotDecided(why_stopped(&fatal))),
        }
    }

    pub(crate) async fn add_learner(&self, member: Member, patience: Duration) -> Result<(), MembershipError> {
        self.change(ChangeMembers::AddNodes(BTreeMap::from([(member.id.0, member)])), patience).await
    }

    pub(crate) async fn set_voters(&self, voters: BTreeSet<u64>, patience: Duration) -> Result<(), MembershipError> {
        self.change(ChangeMembers::ReplaceAllVoters(voters), patience).await
    }

    pub(crate) async fn relocate(&self, member: Member, patience: Duration) -> Result<(), MembershipError> {
        self.change(ChangeMembers::SetNodes(BTreeMap::from([(member.id.0, member)])), patience).await
    }

    pub(crate) async fn remove_learner(&self, member: MemberId, patience: Duration) -> Result<(), MembershipError> {
        self.change(ChangeMembers::RemoveNodes(BTreeSet::from([member.0])), patience).await
    }

    async fn change(&self, change: ChangeMembers<u64, Member>, patience: Duration) -> Result<(), MembershipError> {
        // A voter that no longer votes stays a learner: leaving is a step of its own.
        let changed = tokio::time::timeout(patience, self.raft.change_membership(change, true)).await;
        match changed {
            Err(_) => Err(MembershipError::NotDecided("no quorum confirmed it in time".to_owned())),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(RaftError::Fatal(fatal))) => Err(MembershipError::NotDecided(why_stopped(&fatal))),
            Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward)))) => {
                Err(MembershipError::NotLeading { leader: forward.leader_node })
            }
            Ok(Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(error)))) => Err(match error {
                ChangeMembershipError::InProgress(_) => MembershipError::InProgress,
                ChangeMembershipError::EmptyMembership(_) => MembershipError::NoVoterLeft,
                ChangeMembershipError::LearnerNotFound(missing) => {
                    MembershipError::UnknownMember(MemberId(missing.node_id))
                }
            }),
        }
    }

    pub(crate) fn members(&self) -> Members {
        let metrics = self.raft.metrics().borrow().clone();
        let membership = metrics.membership_config.membership();
        Members {
            voters: membership.voter_ids().map(MemberId).collect(),
            members: membership.nodes().map(|(id, member)| (MemberId(*id), member.clone())).collect(),
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        let metrics = self.raft.metrics().borrow().clone();
        let members = metrics.membership_config.membership();
        let leads = match (&metrics.running_state, metrics.state) {
            (Err(_), _) | (Ok(()), ServerState::Shutdown) => Leads::Stopped,
            (Ok(()), ServerState::Leader) => {
                Leads::Yes { since_quorum: metrics.millis_since_quorum_ack.map(Duration::from_millis) }
            }
            (Ok(()), ServerState::Learner | ServerState::Follower | ServerState::Candidate) => Leads::No,
        };
        let leader = metrics.current_leader.and_then(|leader| members.get_node(&leader).cloned());
        Standing { term: metrics.current_term, leader, leads }
    }

    pub(crate) fn status(&self) -> ReplicationStatus {
        let metrics = self.raft.metrics().borrow().clone();
        let lag = metrics.replication.iter().flatten().map(|(id, matched)| {
            let last = metrics.last_log_index.unwrap_or(0);
            (MemberId(*id), last.saturating_sub(matched.map_or(0, |matched| matched.index)))
        });
        ReplicationStatus {
            term: metrics.current_term,
            last_entry: metrics.last_log_index.unwrap_or(0),
            applied_entry: metrics.last_applied.map_or(0, |at| at.index),
            snapshot_entry: metrics.snapshot.map_or(0, |at| at.index),
            lag: lag.collect(),
            // The machine knows that one.
            applying: Duration::ZERO,
            failure: metrics.running_state.err().map(|fatal| why_stopped(&fatal)),
        }
    }

    /// Waits until who leads, or what this member does, may have changed.
    pub(crate) async fn changed(&self) {
        let mut metrics = self.raft.server_metrics();
        metrics.mark_unchanged();
        // It fails once the member has stopped, and then there is nothing more to wait for.
        let _ = metrics.changed().await;
    }

    /// Waits until somebody else than this member leads, or this one has stopped.
    pub(crate) async fn led_by_another(&self, than: MemberId) {
        let mut metrics = self.raft.server_metrics();
        loop {
            if metrics.borrow_and_update().current_leader.is_some_and(|leader| leader != than.0) {
                return;
            }
            if metrics.changed().await.is_err() {
                return;
            }
        }
    }

    pub(crate) fn appended_bytes(&self) -> u64 {
        self.log.appended_bytes()
    }

    pub(crate) async fn take_snapshot(&self) -> Result<(), String> {
        self.raft.trigger().snapshot().await.map_err(|fatal| why_stopped(&fatal))
    }

    /// Asks another member, as one of us.
    pub(crate) async fn ask(
        &self,
        to: &Member,
        request: message::Request,
        patience: Duration,
    ) -> Result<message::Response, Sent> {
        let line = Line { transport: Arc::clone(&self.transport), to: to.clone() };
        match line.ask(&Ask::Leader(request), patience).await {
            Ok(Answer::Leader(response)) => Ok(response),
            Ok(Answer::Append(_) | Answer::Vote(_) | Answer::More | Answer::Snapshot(_) | Answer::Failed(_)) => {
                Err(Sent::Perhaps)
            }
            Err(failed) => {
                tracing::debug!(to = %to.id, why = %failed.why, "a request to the leader had no answer");
                Err(failed.sent)
            }
        }
    }

    /// Answers a message of another member; `lead` answers what is asked of a leader.
    pub(crate) async fn serve<F>(&self, message: &[u8], lead: impl FnOnce(message::Request) -> F) -> Vec<u8>
    where
        F: Future<Output = message::Response>,
    {
        let answer = match encoding::decode(message) {
            Err(error) => Answer::Failed(format!("the message was not understood: {error}")),
            Ok(Ask::Append(request)) => Answer::Append(self.raft.append_entries(request).await),
            Ok(Ask::Vote(request)) => Answer::Vote(self.raft.vote(request).await),
            Ok(Ask::Snapshot(chunk)) => self.receiver.take(&self.raft, chunk).await,
            Ok(Ask::Leader(request)) => Answer::Leader(lead(request).await),
        };
        encoding::encode(&answer).unwrap_or_else(|error| {
            tracing::error!(%error, "an answer to another member could not be encoded");
            Vec::new()
        })
    }
}

/// Why a read has no barrier.
#[derive(Debug)]
pub(crate) enum BarrierError {
    NotLeading,
    NoQuorum,
    Stopped(String),
}

fn why_stopped(fatal: &Fatal<u64>) -> String {
    match fatal {
        Fatal::StorageError(error) => error.to_string(),
        Fatal::Panicked => "it ran into a fault of its own".to_owned(),
        Fatal::Stopped => "it was stopped".to_owned(),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
