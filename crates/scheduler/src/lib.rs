//! Decides what runs where: [`View`] + now -> [`Plan`](longshore_model::Plan). No other crate makes decisions.
//!
//! Owns: filters, ranking, strategies, addresses, explanations, rebalancing moves.
//! Must not touch: clock, network, disk, store, randomness. All input arrives as events.
//! Invariant: the same events give the same plan, and every replica is placed or explained.
//!
//! ```text
//! events ─▶ View ─▶ reconcile (which slots need a node?) ─▶ placement (which node?) ─▶ Plan
//!             │                                               │
//!             └── node_index: nodes kept in ranking order     ├── feasibility: one file a filter
//!                                                             └── explain: why not
//! ```

#![forbid(unsafe_code)]

mod address;
mod binpack_score;
mod diff;
mod explain;
mod feasibility;
mod node_index;
mod placement;
#[cfg(test)]
mod proptest_config;
pub mod rebalance;
mod reconcile;
mod request;
mod view;

pub use diff::diff;
pub use explain::{
    explain,
    placed::{Decision, RankedNode, explain_placed},
};
pub use reconcile::{
    buckets::{Bucket, buckets},
    plan,
    restart::returns_at,
};
pub use view::{View, occupancy::occupies};
