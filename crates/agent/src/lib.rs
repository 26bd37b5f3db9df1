//! The agent of a node: runs the work it is given and reports the state of every replica.
//!
//! Owns: drivers for containers and plain processes, health checks, pressure samples, and the observed state of one
//! machine.
//! Must not touch: placement. The agent never asks why it was given a replica, and never restarts one that ended by
//! itself: the control plane decides which attempt runs. What ended with the engine or the machine it starts again.
//! Invariant: nothing is stopped because the control plane or a driver does not answer. A replica is stopped only when
//! its work says so or a snapshot no longer lists it, and anything else on the machine is left alone.

mod agent;
mod agent_handle;
mod backoff;
mod config;
mod control_link;
mod created_markers;
mod desired_work;
mod devices;
mod disk;
mod driver_availability;
mod engine_query;
pub mod file_limit;
mod fingerprint;
mod heartbeat;
mod last_lines;
mod logs_exec;
mod orphan_gc;
mod outbox;
mod pressure;
mod pseudo_terminal;
mod pulls;
mod replica;
mod runtime;
mod secret_files;
pub mod shim;
mod status_report;
mod wakeups;
mod work_file;

pub use agent::{Agent, StartAgentError};
pub use agent_handle::{AgentHandle, ReplicaAccessError};
pub use config::{AgentConfig, DockerConfig, ExecConfig};
pub use control_link::{ControlLink, FileContents, LinkError, RegistryLogin, ReportAck};
pub use engine_query::{EngineAnswer, EngineQuery, VolumeRemoval};
pub use logs_exec::{
    ExecInput, ExecOutput, ExecRequest, ExecSession, LogLine, LogOptions, LogStream, Output, Terminal,
};
pub use runtime::RuntimeError;
