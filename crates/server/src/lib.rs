//! The daemon: one process that is a member of the control plane, a node, and the way in for everybody.
//!
//! ```text
//!  clients ─▶ http ─▶ store ─▶ changes ─▶ leader (one task: view, passes, heartbeats, rebalancer) ─▶ store
//!                        │
//!                        └─▶ changes ─▶ feed ─▶ agent of this node ─▶ sightings, heartbeats ─▶ store, leader
//! ```
//!
//! Owns: which loop runs when, the public API, and who may use it.
//! Must not touch: decisions (the scheduler's), what a command means (the store's), how work is done (the agent's).
//! Invariant: what only a leader does is done by one task that ends before another begins; what runs on the node outlives
//! the daemon.

mod agents;
mod beginning_again;
mod beside;
mod clock;
mod daemon;
mod doors;
mod expulsion;
mod feed;
mod figures;
mod folder;
mod forecast;
mod foresee;
mod founding;
mod http;
mod hub;
mod identity;
mod interleave;
mod joining;
mod keys;
mod leader;
mod limit;
mod link;
mod loads;
mod monitor;
mod names;
mod peer;
mod place;
mod reception;
mod rows;
mod telemetry;
mod tls;
mod vault;
mod voters;

pub use beginning_again::{BeginError, BegunAgain, recover, restore};
pub use daemon::{Daemon, ServerConfig, StartError};
pub use folder::{FolderError, resident};
pub use founding::init;
pub use joining::{JoinConfig, JoinError, Joined, join};
