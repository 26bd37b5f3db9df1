//! What the agent asks of a shim, and what the shim answers, as files in the replica's folder.
//!
//! Owns: both files, the lock that keeps two shims from one order, and how a process is told from a later one with its
//! number.
//! Invariant: a file is replaced as a whole, so a reader sees the old one or the new one.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use longshore_model::{Attempt, Time, WorkKey, container::Healthcheck};
use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Resource, Rlimit},
};
use serde::{Deserialize, Serialize};

/// One process to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) key: WorkKey,
    pub(crate) attempt: Attempt,
    pub(crate) spec_hash: String,
    /// Absent in what an older agent wrote.
    #[serde(default)]
    pub(crate) placed_at: Option<Time>,
    pub(crate) argv: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) working_dir: Option<String>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) cgroups: Vec<PathBuf>,
    pub(crate) ulimits: Vec<(String, i64, i64)>,
    pub(crate) oom_score_adj: i64,
    pub(crate) log: LogLimits,
    pub(crate) healthcheck: Option<Healthcheck>,
    pub(crate) stop_signal: String,
    pub(crate) stop_grace_millis: u64,
}

/// How much output is kept.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct LogLimits {
    pub(crate) file_bytes: u64,
    pub(crate) files: u32,
}

/// How it went.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) shim: Option<ProcessId>,
    pub(crate) child: Option<ProcessId>,
    pub(crate) error: Option<String>,
    pub(crate) ended: Option<Ended>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) code: Option<i64>,
}

/// A process, for good: numbers are used again, a number with a start time is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pid: i32,
    /// Ticks since the machine started.
    started: u64,
    /// Which start of the machine that was: ticks are counted from zero after each. Zero where nobody noted it.
    #[serde(default)]
    boot: u64,
}

impl ProcessId {
    pub(crate) fn of(pid: Pid) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        Some(Self { pid: pid.as_raw_nonzero().get(), started: start_ticks(&stat)?, boot: this_boot() })
    }

    pub(crate) fn pid(self) -> Option<Pid> {
        Pid::from_raw(self.pid)
    }

    /// Whether that very process still exists, and is not merely waiting to be reaped.
    pub(crate) fn is_alive(self) -> bool {
        if self.boot != 0 && self.boot != this_boot() {
            return false;
        }
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", self.pid)) else { return false };
        start_ticks(&stat) == Some(self.started) && state(&stat) != Some('Z')
    }

    /// How long ago it was started, by the clock that counts from the machine's start: nobody sets that one.
    pub(crate) fn age(self) -> Option<Duration> {
        let uptime = fs::read_to_string("/proc/uptime").ok()?;
        let now = Duration::from_secs_f64(uptime.split_whitespace().next()?.parse().ok()?);
        Some(now.saturating_sub(Duration::from_millis(self.started * MILLIS_PER_TICK)))
    }
}

/// The kernel counts in hundredths of a second towards programs on every platform we run on.
const MILLIS_PER_TICK: u64 = 10;

/// A number that is another after every start of the machine; zero where the machine does not say.
fn this_boot() -> u64 {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or_default()
}

/// The text after the name, which is in brackets and may hold anything, brackets and spaces too.
fn after_name(stat: &str) -> Option<&str> {
    stat.rsplit_once(')').map(|(_, rest)| rest.trim_start())
}

fn state(stat: &str) -> Option<char> {
    after_name(stat)?.chars().next()
}

fn start_ticks(stat: &str) -> Option<u64> {
    // The 22nd field of the line; the name is the second.
    after_name(stat)?.split_whitespace().nth(19)?.parse().ok()
}

impl Order {
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(folder.join("order.json"))?)?)
    }

    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        replace(folder, "order.json", &serde_json::to_vec(self)?)
    }

    /// The limits the kernel knows, by the names manifests use.
    pub(crate) fn rlimits(&self) -> impl Iterator<Item = (Resource, Rlimit)> {
        let amount = |limit: i64| u64::try_from(limit).ok();
        self.ulimits.iter().filter_map(move |(name, soft, hard)| {
            Some((resource(name)?, Rlimit { current: amount(*soft), maximum: amount(*hard) }))
        })
    }
}

pub(crate) fn resource(name: &str) -> Option<Resource> {
    Some(match name {
        "as" => Resource::As,
        "core" => Resource::Core,
        "cpu" => Resource::Cpu,
        "data" => Resource::Data,
        "fsize" => Resource::Fsize,
        "locks" => Resource::Locks,
        "memlock" => Resource::Memlock,
        "msgqueue" => Resource::Msgqueue,
        "nice" => Resource::Nice,
        "nofile" => Resource::Nofile,
        "nproc" => Resource::Nproc,
        "rss" => Resource::Rss,
        "rtprio" => Resource::Rtprio,
        "rttime" => Resource::Rttime,
        "sigpending" => Resource::Sigpending,
        "stack" => Resource::Stack,
        _ => return None,
    })
}

impl Status {
    /// `None` before the shim has written anything.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join("status.json")).ok()?).ok()
    }

    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        replace(folder, "status.json", &serde_json::to_vec(self)?)
    }
}

/// Held as long as the file lives. The kernel lets go of it when the process ends, however it ends.
pub(crate) fn lock(folder: &Path) -> Option<File> {
    let file = File::create(folder.join("lock")).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

/// Every process in the control groups.
pub(crate) fn members(cgroups: &[PathBuf]) -> Vec<Pid> {
    let texts = cgroups.iter().filter_map(|group| fs::read_to_string(group.join("cgroup.procs")).ok());
    let mut pids: Vec<Pid> = texts
        .flat_map(|text| text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect::<Vec<_>>())
        .collect();
    pids.sort_by_key(|pid| pid.as_raw_nonzero());
    pids.dedup();
    pids
}

pub(crate) fn replace(folder: &Path, name: &str, contents: &[u8]) -> io::Result<()> {
    let beside = folder.join(format!("{name}.new"));
    fs::write(&beside, contents)?;
    // An order holds the environment, and that holds passwords.
    fs::set_permissions(&beside, Permissions::from_mode(0o600))?;
    fs::rename(beside, folder.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_number_and_start_time() {
        let own = ProcessId::of(rustix::process::getpid()).unwrap();
        assert!(own.is_alive());
        assert!(!ProcessId { started: own.started + 1, ..own }.is_alive());
        assert!(!ProcessId { boot: own.boot ^ 1, ..own }.is_alive(), "the same numbers after another start");
        assert!(ProcessId { boot: 0, ..own }.is_alive(), "one that was noted before this was");
    }

    #[test]
    fn the_age_of_a_process_does_not_depend_on_the_time_of_day() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = ProcessId::of(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let age = process.age().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(age >= Duration::from_millis(250) && age < Duration::from_secs(30), "{age:?}");
    }

    #[test]
    fn a_name_with_brackets_and_spaces_is_skipped() {
        let stat = "7 (a) b) (c) S 1 7 7 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 4242 1 1";
        assert_eq!((state(stat), start_ticks(stat)), (Some('S'), Some(4242)));
    }

    #[test]
    fn one_order_has_one_shim() {
        let folder = tempfile::tempdir().unwrap();
        let held = lock(folder.path());
        assert!(held.is_some() && lock(folder.path()).is_none());
        drop(held);
        assert!(lock(folder.path()).is_some());
    }
}
