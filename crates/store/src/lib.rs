//! The state machine: commands in, state and events out.
//!
//! Owns: what is true of the cluster, and how one command changes it.
//! Must not touch: clocks, threads, disk, and every decision: a plan is carried out or dropped, never improved.
//! Invariant: the same commands in the same order give the same state and the same events.

mod access;
mod apply;
pub mod audit;
mod commit;
mod conflicts;
mod deployments;
mod drains;
mod error;
mod finished;
mod moves;
mod nodes;
mod observe;
mod quota;
pub mod recheck;
mod replay;
#[cfg(feature = "replicated")]
pub mod replicated;
mod reschedules;
mod rollouts;
mod shelf;
mod state;
mod status;

pub use access::Access;
pub use error::CommandError;
pub use quota::{Desired, Share};
pub use state::{Deployment, Group, Revision, State};
pub use status::{Awaited, StatusReport, is_live};

#[cfg(test)]
mod stories;
