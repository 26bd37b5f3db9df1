//! Publishes who leads, for the loops that only a leader runs, and triggers snapshots.
//!
//! Owns: when a member may act as leader, and when it no longer may.
//! Invariant: `Leading` is published only after a quorum confirmed it and every earlier committed entry is applied
//! here. A leader without a quorum for an election timeout stops leading before another one can start.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{
    Leadership, LeadershipRole, ReplicatedConfig,
    consensus::{RaftNode, RaftRole},
};

const TICK: Duration = Duration::from_millis(100);

pub(super) struct LeadershipMonitor {
    pub(super) node: Arc<RaftNode>,
    pub(super) published: watch::Sender<Leadership>,
    pub(super) config: ReplicatedConfig,
    /// Bytes appended to the log when the last snapshot was triggered.
    pub(super) bytes_at_snapshot: u64,
    pub(super) snapshot_asked_at: u64,
}

impl LeadershipMonitor {
    /// Runs until the member stops.
    pub(super) async fn run(mut self) {
        loop {
            let changed = tokio::time::timeout(TICK, self.node.changed());
            let _ = changed.await;
            if self.update().await.is_break() {
                return;
            }
            self.snapshot_if_due().await;
        }
    }

    async fn update(&self) -> ControlFlow<()> {
        let status = self.node.raft_status();
        let (term, leader) = (status.term, status.leader);
        let was = self.published.borrow().clone();
        let role = match status.role {
            RaftRole::Stopped => {
                self.publish(Leadership { term, leader: None, role: LeadershipRole::Stopped });
                return ControlFlow::Break(());
            }
            RaftRole::NotLeader => LeadershipRole::Following,
            RaftRole::Leader { since_quorum }
                if since_quorum.is_some_and(|since| since >= self.config.election.start) =>
            {
                LeadershipRole::Following
            }
            RaftRole::Leader { .. } if was.role == LeadershipRole::Leading && was.term == term => {
                LeadershipRole::Leading
            }
            RaftRole::Leader { .. } => self.confirm().await,
        };
        self.publish(Leadership { term, leader, role });
        ControlFlow::Continue(())
    }

    async fn confirm(&self) -> LeadershipRole {
        let timeout = self.config.election.end;
        let Ok(index) = self.node.barrier(timeout).await else {
            return LeadershipRole::Following;
        };
        match self.node.applied_to(index, timeout).await {
            Ok(()) => LeadershipRole::Leading,
            Err(_) => LeadershipRole::Following,
        }
    }

    fn publish(&self, leadership: Leadership) {
        self.published.send_if_modified(|published| {
            let differs = *published != leadership;
            *published = leadership;
            differs
        });
    }

    async fn snapshot_if_due(&mut self) {
        let status = self.node.status();
        let bytes = self.node.appended_bytes();
        let since = self.snapshot_asked_at.max(status.snapshot_entry);
        let entries = status.applied_entry.saturating_sub(since);
        let due = entries >= self.config.snapshot_after_entries
            || (entries > 0 && bytes - self.bytes_at_snapshot >= self.config.snapshot_after_bytes);
        if due && self.node.take_snapshot().await.is_ok() {
            self.bytes_at_snapshot = bytes;
            self.snapshot_asked_at = status.applied_entry;
        }
    }
}
