//! The files through which agent and shim communicate, in the replica's folder.
//!
//! Owns: `order.json` (what to run, written by the agent), `status.json` (written by the shim), the lock that allows
//! one shim per spec, and the identity of a process across reuse of its pid.
//! Invariant: a file is replaced as a whole, so a reader sees the old contents or the new.

use std::{
    fs::{self, File},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use longshore_durable_file::{self as durable_file, Durability};
use longshore_model::{Attempt, ReplicaKey, Time, container::Healthcheck, service::Protocol};
use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Resource, Rlimit},
};
use serde::{Deserialize, Serialize};

use super::process_input::AttachMode;

/// The process to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessSpec {
    pub(crate) key: ReplicaKey,
    pub(crate) attempt: Attempt,
    pub(crate) spec_hash: String,
    /// Absent in files of older agents.
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
    /// Absent in files of older agents.
    #[serde(default)]
    pub(crate) ports: Vec<ProcessPort>,
    /// Whether one client can attach to it, and how.
    #[serde(default)]
    pub(crate) attach: Option<AttachMode>,
}

/// A port of the manifest, and the one the process is asked to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessPort {
    pub(crate) target: u16,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
}

/// How much output is kept on disk.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct LogLimits {
    pub(crate) file_bytes: u64,
    pub(crate) files: u32,
}

/// The state of the process, as far as the shim has written it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ProcessStatus {
    pub(crate) shim: Option<ProcessId>,
    pub(crate) child: Option<ProcessId>,
    /// Why the process could not be started.
    pub(crate) error: Option<String>,
    pub(crate) ended: Option<ProcessExit>,
}

/// The exit of a process; `None` if the shim could not wait for it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessExit {
    pub(crate) code: Option<i64>,
}

/// A process, identified beyond reuse of its pid by its start time and boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pid: i32,
    /// Start time in clock ticks since the machine booted.
    started: u64,
    /// The boot in which it was started, because ticks restart at zero with each. Zero if it was not recorded.
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

    /// Whether exactly that process exists and is not a zombie.
    pub(crate) fn is_alive(self) -> bool {
        if self.is_of_earlier_boot() {
            return false;
        }
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", self.pid)) else { return false };
        start_ticks(&stat) == Some(self.started) && state(&stat) != Some('Z')
    }

    /// Whether the machine was rebooted since it was started.
    pub(crate) fn is_of_earlier_boot(self) -> bool {
        self.boot != 0 && self.boot != this_boot()
    }

    /// Start time in clock ticks since the machine booted.
    pub(crate) fn started(self) -> u64 {
        self.started
    }

    /// Time since it was started, by the machine's uptime, which no clock change affects.
    pub(crate) fn age(self) -> Option<Duration> {
        let uptime = fs::read_to_string("/proc/uptime").ok()?;
        let now = Duration::from_secs_f64(uptime.split_whitespace().next()?.parse().ok()?);
        Some(now.saturating_sub(Duration::from_millis(self.started * MILLIS_PER_TICK)))
    }
}

/// The kernel reports times to user space in hundredths of a second on every supported platform.
const MILLIS_PER_TICK: u64 = 10;

/// A number that differs after every boot; zero if the kernel gives no boot id.
fn this_boot() -> u64 {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or_default()
}

/// The fields after the process name, which is in parentheses and may itself contain parentheses and spaces.
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

impl ProcessSpec {
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(folder.join("order.json"))?)?)
    }

    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        durable_file::replace(&folder.join("order.json"), &serde_json::to_vec(self)?, Durability::Unsynced)
    }

    /// A command with the user, directory and environment of this process. `None` if `argv` is empty.
    pub(crate) fn command(&self, argv: &[String]) -> Option<Command> {
        let (program, arguments) = argv.split_first()?;
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(self.environment.iter().cloned());
        if let Some(folder) = &self.working_dir {
            command.current_dir(folder);
        }
        if let Some(gid) = self.gid {
            command.gid(gid);
        }
        if let Some(uid) = self.uid {
            command.uid(uid);
        }
        Some(command)
    }

    /// The limits of the manifest that the kernel supports.
    pub(crate) fn rlimits(&self) -> impl Iterator<Item = (Resource, Rlimit)> {
        let amount = |limit: i64| u64::try_from(limit).ok();
        self.ulimits.iter().filter_map(move |(name, soft, hard)| {
            Some((rlimit_resource(name)?, Rlimit { current: amount(*soft), maximum: amount(*hard) }))
        })
    }
}

/// The kernel's limit of that Compose name. `None` if there is no such limit.
pub(crate) fn rlimit_resource(name: &str) -> Option<Resource> {
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

impl ProcessStatus {
    /// `None` until the shim has written it.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join("status.json")).ok()?).ok()
    }

    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        durable_file::replace(&folder.join("status.json"), &serde_json::to_vec(self)?, Durability::Unsynced)
    }

    /// Removes the status of a process that is gone, so that a shim can run the spec again.
    pub(crate) fn clear(folder: &Path) -> io::Result<()> {
        match fs::remove_file(folder.join("status.json")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Locks the spec until the returned file is closed; the kernel closes it when the process ends. `None` if it is
/// locked.
pub(crate) fn lock(folder: &Path) -> Option<File> {
    let file = File::create(folder.join("lock")).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

/// The pids of all processes in the cgroups.
pub(crate) fn members(cgroups: &[PathBuf]) -> Vec<Pid> {
    let texts = cgroups.iter().filter_map(|group| fs::read_to_string(group.join("cgroup.procs")).ok());
    let mut pids: Vec<Pid> = texts
        .flat_map(|text| text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect::<Vec<_>>())
        .collect();
    pids.sort_by_key(|pid| pid.as_raw_nonzero());
    pids.dedup();
    pids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_identified_by_pid_start_time_and_boot() {
        let own = ProcessId::of(rustix::process::getpid()).unwrap();
        assert!(own.is_alive());
        assert!(!ProcessId { started: own.started + 1, ..own }.is_alive());
        assert!(!ProcessId { boot: own.boot ^ 1, ..own }.is_alive(), "the same pid and start time in another boot");
        assert!(ProcessId { boot: 0, ..own }.is_alive(), "an older agent recorded no boot");
    }

    #[test]
    fn the_age_of_a_process_does_not_depend_on_the_wall_clock() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = ProcessId::of(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let age = process.age().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(age >= Duration::from_millis(250) && age < Duration::from_secs(30), "{age:?}");
    }

    #[test]
    fn a_process_name_with_parentheses_and_spaces_is_skipped() {
        let stat = "7 (a) b) (c) S 1 7 7 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 4242 1 1";
        assert_eq!((state(stat), start_ticks(stat)), (Some('S'), Some(4242)));
    }

    #[test]
    fn a_spec_can_be_locked_by_one_shim_only() {
        let folder = tempfile::tempdir().unwrap();
        let held = lock(folder.path());
        assert!(held.is_some() && lock(folder.path()).is_none());
        drop(held);
        assert!(lock(folder.path()).is_some());
    }
}
