//! What the daemon measures about itself and about its nodes.
//!
//! Owns: counters and gauges, traces, their export to a collector, and the latest load of each node.
//! Must not touch: decisions; nothing here changes what the cluster does.
//! Invariant: measuring never blocks what is measured: what does not fit into a queue is dropped.

pub(crate) mod metrics;
pub(crate) mod node_conditions;
pub(crate) mod node_load;
pub(crate) mod telemetry;
