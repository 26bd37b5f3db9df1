//! The node: runs what it is told to run, and says what became of it.
//!
//! Owns: drivers for containers and plain processes, health, pressure, and the truth about what runs on one machine.
//! Must not touch: placement. An agent never asks why it was given a replica, and never starts one again on its own:
//! which attempt runs is decided by the control plane.
//! Invariant: nothing is stopped because somebody is silent. A replica ends when its work says so, and whatever else is
//! on the machine is left alone.

mod agent;
mod backoff;
mod beat;
mod book;
mod config;
mod drivers;
mod files;
mod handle;
mod ledger;
mod link;
mod marks;
mod outbox;
mod pressure;
mod pulls;
mod replica;
mod runtime;
mod session;
pub mod shim;
mod sighting;
mod survey;
mod sweep;

pub use agent::{Agent, StartAgentError};
pub use config::{AgentConfig, DockerConfig, ExecConfig};
pub use handle::{AgentHandle, ReplicaUnknown};
pub use link::{ControlLink, FileContents, Heard, LinkError, RegistryLogin};
pub use runtime::RuntimeError;
pub use session::{
    ExecInput, ExecOutput, ExecRequest, ExecSession, Follow, LogLine, LogOptions, LogStream, Output, Terminal,
};
