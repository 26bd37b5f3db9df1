//! Decides what runs where: [`View`] + now -> [`Plan`](longshore_model::Plan). The only room that decides anything.
//!
//! Owns: filters, ranking, strategies, addresses, explanations, moves that even the load.
//! Must not touch: clock, network, disk, store, randomness. All it knows came in as events.
//! Invariant: the same events give the same plan, and every replica is placed or explained.
//!
//! ```text
//! events ─▶ View ─▶ reconcile (which slots need a node?) ─▶ placement (which node?) ─▶ Plan
//!             │                                               │
//!             └── lanes: nodes kept in ranking order          ├── feasibility: one file a filter
//!                                                             └── explain: why not
//! ```

#![forbid(unsafe_code)]

mod address;
mod ask;
#[cfg(test)]
mod cases;
mod diff;
mod explain;
mod feasibility;
mod lanes;
mod placement;
mod ranking;
pub mod rebalance;
mod reconcile;
mod view;

pub use diff::diff;
pub use explain::{
    explain,
    placed::{Decision, Ranked, explain_placed},
};
pub use reconcile::{
    buckets::{Bucket, buckets},
    plan,
};
pub use view::{View, occupancy::occupies};
