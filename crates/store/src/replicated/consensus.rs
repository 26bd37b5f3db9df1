//! The adapter to openraft.
//!
//! Owns: every use of openraft's types, and the conversion between them and this crate's types.
//! Must not touch: what is committed. No other module knows which library is used.
//! Invariant: nothing public here names an openraft type.

mod log_store;
mod network;
#[cfg(test)]
mod openraft_suite;
mod raft_node;
mod state_machine_store;

pub(crate) use log_store::LogStore;
pub(crate) use raft_node::{BarrierError, RaftNode, RaftNodeConfig, RaftRole, WriteError};
pub(crate) use state_machine_store::StateMachineHandle;

use openraft::{CommittedLeaderId, EntryPayload, LeaderId, LogId, Membership, StoredMembership, Vote};

use super::{
    Applied, Member,
    record::{Body, EntryRecord, MembersRecord, Payload, Position, VoteRecord, VoteState},
};

openraft::declare_raft_types!(
    pub(crate) Types:
        D = Payload,
        R = Vec<Applied>,
        NodeId = u64,
        Node = Member,
        SnapshotData = state_machine_store::SnapshotFile,
);

type Raft = openraft::Raft<Types>;
type Entry = openraft::Entry<Types>;
type StorageError = openraft::StorageError<u64>;

impl From<LogId<u64>> for Position {
    fn from(id: LogId<u64>) -> Self {
        Self { term: id.leader_id.term, leader: id.leader_id.node_id, index: id.index }
    }
}

impl From<Position> for LogId<u64> {
    fn from(at: Position) -> Self {
        Self::new(CommittedLeaderId::new(at.term, at.leader), at.index)
    }
}

impl From<&Vote<u64>> for VoteRecord {
    fn from(vote: &Vote<u64>) -> Self {
        let state = if vote.committed { VoteState::Granted } else { VoteState::Requested };
        Self { term: vote.leader_id.term, candidate: vote.leader_id.node_id, state }
    }
}

impl From<VoteRecord> for Vote<u64> {
    fn from(vote: VoteRecord) -> Self {
        let committed = match vote.state {
            VoteState::Granted => true,
            VoteState::Requested => false,
        };
        Self { leader_id: LeaderId::new(vote.term, vote.candidate), committed }
    }
}

impl From<&Membership<u64, Member>> for MembersRecord {
    fn from(membership: &Membership<u64, Member>) -> Self {
        Self {
            voters: membership.get_joint_config().clone(),
            members: membership.nodes().map(|(id, member)| (*id, member.clone())).collect(),
        }
    }
}

impl From<MembersRecord> for Membership<u64, Member> {
    fn from(record: MembersRecord) -> Self {
        Self::new(record.voters, record.members)
    }
}

fn stored(at: Option<Position>, members: MembersRecord) -> StoredMembership<u64, Member> {
    StoredMembership::new(at.map(LogId::from), members.into())
}

fn to_record(entry: Entry) -> EntryRecord {
    let body = match entry.payload {
        EntryPayload::Blank => Body::Blank,
        EntryPayload::Normal(payload) => Body::Batch(payload),
        EntryPayload::Membership(membership) => Body::Members(MembersRecord::from(&membership)),
    };
    EntryRecord { at: entry.log_id.into(), body }
}

fn to_entry(record: &EntryRecord) -> Entry {
    let payload = match &record.body {
        Body::Blank => EntryPayload::Blank,
        Body::Batch(payload) => EntryPayload::Normal(payload.clone()),
        Body::Members(members) => EntryPayload::Membership(members.clone().into()),
    };
    Entry { log_id: record.at.into(), payload }
}
