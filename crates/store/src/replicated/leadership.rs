//! Who leads, published for the loops that only a leader runs; and when a snapshot is due.
//!
//! Owns: the moment a member may act as leader, and the moment it no longer may.
//! Invariant: `Leading` is published only after a quorum confirmed it and everything decided before is applied here. A
//! leader that has not heard a quorum for an election's time stops leading before another can begin.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{
    Leadership, Part, ReplicatedConfig,
    consensus::{Leads, Node},
};

const TICK: Duration = Duration::from_millis(100);

pub(super) struct Keeper {
    pub(super) node: Arc<Node>,
    pub(super) published: watch::Sender<Leadership>,
    pub(super) config: ReplicatedConfig,
    /// Bytes the log had when the last snapshot was asked for.
    pub(super) bytes_at_snapshot: u64,
    pub(super) snapshot_asked_at: u64,
}

impl Keeper {
    /// Runs until the member stops.
    pub(super) async fn run(mut self) {
        loop {
            let changed = tokio::time::timeout(TICK, self.node.changed());
            let _ = changed.await;
            if self.look().await.is_break() {
                return;
            }
            self.snapshot_if_due().await;
        }
    }

    async fn look(&self) -> ControlFlow<()> {
        let standing = self.node.standing();
        let (term, leader) = (standing.term, standing.leader);
        let was = self.published.borrow().clone();
        let part = match standing.leads {
            Leads::Stopped => {
                self.publish(Leadership { term, leader: None, part: Part::Stopped });
                return ControlFlow::Break(());
            }
            Leads::No => Part::Following,
            Leads::Yes { since_quorum } if since_quorum.is_some_and(|since| since >= self.config.election.start) => {
                Part::Following
            }
            Leads::Yes { .. } if was.part == Part::Leading && was.term == term => Part::Leading,
            Leads::Yes { .. } => self.confirm().await,
        };
        self.publish(Leadership { term, leader, part });
        ControlFlow::Continue(())
    }

    async fn confirm(&self) -> Part {
        let patience = self.config.election.end;
        let Ok(index) = self.node.barrier(patience).await else {
            return Part::Following;
        };
        match self.node.applied_to(index, patience).await {
            Ok(()) => Part::Leading,
            Err(_) => Part::Following,
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
