//! The port at which `up` serves browsers: the same one at every start, so that a bookmark stays good.
//!
//! Owns: the file that remembers it. Must not touch: a port that was asked for.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::Path,
};

/// Name of the file in the data directory.
const FILE: &str = "http-port";

/// The address to listen at: the one asked for or, where any port will do, the port of the last time if it is free.
pub(super) fn preferred(asked: SocketAddr, data_dir: &Path) -> SocketAddr {
    if asked.port() != 0 {
        return asked;
    }
    let last = fs::read_to_string(data_dir.join(FILE)).ok().and_then(|text| text.trim().parse::<u16>().ok());
    let candidates = last.into_iter().chain([0]).map(|port| SocketAddr::new(asked.ip(), port));
    // The port is free for the daemon once the listener is dropped.
    let free = |address: SocketAddr| TcpListener::bind(address).and_then(|listener| listener.local_addr()).ok();
    candidates.into_iter().find_map(free).unwrap_or(asked)
}

/// Remembers the address for the next start. A folder that cannot be written costs no more than another port then.
pub(super) fn remember(used: SocketAddr, data_dir: &Path) {
    drop(fs::write(data_dir.join(FILE), format!("{}\n", used.port())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_the_last_time_is_used_again_unless_it_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let first = preferred(any, folder.path());
        assert_ne!(first.port(), 0);
        remember(first, folder.path());
        assert_eq!(preferred(any, folder.path()), first);
        let taken = TcpListener::bind(first).unwrap();
        assert_ne!(preferred(any, folder.path()), first);
        drop(taken);
        let asked = SocketAddr::from(([127, 0, 0, 1], 7475));
        assert_eq!(preferred(asked, folder.path()), asked, "what was asked for is used as it is");
    }
}
