//! The name servers that this machine itself asks.
//!
//! Owns: reading them, following changes, and leaving out those that would ask us again.
//! Invariant: an address this server listens at is never an upstream.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

/// The stub of systemd-resolved. It answers names of its own machine, which mean nothing elsewhere, so its upstreams are
/// asked instead.
const STUB: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 53));
/// A file is looked at again at most this often.
const RECHECK: Duration = Duration::from_secs(1);

/// Where name servers are configured.
#[derive(Clone, Debug)]
pub(super) struct ResolverFiles {
    /// The machine's own configuration.
    pub(super) resolv_conf: PathBuf,
    /// The upstreams of systemd-resolved.
    pub(super) resolved: PathBuf,
}

impl Default for ResolverFiles {
    fn default() -> Self {
        Self { resolv_conf: "/etc/resolv.conf".into(), resolved: "/run/systemd/resolve/resolv.conf".into() }
    }
}

/// The upstreams, read again when a file changes.
#[derive(Debug)]
pub(super) struct Upstreams {
    files: ResolverFiles,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    checked: Option<Instant>,
    versions: [Option<(SystemTime, u64)>; 2],
    servers: Vec<IpAddr>,
}

impl Upstreams {
    pub(super) fn new(files: ResolverFiles) -> Self {
        Self { files, known: Mutex::default() }
    }

    /// The servers to ask for a foreign name, those of the service first if it names any. `own` are addresses that this
    /// server listens at.
    pub(super) fn servers(&self, of_service: &[IpAddr], own: &BTreeSet<IpAddr>) -> Vec<IpAddr> {
        let servers = if of_service.is_empty() { self.of_machine() } else { of_service.to_vec() };
        servers.into_iter().filter(|server| !own.contains(server)).collect()
    }

    fn of_machine(&self) -> Vec<IpAddr> {
        let mut known = self.lock();
        let now = Instant::now();
        if known.checked.is_some_and(|checked| now.duration_since(checked) < RECHECK) {
            return known.servers.clone();
        }
        known.checked = Some(now);
        let versions = [&self.files.resolv_conf, &self.files.resolved].map(|path| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        });
        if versions != known.versions || known.servers.is_empty() {
            known.versions = versions;
            known.servers = self.read();
        }
        known.servers.clone()
    }

    fn read(&self) -> Vec<IpAddr> {
        let own = servers_of(&fs::read_to_string(&self.files.resolv_conf).unwrap_or_default());
        if !own.contains(&STUB) {
            return own;
        }
        let behind = servers_of(&fs::read_to_string(&self.files.resolved).unwrap_or_default());
        let others = own.into_iter().filter(|server| *server != STUB);
        let servers: Vec<IpAddr> = behind.into_iter().filter(|server| *server != STUB).chain(others).collect();
        // A stub without a file beside it still resolves.
        if servers.is_empty() { vec![STUB] } else { servers }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The `nameserver` lines. One with a scope (`fe80::1%eth0`) cannot be asked from here.
fn servers_of(text: &str) -> Vec<IpAddr> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    lines.filter_map(|rest| rest.split_whitespace().next()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(resolv_conf: &str, resolved: Option<&str>) -> (tempfile::TempDir, ResolverFiles) {
        let folder = tempfile::tempdir().unwrap();
        let files = ResolverFiles {
            resolv_conf: folder.path().join("resolv.conf"),
            resolved: folder.path().join("resolved.conf"),
        };
        fs::write(&files.resolv_conf, resolv_conf).unwrap();
        if let Some(text) = resolved {
            fs::write(&files.resolved, text).unwrap();
        }
        (folder, files)
    }

    fn servers(files: &ResolverFiles, of_service: &[IpAddr], own: &[&str]) -> Vec<String> {
        let own = own.iter().map(|ip| ip.parse().unwrap()).collect();
        Upstreams::new(files.clone()).servers(of_service, &own).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_stub_of_resolved_stands_for_the_servers_behind_it() {
        let (_folder, files) = written(
            "# made by\nnameserver 127.0.0.53\noptions edns0\n",
            Some("nameserver 192.0.2.1\nnameserver 2001:db8::1\n"),
        );
        assert_eq!(servers(&files, &[], &[]), ["192.0.2.1", "2001:db8::1"]);
        let (_folder, files) = written("nameserver 127.0.0.53\n", None);
        assert_eq!(servers(&files, &[], &[]), ["127.0.0.53"]);
        let (_folder, files) =
            written("nameserver 127.0.0.1\nnameserver\nnameserver x\n", Some("nameserver 9.9.9.9\n"));
        assert_eq!(servers(&files, &[], &[]), ["127.0.0.1"], "a resolver of the machine is asked as it is");
    }

    #[test]
    fn a_loop_to_ourselves_is_left_out_and_a_service_has_its_own() {
        let (_folder, files) = written("nameserver 10.128.7.254\nnameserver 192.0.2.1\n", None);
        assert_eq!(servers(&files, &[], &["10.128.7.254"]), ["192.0.2.1"]);
        assert_eq!(servers(&files, &["192.0.2.7".parse().unwrap()], &["10.128.7.254"]), ["192.0.2.7"]);
    }

    #[test]
    fn a_changed_file_is_followed() {
        let (_folder, files) = written("nameserver 192.0.2.1\n", None);
        let upstreams = Upstreams::new(files.clone());
        assert_eq!(upstreams.servers(&[], &BTreeSet::new()).len(), 1);
        fs::write(&files.resolv_conf, "nameserver 192.0.2.2\nnameserver 192.0.2.3\n").unwrap();
        upstreams.lock().checked = None;
        assert_eq!(upstreams.servers(&[], &BTreeSet::new()).len(), 2);
    }
}
