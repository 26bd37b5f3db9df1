//! The agent's interface to the control plane.
//!
//! Owns: the requests an agent makes. The daemon answers them over the network, tests within the process.
//! Invariant: a failed request is repeated and changes nothing on the node.

use std::{fmt, time::Duration};

use futures_util::future::BoxFuture;
use longshore_model::{Cursor, Report, WorkFeed, agent_protocol::FileRequest};
use tokio::sync::mpsc;

/// The control plane, as an agent reaches it.
pub trait ControlLink: Send + Sync + 'static {
    /// Opens the work feed; `known` is the agent's cursor. The first message is a snapshot. The channel closes when the
    /// connection ends, and the agent connects again.
    fn connect(&self, known: Option<Cursor>) -> BoxFuture<'_, Result<mpsc::Receiver<WorkFeed>, LinkError>>;

    /// Delivers reports in order. `Ok` means that all have arrived.
    fn report(&self, reports: Vec<Report>) -> BoxFuture<'_, Result<ReportAck, LinkError>>;

    /// The contents of a secret or config that a replica of this node uses.
    fn file(&self, request: FileRequest) -> BoxFuture<'_, Result<FileContents, LinkError>>;

    /// The cluster's credentials for the registry of that host name; `None` if it has none.
    fn registry_login(&self, registry: String) -> BoxFuture<'_, Result<Option<RegistryLogin>, LinkError>>;
}

/// The control plane's answer to reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportAck {
    /// Time between two heartbeats; `None` leaves the agent's own setting.
    pub heartbeat_interval: Option<Duration>,
    /// Time between two samples of pressure and usage; `None` leaves the agent's own setting.
    pub sample_interval: Option<Duration>,
}

/// Why a request to the control plane failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// No server answers. The agent tries again.
    #[error("the control plane does not answer: {0}")]
    Unreachable(String),
    /// The server refused the request.
    #[error("the control plane refuses: {0}")]
    Refused(String),
}

/// The contents of a secret or config.
#[derive(Clone, PartialEq, Eq)]
pub struct FileContents(pub Vec<u8>);

// Never prints the contents, because debug output ends up in errors and traces.
impl fmt::Debug for FileContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileContents({} bytes)", self.0.len())
    }
}

/// Credentials for a registry.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RegistryLogin {
    /// The user's name.
    pub username: String,
    /// Never printed.
    pub password: String,
}

impl fmt::Debug for RegistryLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegistryLogin({})", self.username)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_contains_no_secrets() {
        let login = RegistryLogin { username: "ann".to_owned(), password: "hunter2".to_owned() };
        let printed = format!("{login:?} {:?}", FileContents(b"hunter2".to_vec()));
        assert_eq!(printed, "RegistryLogin(ann) FileContents(7 bytes)");
    }
}
