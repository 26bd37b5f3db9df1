//! What the daemon and the dataplane process say to each other: a JSON value per line over a unix socket.
//!
//! Owns: the messages, where the socket is, and which binary a process runs.
//! Invariant: messages are only added, and fields have defaults, because daemon and process may be of different versions.

use std::{
    fs, io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
};

use longshore_model::node::NodeCondition;
use rustix::fs::{Mode, OFlags, open};
use serde::{Deserialize, Serialize};

use crate::{NetworkFeed, NetworkState, ServiceTraffic, mesh::MeshReport};

/// The socket in the data folder.
const SOCKET: &str = "dataplane.sock";
/// The longest path that every kernel takes for a socket.
const LONGEST_PATH: usize = 100;

/// From the daemon.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// All that is known; sent first.
    State(NetworkState),
    /// A change.
    Feed(NetworkFeed),
    /// Close all ports, let connections end for a while, and end.
    Stop,
    /// Pass every socket over this connection, let connections end, and end.
    HandOver,
}

/// From the process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Event {
    /// The first message.
    Hello(Hello),
    Report(DataplaneReport),
}

/// Which process answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) pid: u32,
    /// The binary it runs.
    pub(super) binary: BinaryId,
}

/// What the dataplane of a machine tells its daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataplaneReport {
    /// What is wrong.
    #[serde(default)]
    pub conditions: Vec<NodeCondition>,
    /// Counters per service.
    #[serde(default)]
    pub traffic: Vec<ServiceTraffic>,
    /// The mesh, once this machine has the overlay.
    #[serde(default)]
    pub mesh: Option<MeshReport>,
}

/// Identifies the file a process was started from: an upgrade puts another file in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BinaryId {
    device: u64,
    inode: u64,
    bytes: u64,
    modified_secs: i64,
    modified_nanos: i64,
}

impl BinaryId {
    /// Of this process.
    pub(super) fn own() -> Self {
        fs::metadata("/proc/self/exe").map_or_else(
            |_| Self::default(),
            |file| Self {
                device: file.dev(),
                inode: file.ino(),
                bytes: file.len(),
                modified_secs: file.mtime(),
                modified_nanos: file.mtime_nsec(),
            },
        )
    }
}

/// The path of the control socket. A folder with a long name is entered through a descriptor, as the kernel limits the
/// length of a socket's path.
pub(super) struct ControlPath {
    pub(super) path: PathBuf,
    _folder: Option<OwnedFd>,
}

impl ControlPath {
    pub(super) fn of(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join(SOCKET);
        if path.as_os_str().len() <= LONGEST_PATH {
            return Ok(Self { path, _folder: None });
        }
        let folder = open(data_dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()));
        Ok(Self { path, _folder: Some(folder) })
    }
}
