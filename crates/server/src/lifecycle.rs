//! Lifecycle of a daemon: bootstrap, join, start, stop, removal, disaster recovery.
//!
//! Owns: the data folder and its files, the order of start and stop, the agents of this process, and
//! [`node_context::NodeContext`], which every other part of the daemon shares.
//! Must not touch: decisions (`control`) and requests (`api`, `node_rpc`).
//! Invariant: stopping the daemon stops nothing that runs on the node.

pub(crate) mod address_choice;
pub(crate) mod bootstrap;
pub(crate) mod daemon;
pub(crate) mod data_folder;
pub(crate) mod disaster_recovery;
pub(crate) mod host_overlay;
pub(crate) mod join;
pub(crate) mod local_agents;
pub(crate) mod node_context;
pub(crate) mod node_record;
pub(crate) mod node_removal;
pub(crate) mod published_ports;
pub(crate) mod surplus_nodes;
