//! The real scheduler and the real state machine under a virtual clock with virtual nodes.
//!
//! Owns: scenario files, the virtual cluster, the safety invariants, and the benchmark.
//! Must not touch: the real clock (except to measure decision time), network, disk. The caller reads the files.
//! Invariant: the same scenario gives the same report, byte for byte, `decide_us` aside.

pub mod bench;
mod engine;
pub mod fuzz;
mod invariants;
mod queue;
pub mod report;
pub mod scenario;
pub mod timeline_log;
mod virtual_node;
pub mod why;

pub use engine::{run, run_and_explain, run_with_new_leaders};
pub use invariants::Violation;
pub use report::Report;
pub use scenario::Scenario;
