//! Finding the container engine of this machine.
//!
//! Owns: the order in which sockets are tried, now by a command and later by the agent. Must not touch: what is done with the engine.

use std::{
    env, io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

/// Result of looking for a container engine.
#[derive(Debug)]
pub(crate) enum Engine {
    /// It accepts connections at this socket.
    Found(PathBuf),
    /// The socket exists and cannot be connected to.
    Unreachable(PathBuf, io::Error),
    /// No socket exists.
    Missing,
}

/// Where an engine may be: the given socket, else the one of `DOCKER_HOST`, else the usual places of Docker.
pub(crate) fn candidates(socket: Option<PathBuf>) -> Vec<PathBuf> {
    let named = socket.or_else(|| env::var("DOCKER_HOST").ok()?.strip_prefix("unix://").map(PathBuf::from));
    let usual = || {
        let rootless = env::var_os("XDG_RUNTIME_DIR").map(|folder| Path::new(&folder).join("docker.sock"));
        let desktop = env::var_os("HOME").map(|home| Path::new(&home).join(".docker/run/docker.sock"));
        [Some(PathBuf::from("/var/run/docker.sock")), rootless, desktop].into_iter().flatten().collect()
    };
    let named = named.map(|path| std::path::absolute(&path).unwrap_or(path));
    named.map_or_else(usual, |only| vec![only])
}

/// Tries every candidate.
pub(crate) fn find(socket: Option<PathBuf>) -> Engine {
    let mut result = Engine::Missing;
    for path in candidates(socket) {
        match UnixStream::connect(&path) {
            Ok(_) => return Engine::Found(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => result = Engine::Unreachable(path, error),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_without_a_listener_is_unreachable_and_not_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("docker.sock");
        assert!(matches!(find(Some(path.clone())), Engine::Missing));
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(matches!(find(Some(path.clone())), Engine::Unreachable(found, _) if found == path));
        let _listener = std::os::unix::net::UnixListener::bind(folder.path().join("up.sock")).unwrap();
        assert!(matches!(find(Some(folder.path().join("up.sock"))), Engine::Found(_)));
    }
}
