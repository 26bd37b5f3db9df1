//! Where things are on this machine unless the user says otherwise.
//!
//! Owns: the daemon's folder, its socket, and the container engine's.
//! Invariant: whoever is not root needs no root for any of it.

use std::{
    env, fs, io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Args;
use longshore_model::NodeName;

/// Where a daemon of root keeps everything.
pub(crate) const SYSTEM: &str = "/var/lib/longshore";
/// The socket in a daemon's folder.
pub(crate) const SOCKET: &str = "longshore.sock";

/// The daemon's folder: the one that was said, else the usual one. Never relative: services are told of files in it, and
/// run elsewhere.
pub(crate) fn folder(said: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    absolute(&said.unwrap_or_else(data_dir))
}

/// The same for its socket.
pub(crate) fn socket_of(said: Option<PathBuf>, folder: &Path) -> anyhow::Result<PathBuf> {
    absolute(&said.unwrap_or_else(|| folder.join(SOCKET)))
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("`{}` cannot be found from here", path.display()))
}

/// Which node this machine is, and where it keeps everything.
#[derive(Debug, Args)]
pub(crate) struct Seat {
    /// Name of this node; the one its folder belongs to unless given, on a new folder the machine's.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Where the daemon keeps everything; `/var/lib/longshore` for root, else `longshore` in the user's data folder.
    #[arg(long, env = "LONGSHORE_DATA_DIR", value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
}

impl Seat {
    /// The folder, and the name: the one that was said, else the one the folder belongs to, else the machine's.
    pub(crate) fn taken(&self) -> anyhow::Result<(PathBuf, NodeName)> {
        let folder = folder(self.data_dir.clone())?;
        if let Some(name) = &self.node {
            return Ok((folder, name.trim().into()));
        }
        if let Some(resident) = longshore_server::resident(&folder)? {
            return Ok((folder, resident));
        }
        let name = fs::read_to_string("/proc/sys/kernel/hostname").context("this machine has no name; use --node")?;
        Ok((folder, name.trim().into()))
    }
}

/// The folder of a daemon that this user starts.
fn data_dir() -> PathBuf {
    if let Some(named) = env::var_os("LONGSHORE_DATA_DIR").filter(|named| !named.is_empty()) {
        return named.into();
    }
    if rustix::process::geteuid().is_root() { PathBuf::from(SYSTEM) } else { own_folder(|name| env::var_os(name)) }
}

/// The socket of the daemon that this user most likely means: the own one where there is one, else the system's.
pub(crate) fn socket() -> PathBuf {
    let own = data_dir().join(SOCKET);
    if own.exists() { own } else { PathBuf::from(SYSTEM).join(SOCKET) }
}

fn own_folder(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> PathBuf {
    let set = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")));
    data.unwrap_or_else(env::temp_dir).join("longshore")
}

/// Most nodes one machine is divided into; each keeps a folder, an agent and a heartbeat.
const MOST_NODES: i64 = 20;

/// How many nodes may be asked for.
pub(crate) fn node_count() -> impl clap::builder::TypedValueParser<Value = u16> {
    clap::value_parser!(u16).range(1..=MOST_NODES)
}

/// Names of the nodes that share a machine with the first.
pub(crate) fn nodes_beside(first: &NodeName, count: u16) -> Vec<NodeName> {
    (2..=count).map(|number| NodeName::from(format!("{first}-{number}").as_str())).collect()
}

/// What came of looking for a container engine.
#[derive(Debug)]
pub(crate) enum Engine {
    /// It answers here.
    At(PathBuf),
    /// There is a socket, and nobody to talk to.
    Mute(PathBuf, io::Error),
    /// There is none.
    None,
}

/// Looks for a container engine: where the user says, else where it usually is.
pub(crate) fn engine(said: Option<PathBuf>) -> Engine {
    let named = said.or_else(|| env::var("DOCKER_HOST").ok()?.strip_prefix("unix://").map(PathBuf::from));
    let usual = || {
        let of_user = env::var_os("XDG_RUNTIME_DIR").map(|folder| Path::new(&folder).join("docker.sock"));
        let of_desktop = env::var_os("HOME").map(|home| Path::new(&home).join(".docker/run/docker.sock"));
        [Some(PathBuf::from("/var/run/docker.sock")), of_user, of_desktop].into_iter().flatten().collect()
    };
    let named = named.map(|path| std::path::absolute(&path).unwrap_or(path));
    let candidates: Vec<PathBuf> = named.map_or_else(usual, |only| vec![only]);
    let mut mute = Engine::None;
    for path in candidates {
        match UnixStream::connect(&path) {
            Ok(_) => return Engine::At(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => mute = Engine::Mute(path, error),
        }
    }
    mute
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_folder_of_their_own() {
        let home = |name: &str| (name == "HOME").then(|| "/people/ann".into());
        assert_eq!(own_folder(home), Path::new("/people/ann/.local/share/longshore"));
        let both = |name: &str| Some(if name == "HOME" { "/people/ann".into() } else { "/data".into() });
        assert_eq!(own_folder(both), Path::new("/data/longshore"));
    }

    #[test]
    fn a_folder_is_the_same_from_everywhere() {
        let here = env::current_dir().unwrap();
        assert_eq!(folder(Some("data".into())).unwrap(), here.join("data"));
        assert_eq!(socket_of(None, Path::new("/data")).unwrap(), Path::new("/data/longshore.sock"));
        assert_eq!(socket_of(Some("s".into()), Path::new("/data")).unwrap(), here.join("s"));
    }

    #[test]
    fn a_socket_nobody_listens_at_is_told_from_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("docker.sock");
        assert!(matches!(engine(Some(path.clone())), Engine::None));
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(matches!(engine(Some(path.clone())), Engine::Mute(found, _) if found == path));
        let _listens = std::os::unix::net::UnixListener::bind(folder.path().join("up.sock")).unwrap();
        assert!(matches!(engine(Some(folder.path().join("up.sock"))), Engine::At(_)));
    }
}
