//! The daemon: one process that is a member of the control plane, a node, and the API server.
//!
//! ```text
//!  clients ─▶ api ─▶ store ─▶ changes ─▶ control::leader (one task: view, passes, heartbeats, rebalancer) ─▶ store
//!                        │
//!                        └─▶ changes ─▶ work feed ─▶ agent of this node ─▶ status reports, heartbeats ─▶ store, leader
//! ```
//!
//! Owns: which loop runs when, the public API, and who may use it.
//! Must not touch: decisions (the scheduler's), what a command means (the store's), how work is done (the agent's).
//! Invariant: what only a leader does is done by one task that ends before another begins; what runs on the node
//! outlives the daemon.

mod api;
mod clock;
mod control;
mod dry_run;
mod lifecycle;
mod node_rpc;
mod observability;
mod security;

pub use lifecycle::{
    address_choice::{HostRoute, PoolClash},
    bootstrap::init,
    daemon::{Daemon, ServerConfig, StartError},
    data_folder::{FolderError, folder_owner},
    disaster_recovery::{DisasterRecoveryError, RecoveredCluster, recover, restore},
    join::{JoinConfig, JoinError, Joined, join},
    local_agents::surplus_nodes,
};
pub use longshore_network::OverlayMode;
/// Enters the dataplane process; `ServerConfig::dataplane` names the command that does.
pub use longshore_network::dataplane::main as dataplane_main;
