//! The control plane's decisions: what only the leader does, and the work of each node.
//!
//! Owns: the leader's loop (scheduling passes, heartbeats, rebalancer), the failure detector, the membership of the Raft
//! group, the feed of work for each node, and the feed of the network state for each machine.
//! Must not touch: sockets and requests (`api`, `node_rpc`), and how a decision is made (the scheduler).
//! Invariant: one task does what only a leader does, and it has ended before another one is started.

pub(crate) mod failure_detector;
pub(crate) mod leader;
pub(crate) mod membership;
pub(crate) mod network_feed;
pub(crate) mod work_feed;
