//! Linearizable reads: one question to a quorum, shared by everybody who waits.
//!
//! Owns: the queue of readers and the barrier they share.
//! Invariant: a barrier is asked for after the last reader it serves had come, so each sees everything acknowledged
//! before it asked.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};

use super::{
    Member, ReadError,
    consensus::{BarrierError, Leads, Node},
    message,
};

/// How often readers without a leader look again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
pub(super) const QUEUE: usize = 8192;

pub(super) type Waiting = oneshot::Sender<Result<(), ReadError>>;

pub(super) struct Reader {
    pub(super) node: Arc<Node>,
    pub(super) queue: mpsc::Receiver<Waiting>,
    pub(super) patience: Duration,
}

impl Reader {
    /// Runs until nobody can read any more.
    pub(super) async fn run(mut self) {
        while let Some(first) = self.queue.recv().await {
            let mut waiting = vec![first];
            while let Ok(next) = self.queue.try_recv() {
                waiting.push(next);
            }
            let result = self.barrier().await;
            for waiting in waiting {
                // Whoever asked may have stopped waiting.
                let _ = waiting.send(result.clone());
            }
        }
    }

    async fn barrier(&self) -> Result<(), ReadError> {
        let deadline = Instant::now() + self.patience;
        loop {
            match self.try_barrier().await {
                Ok(index) => {
                    let applied = self.node.applied_to(index, self.patience).await;
                    return applied.map_err(|_| ReadError::QuorumLost);
                }
                Err(BarrierError::Stopped(why)) => return Err(ReadError::StorageFailed(why)),
                Err(BarrierError::NotLeading | BarrierError::NoQuorum) if Instant::now() >= deadline => {
                    return Err(ReadError::QuorumLost);
                }
                Err(BarrierError::NotLeading | BarrierError::NoQuorum) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }

    async fn try_barrier(&self) -> Result<u64, BarrierError> {
        let standing = self.node.standing();
        match (standing.leads, standing.leader) {
            (Leads::Stopped, _) => Err(BarrierError::Stopped(self.node.status().failure.unwrap_or_default())),
            (Leads::Yes { .. }, _) => self.node.barrier(self.patience).await,
            (Leads::No, None) => Err(BarrierError::NotLeading),
            (Leads::No, Some(leader)) => self.ask(&leader).await,
        }
    }

    /// The leader's word, or that of its successor: one that hangs is not waited for once another leads.
    async fn ask(&self, leader: &Member) -> Result<u64, BarrierError> {
        let answer = tokio::select! {
            answer = self.node.ask(leader, message::Request::Barrier, self.patience) => answer,
            () = self.node.led_by_another(leader.id) => return Err(BarrierError::NotLeading),
        };
        match answer {
            Ok(message::Response::Barrier(index)) => Ok(index),
            Ok(message::Response::NoQuorum) => Err(BarrierError::NoQuorum),
            Ok(message::Response::NotLeading(_) | message::Response::Answers(_)) | Err(_) => {
                Err(BarrierError::NotLeading)
            }
        }
    }
}
