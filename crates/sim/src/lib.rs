//! The real scheduler and the real state machine under a virtual clock with virtual nodes.
//!
//! Owns: scenario files, the virtual cluster, the rules that must never be broken, and the benchmark.
//! Must not touch: the real clock (save to measure deciding), network, disk. Reading files is the caller's business.
//! Invariant: the same scenario gives the same report, byte for byte, `decide_us` aside.

pub mod bench;
pub mod chronicle;
mod engine;
pub mod fuzz;
mod invariants;
mod machine;
mod queue;
pub mod report;
pub mod scenario;
pub mod why;

pub use engine::{run, run_and_ask, run_with_new_leaders};
pub use invariants::Violation;
pub use report::Report;
pub use scenario::Scenario;
