//! The replicated state machine: it applies commands to the state and returns the events that describe each change.
//!
//! Owns: the cluster state, and how each command changes it.
//! Must not touch: clocks, threads, disk, or any decision. A plan is applied or dropped, never improved.
//! Invariant: the same commands in the same order give the same state and the same events.

mod access;
mod address_numbers;
mod apply;
pub mod audit;
mod conflicts;
mod cow_map;
mod deployments;
mod drains;
mod ended_replicas;
mod error;
mod nodes;
mod number_pool;
mod observations;
pub mod plan_check;
mod plan_commit;
mod quota;
mod rebalance;
#[cfg(feature = "replicated")]
pub mod replicated;
mod reschedules;
mod rollouts;
mod state;
mod state_events;
mod status;
mod stops;
mod volumes;

pub use access::Access;
pub use ended_replicas::has_ended;
pub use error::CommandError;
pub use quota::{NamespaceUsage, ResourceTotals};
pub use state::{Deployment, Group, Revision, State};
pub use status::{AwaitedReplica, StatusReport, is_live};

#[cfg(test)]
mod tests;
