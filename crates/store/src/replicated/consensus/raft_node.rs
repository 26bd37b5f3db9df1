//! The running openraft node of a member.
//!
//! Owns: starting, stopping and calling it, and the conversion of its errors.
//! Invariant: every call ends within its timeout; openraft calls without one are wrapped here.

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
        Applied, Member, Members, MembershipError, ReplicationStatus, encoding, leader_request,
        record::Payload,
        transport::{Delivery, Transport},
    },
    Raft,
    log_store::{DiskFull, LogStore},
    network::{Network, PeerClient, PeerRequest, PeerResponse, SnapshotReceiver},
    state_machine_store::{StateMachineHandle, StateMachineStore},
};

/// Configuration passed to openraft.
pub(crate) struct RaftNodeConfig<'a> {
    pub(crate) id: MemberId,
    pub(crate) heartbeat: Duration,
    pub(crate) election: Range<Duration>,
    pub(crate) snapshots: &'a Path,
}

/// A running openraft node.
pub(crate) struct RaftNode {
    raft: Raft,
    log: LogStore,
    transport: Arc<dyn Transport>,
    receiver: SnapshotReceiver,
}

/// Why a batch was not committed.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// Not appended: this member does not lead.
    NotLeading,
    /// Not appended: the disk is full.
    DiskFull,
    /// Appended, but no quorum confirmed it in time.
    TimedOut,
    /// Appended, but another leader took over.
    Superseded,
    /// The member has stopped.
    Stopped(String),
}

/// The leadership as known to openraft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RaftStatus {
    pub(crate) term: u64,
    pub(crate) leader: Option<Member>,
    pub(crate) role: RaftRole,
}

/// The role of this member in openraft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RaftRole {
    /// `since_quorum` is the time since a quorum last acknowledged this leader; `None` before the first acknowledgement.
    Leader {
        since_quorum: Option<Duration>,
    },
    NotLeader,
    Stopped,
}

/// Entries kept behind a snapshot, so that a member slightly behind needs no snapshot.
const KEPT_BEHIND_SNAPSHOT: u64 = 256;

impl RaftNode {
    pub(crate) async fn start(
        config: RaftNodeConfig<'_>,
        log: LogStore,
        state_machine: Arc<StateMachineHandle>,
        transport: Arc<dyn Transport>,
    ) -> Result<Self, String> {
        let settings = openraft::Config {
            cluster_name: "longshore".to_owned(),
            heartbeat_interval: millis(config.heartbeat),
            election_timeout_min: millis(config.election.start),
            election_timeout_max: millis(config.election.end),
            install_snapshot_timeout: 30_000,
            max_payload_entries: 1024,
            // Snapshots are triggered by `LeadershipMonitor`, which also considers bytes.
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: KEPT_BEHIND_SNAPSHOT,
            purge_batch_size: 1,
            ..openraft::Config::default()
        };
        let settings = settings.validate().map_err(|error| error.to_string())?;
        let network = Network(Arc::clone(&transport));
        let raft = Raft::new(config.id.0, Arc::new(settings), network, log.clone(), StateMachineStore(state_machine))
            .await
            .map_err(|error| error.to_string())?;
        Ok(Self { raft, log, transport, receiver: SnapshotReceiver::new(config.snapshots.to_owned()) })
    }

    pub(crate) async fn stop(&self) {
        self.log.stop_waiting();
        // It fails only if the task has ended already.
        let _ = self.raft.shutdown().await;
    }

    /// Appends a batch and waits until it is applied here.
    pub(crate) async fn write(&self, batch: Payload, timeout: Duration) -> Result<Vec<Applied>, WriteError> {
        // Checked first, because openraft stops the member when a write fails.
        self.log.reserve_space(batch.0.len()).await.map_err(|DiskFull| WriteError::DiskFull)?;
        match tokio::time::timeout(timeout, self.raft.client_write(batch)).await {
            Err(_) => Err(WriteError::TimedOut),
            Ok(Ok(answer)) => Ok(answer.data),
            Ok(Err(RaftError::Fatal(fatal))) => Err(WriteError::Stopped(why_stopped(&fatal))),
            Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_)))) => {
                // openraft returns the same error whether the batch was never appended or was truncated by a later
                // leader. Only a leader appends anything; see `write` in the proposer.
                Err(WriteError::Superseded)
            }
            Ok(Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(_)))) => Err(WriteError::NotLeading),
        }
    }

    /// The entry that must be applied for a state to be as new as this call. Only the leader can tell.
    pub(crate) async fn barrier(&self, timeout: Duration) -> Result<u64, BarrierError> {
        match tokio::time::timeout(timeout, self.raft.get_read_log_id()).await {
            Ok(Ok((read, _applied))) => Ok(read.map_or(0, |read| read.index)),
            Ok(Err(RaftError::Fatal(fatal))) => Err(BarrierError::Stopped(why_stopped(&fatal))),
            Err(_) | Ok(Err(RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(_)))) => {
                Err(BarrierError::NoQuorum)
            }
            Ok(Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(_)))) => Err(BarrierError::NotLeading),
        }
    }

    /// Waits until the entry is applied here.
    pub(crate) async fn applied_to(&self, index: u64, timeout: Duration) -> Result<(), BarrierError> {
        let wait = self.raft.wait(Some(timeout));
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

    pub(crate) async fn add_learner(&self, member: Member, timeout: Duration) -> Result<(), MembershipError> {
        self.change(ChangeMembers::AddNodes(BTreeMap::from([(member.id.0, member)])), timeout).await
    }

    pub(crate) async fn set_voters(&self, voters: BTreeSet<u64>, timeout: Duration) -> Result<(), MembershipError> {
        self.change(ChangeMembers::ReplaceAllVoters(voters), timeout).await
    }

    pub(crate) async fn relocate(&self, member: Member, timeout: Duration) -> Result<(), MembershipError> {
        self.change(ChangeMembers::SetNodes(BTreeMap::from([(member.id.0, member)])), timeout).await
    }

    pub(crate) async fn remove_learner(&self, member: MemberId, timeout: Duration) -> Result<(), MembershipError> {
        self.change(ChangeMembers::RemoveNodes(BTreeSet::from([member.0])), timeout).await
    }

    async fn change(&self, change: ChangeMembers<u64, Member>, timeout: Duration) -> Result<(), MembershipError> {
        // A former voter stays a learner; its removal is a separate step.
        let changed = tokio::time::timeout(timeout, self.raft.change_membership(change, true)).await;
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

    pub(crate) fn raft_status(&self) -> RaftStatus {
        let metrics = self.raft.metrics().borrow().clone();
        let members = metrics.membership_config.membership();
        let role = match (&metrics.running_state, metrics.state) {
            (Err(_), _) | (Ok(()), ServerState::Shutdown) => RaftRole::Stopped,
            (Ok(()), ServerState::Leader) => {
                RaftRole::Leader { since_quorum: metrics.millis_since_quorum_ack.map(Duration::from_millis) }
            }
            (Ok(()), ServerState::Learner | ServerState::Follower | ServerState::Candidate) => RaftRole::NotLeader,
        };
        let leader = metrics.current_leader.and_then(|leader| members.get_node(&leader).cloned());
        RaftStatus { term: metrics.current_term, leader, role }
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
            // Filled in by the caller from the state machine.
            applying: Duration::ZERO,
            failure: metrics.running_state.err().and_then(|fatal| match &fatal {
                Fatal::Stopped => None,
                Fatal::StorageError(_) | Fatal::Panicked => Some(why_stopped(&fatal)),
            }),
        }
    }

    /// Waits until the leader or the role of this member may have changed.
    pub(crate) async fn changed(&self) {
        let mut metrics = self.raft.server_metrics();
        metrics.mark_unchanged();
        // It fails once the member has stopped; there is nothing more to wait for.
        let _ = metrics.changed().await;
    }

    /// Waits until a member other than `than` leads, or this member has stopped.
    pub(crate) async fn leader_changed_from(&self, than: MemberId) {
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

    /// Sends a request to another member.
    pub(crate) async fn ask(
        &self,
        to: &Member,
        request: leader_request::Request,
        timeout: Duration,
    ) -> Result<leader_request::Response, Delivery> {
        let client = PeerClient { transport: Arc::clone(&self.transport), to: to.clone() };
        match client.ask(&PeerRequest::Leader(request), timeout).await {
            Ok(PeerResponse::Leader(response)) => Ok(response),
            Ok(
                PeerResponse::Append(_)
                | PeerResponse::Vote(_)
                | PeerResponse::ChunkReceived
                | PeerResponse::Snapshot(_)
                | PeerResponse::Failed(_),
            ) => Err(Delivery::Unknown),
            Err(failed) => {
                tracing::debug!(to = %to.id, why = %failed.why, "a request to the leader failed");
                Err(failed.sent)
            }
        }
    }

    /// Handles a message from another member; `lead` handles requests to the leader.
    pub(crate) async fn serve<F>(&self, message: &[u8], lead: impl FnOnce(leader_request::Request) -> F) -> Vec<u8>
    where
        F: Future<Output = leader_request::Response>,
    {
        let answer = match encoding::decode(message) {
            Err(error) => PeerResponse::Failed(format!("the message could not be decoded: {error}")),
            Ok(PeerRequest::Append(request)) => PeerResponse::Append(self.raft.append_entries(request).await),
            Ok(PeerRequest::Vote(request)) => PeerResponse::Vote(self.raft.vote(request).await),
            Ok(PeerRequest::Snapshot(chunk)) => self.receiver.take(&self.raft, chunk).await,
            Ok(PeerRequest::Leader(request)) => PeerResponse::Leader(lead(request).await),
        };
        encoding::encode(&answer).unwrap_or_else(|error| {
            tracing::error!(%error, "a response to another member could not be encoded");
            Vec::new()
        })
    }
}

/// Why a read barrier failed.
#[derive(Debug)]
pub(crate) enum BarrierError {
    NotLeading,
    NoQuorum,
    Stopped(String),
}

fn why_stopped(fatal: &Fatal<u64>) -> String {
    match fatal {
        Fatal::StorageError(error) => error.to_string(),
        Fatal::Panicked => "it panicked".to_owned(),
        Fatal::Stopped => "it was stopped".to_owned(),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
