//! A cluster of member processes.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::socket;

/// Longer than any successful step takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct ProcessCluster {
    pub(crate) root: PathBuf,
    /// Keeps the directory until the cluster is dropped.
    _dir: Option<TempDir>,
    running: BTreeMap<u64, Child>,
    snapshot_after: u64,
}

impl ProcessCluster {
    /// Starts voters 1 to `voters`, with a node to write labels on.
    pub(crate) fn of(voters: u64, snapshot_after: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_owned();
        Self::begin(Self { root, _dir: Some(dir), running: BTreeMap::new(), snapshot_after }, voters)
    }

    /// Starts one voter in an existing directory.
    pub(crate) fn at(root: &Path, snapshot_after: u64) -> Self {
        Self::begin(Self { root: root.to_owned(), _dir: None, running: BTreeMap::new(), snapshot_after }, 1)
    }

    fn begin(mut cluster: Self, voters: u64) -> Self {
        cluster.start(1);
        assert_eq!(cluster.ask(1, "begin").unwrap(), "done");
        for id in 2..=voters {
            cluster.start(id);
            assert_eq!(cluster.ask(1, &format!("add {id}")).unwrap(), "done");
        }
        cluster
    }

    /// Starts a member and waits until it responds.
    pub(crate) fn start(&mut self, id: u64) {
        let (root, after) = (self.root.to_str().unwrap(), self.snapshot_after.to_string());
        let own = std::env::current_exe().unwrap();
        let mut child = Command::new(own).args(["member", root, &id.to_string(), &after]).spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while self.ask(id, "status").is_err() {
            assert_eq!(child.try_wait().unwrap(), None, "member {id} did not open its directory");
            assert!(Instant::now() < deadline, "member {id} does not answer");
            thread::sleep(Duration::from_millis(5));
        }
        self.running.insert(id, child);
    }

    /// Kills a member.
    pub(crate) fn kill(&mut self, id: u64) {
        if let Some(mut child) = self.running.remove(&id) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Kills all members at once.
    pub(crate) fn kill_all(&mut self) {
        for child in self.running.values_mut() {
            child.kill().unwrap();
        }
        for (_, mut child) in std::mem::take(&mut self.running) {
            child.wait().unwrap();
        }
    }

    pub(crate) fn signal(&self, id: u64, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.running[&id].id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.running.keys().copied().collect()
    }

    pub(crate) fn ask(&self, id: u64, words: &str) -> io::Result<String> {
        socket::ask(&self.root, id, words, PATIENCE)
    }

    /// The member that leads.
    pub(crate) fn leader(&self) -> u64 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let leads = |id: &u64| self.ask(*id, "status").is_ok_and(|status| status.starts_with("leading"));
            if let Some(leader) = self.ids().into_iter().find(leads) {
                return leader;
            }
            assert!(Instant::now() < deadline, "nobody leads");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Writes through a member until it is acknowledged, and returns how long that took.
    pub(crate) fn insist(&self, id: u64, write_id: &str) -> Duration {
        let since = Instant::now();
        loop {
            match self.ask(id, &format!("put insisted {write_id} {write_id}")) {
                Ok(answer) if answer == "done" => return since.elapsed(),
                answer => assert!(since.elapsed() < PATIENCE, "{answer:?}"),
            }
        }
    }

    /// Waits until all members have the same state.
    pub(crate) fn converge(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let digests: Vec<_> = self.ids().into_iter().map(|id| self.ask(id, "digest").unwrap()).collect();
            if digests.windows(2).all(|pair| pair[0] == pair[1]) {
                return;
            }
            assert!(Instant::now() < deadline, "members do not agree: {digests:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for ProcessCluster {
    fn drop(&mut self) {
        for child in self.running.values_mut() {
            // It may have exited already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
