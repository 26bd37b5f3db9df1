//! Linearizable reads: one barrier request to a quorum, shared by all waiting readers.
//!
//! Owns: the queue of readers and the barrier they share.
//! Invariant: a barrier is requested after the last reader it serves arrived, so each reader sees everything
//! acknowledged before its call.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};

use super::{
    Member, ReadError,
    consensus::{BarrierError, RaftNode, RaftRole},
    leader_request,
};

/// How often readers look for a leader while there is none.
const LEADER_POLL_INTERVAL: Duration = Duration::from_millis(20);
pub(super) const QUEUE_CAPACITY: usize = 8192;

pub(super) type ReadWaiter = oneshot::Sender<Result<(), ReadError>>;

pub(super) struct Reader {
    pub(super) node: Arc<RaftNode>,
    pub(super) queue: mpsc::Receiver<ReadWaiter>,
    pub(super) timeout: Duration,
}

impl Reader {
    /// Runs until the member is dropped.
    pub(super) async fn run(mut self) {
        while let Some(first) = self.queue.recv().await {
            let mut waiting = vec![first];
            while let Ok(next) = self.queue.try_recv() {
                waiting.push(next);
            }
            let result = self.barrier().await;
            for waiting in waiting {
                // The reader may have stopped waiting.
                let _ = waiting.send(result.clone());
            }
        }
    }

    async fn barrier(&self) -> Result<(), ReadError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            match self.try_barrier().await {
                Ok(index) => {
                    let applied = self.node.applied_to(index, self.timeout).await;
                    return applied.map_err(|_| ReadError::QuorumLost);
                }
                Err(BarrierError::Stopped(why)) => return Err(ReadError::StorageFailed(why)),
                Err(BarrierError::NotLeading | BarrierError::NoQuorum) if Instant::now() >= deadline => {
                    return Err(ReadError::QuorumLost);
                }
                Err(BarrierError::NotLeading | BarrierError::NoQuorum) => {
                    tokio::time::sleep(LEADER_POLL_INTERVAL).await;
                }
            }
        }
    }

    async fn try_barrier(&self) -> Result<u64, BarrierError> {
        let status = self.node.raft_status();
        match (status.role, status.leader) {
            (RaftRole::Stopped, _) => Err(BarrierError::Stopped(self.node.status().failure.unwrap_or_default())),
            (RaftRole::Leader { .. }, _) => self.node.barrier(self.timeout).await,
            (RaftRole::NotLeader, None) => Err(BarrierError::NotLeading),
            (RaftRole::NotLeader, Some(leader)) => self.ask(&leader).await,
        }
    }

    /// Asks the leader for a barrier. Gives up as soon as another leader is known, so that a hanging leader blocks
    /// nobody.
    async fn ask(&self, leader: &Member) -> Result<u64, BarrierError> {
        let answer = tokio::select! {
            answer = self.node.ask(leader, leader_request::Request::Barrier, self.timeout) => answer,
            () = self.node.leader_changed_from(leader.id) => return Err(BarrierError::NotLeading),
        };
        match answer {
            Ok(leader_request::Response::Barrier(index)) => Ok(index),
            Ok(leader_request::Response::NoQuorum) => Err(BarrierError::NoQuorum),
            Ok(leader_request::Response::NotLeading(_) | leader_request::Response::Answers(_)) | Err(_) => {
                Err(BarrierError::NotLeading)
            }
        }
    }
}
