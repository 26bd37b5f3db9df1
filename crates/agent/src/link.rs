//! How an agent and its control plane reach each other, as seen from the agent.
//!
//! Owns: the questions an agent has. Tests answer them in process; the daemon answers them over the network.
//! Invariant: a link that fails is tried again and changes nothing on the node.

use std::{fmt, time::Duration};

use futures_util::future::BoxFuture;
use longshore_model::{Cursor, Report, WorkFeed, work::FileWanted};
use tokio::sync::mpsc;

/// The control plane, from where an agent stands.
pub trait ControlLink: Send + Sync + 'static {
    /// Opens the feed of work. The first message is a snapshot; the end of the channel is the end of the connection, and
    /// the agent connects again.
    fn connect(&self, known: Option<Cursor>) -> BoxFuture<'_, Result<mpsc::Receiver<WorkFeed>, LinkError>>;

    /// Hands reports over, in order. `Ok` means they arrived.
    fn report(&self, reports: Vec<Report>) -> BoxFuture<'_, Result<Heard, LinkError>>;

    /// The contents of a secret or config that a replica of this node needs.
    fn file(&self, wanted: FileWanted) -> BoxFuture<'_, Result<FileContents, LinkError>>;

    /// How to log in to the registry of that host name, where the cluster knows.
    fn registry_login(&self, registry: String) -> BoxFuture<'_, Result<Option<RegistryLogin>, LinkError>>;
}

/// What whoever heard reports has to say in return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Time until the next heartbeat, where it shall be another than the agent was told when it was started.
    pub beat_every: Option<Duration>,
    /// The same for samples of the machine and of what runs on it.
    pub sample_every: Option<Duration>,
}

/// Why a question got no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Nobody answers; asked again later.
    #[error("the control plane does not answer: {0}")]
    Away(String),
    /// The answer was no.
    #[error("the control plane refuses: {0}")]
    Refused(String),
}

/// What is in a secret or config.
#[derive(Clone, PartialEq, Eq)]
pub struct FileContents(pub Vec<u8>);

// Never the contents: this type ends up in errors and traces.
impl fmt::Debug for FileContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileContents({} bytes)", self.0.len())
    }
}

/// Name and password for a registry.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RegistryLogin {
    /// Who asks.
    pub username: String,
    /// The proof.
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
    fn nothing_secret_is_printed() {
        let login = RegistryLogin { username: "ann".to_owned(), password: "hunter2".to_owned() };
        let shown = format!("{login:?} {:?}", FileContents(b"hunter2".to_vec()));
        assert_eq!(shown, "RegistryLogin(ann) FileContents(7 bytes)");
    }
}
