//! Default paths of a daemon, and the options that override them.
//!
//! Owns: the data directory, the socket in it, and the name of this node.
//! Invariant: a user other than root needs no root for any of these paths.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use longshore_model::{NodeName, units::parse_bytes};
use longshore_server::OverlayMode;

/// Data directory of a daemon that root runs.
const SYSTEM_DATA_DIR: &str = "/var/lib/longshore";
/// Name of the socket in the data directory.
const SOCKET: &str = "longshore.sock";

/// The given data directory, else the default. Always absolute: replicas are given paths in it and have another working
/// directory.
pub(crate) fn data_dir(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    absolute(&given.unwrap_or_else(default_data_dir))
}

/// The given socket, else the one in the data directory; always absolute.
pub(crate) fn socket(given: Option<PathBuf>, data_dir: &Path) -> anyhow::Result<PathBuf> {
    absolute(&given.unwrap_or_else(|| data_dir.join(SOCKET)))
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("`{}` cannot be made absolute", path.display()))
}

/// Options of commands that work on this node's own data.
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// Name of this node. By default the name stored in the data directory, and for a new one the host name.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Data directory of the daemon. By default `/var/lib/longshore` for root, else `longshore` in the user's data
    /// directory.
    #[arg(long, env = "LONGSHORE_DATA_DIR", value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
}

/// Whether this machine takes part in the overlay.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OverlayArgs {
    /// Whether replicas get addresses in the cluster's overlay network: `auto` if root, `nft` and the kernel allow it, or
    /// `off`.
    #[arg(long, env = "LONGSHORE_OVERLAY", value_name = "MODE", default_value = "off")]
    overlay_network: OverlayChoice,
}

/// The words of `--overlay-network`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OverlayChoice {
    /// If this machine can.
    Auto,
    /// No.
    Off,
}

impl OverlayArgs {
    pub(crate) fn mode(self) -> OverlayMode {
        match self.overlay_network {
            OverlayChoice::Auto => OverlayMode::Auto,
            OverlayChoice::Off => OverlayMode::Off,
        }
    }

    /// The same choice for a daemon that is started as a process of its own.
    pub(crate) fn arguments(self) -> [&'static str; 2] {
        let mode = match self.overlay_network {
            OverlayChoice::Auto => "auto",
            OverlayChoice::Off => "off",
        };
        ["--overlay-network", mode]
    }
}

/// A node of this machine and its data directory.
pub(crate) struct LocalNode {
    pub(crate) name: NodeName,
    pub(crate) data_dir: PathBuf,
}

impl NodeArgs {
    /// Takes the given name, else the one stored in the data directory, else the host name.
    pub(crate) fn resolve(&self) -> anyhow::Result<LocalNode> {
        let data_dir = data_dir(self.data_dir.clone())?;
        if let Some(name) = &self.node {
            return Ok(LocalNode { name: name.trim().into(), data_dir });
        }
        if let Some(name) = longshore_server::folder_owner(&data_dir)? {
            return Ok(LocalNode { name, data_dir });
        }
        let host = fs::read_to_string("/proc/sys/kernel/hostname");
        let host = host.context("the host name cannot be read; name the node with --node")?;
        Ok(LocalNode { name: host.trim().into(), data_dir })
    }
}

fn default_data_dir() -> PathBuf {
    if let Some(named) = env::var_os("LONGSHORE_DATA_DIR").filter(|named| !named.is_empty()) {
        return named.into();
    }
    if rustix::process::geteuid().is_root() {
        PathBuf::from(SYSTEM_DATA_DIR)
    } else {
        user_data_dir(|name| env::var_os(name))
    }
}

/// The socket of this user's daemon if it exists, else the one of root's daemon.
pub(crate) fn default_socket() -> PathBuf {
    let own = default_data_dir().join(SOCKET);
    if own.exists() { own } else { PathBuf::from(SYSTEM_DATA_DIR).join(SOCKET) }
}

fn user_data_dir(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> PathBuf {
    let set = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")));
    data.unwrap_or_else(env::temp_dir).join("longshore")
}

/// Most nodes on one machine; each has a folder, an agent and a heartbeat.
const MAX_NODES: i64 = 20;

/// Parses `--nodes`.
pub(crate) fn node_count() -> impl clap::builder::TypedValueParser<Value = u16> {
    clap::value_parser!(u16).range(1..=MAX_NODES)
}

/// Parses `--disk`.
pub(crate) fn disk_size(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|error| error.to_string())
}

/// Names of the second and further nodes of `--nodes`: `NAME-2` and so on.
pub(crate) fn extra_nodes(first: &NodeName, count: u16) -> Vec<NodeName> {
    (2..=count).map(|number| NodeName::from(format!("{first}-{number}").as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_data_directory_of_their_own() {
        let home = |name: &str| (name == "HOME").then(|| "/people/ann".into());
        assert_eq!(user_data_dir(home), Path::new("/people/ann/.local/share/longshore"));
        let both = |name: &str| Some(if name == "HOME" { "/people/ann".into() } else { "/data".into() });
        assert_eq!(user_data_dir(both), Path::new("/data/longshore"));
    }

    #[test]
    fn paths_are_absolute() {
        let here = env::current_dir().unwrap();
        assert_eq!(data_dir(Some("data".into())).unwrap(), here.join("data"));
        assert_eq!(socket(None, Path::new("/data")).unwrap(), Path::new("/data/longshore.sock"));
        assert_eq!(socket(Some("s".into()), Path::new("/data")).unwrap(), here.join("s"));
    }
}
