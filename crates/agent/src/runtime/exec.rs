//! The Exec driver: plain processes under the same contract as containers.
//!
//! Owns: a folder per attempt with its spec, its status and its output; monitoring processes and probing their health.
//! Must not touch: processes it did not start. A pid is never trusted without its start time.
//! Invariant: an agent that restarts finds every process by its folder, and none ends because an agent does.

mod cgroup;
mod command;
mod healthcheck;
mod logs;
mod ports;
mod spec;
mod started_session;

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use longshore_model::{Driver, ReplicaKey, Work, container::Hook};
use rustix::process::{PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Interest, unix::AsyncFd},
    process::Command,
    sync::mpsc,
    task::AbortHandle,
};

use super::{
    DriverFingerprint, ExistingReplica, Exit, Handle, HealthStatus, Inspection, Phase, PreparedFile, ResourceUsage,
    Runtime, RuntimeContext, RuntimeError, RuntimeFuture, StopSpec,
};
use crate::{
    config::ExecConfig,
    file_limit,
    logs_exec::{ExecRequest, ExecSession, LogLine, LogOptions},
    shim::{
        OUTPUT_DRAIN, SOFT_FILE_LIMIT,
        protocol::{ProcessId, ProcessSpec, ProcessStatus, members},
    },
    wakeups::Wakeups,
};

/// Time a shim has to report whether its process started.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Time a killed process has to disappear. Only the kernel can hold one longer.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two looks at a process that is expected to end.
const POLL: Duration = Duration::from_millis(20);

/// The driver for processes of this machine.
#[derive(Debug)]
struct Exec {
    config: ExecConfig,
    cluster_id: String,
    folder: PathBuf,
    wakeups: Arc<Wakeups>,
    monitors: Mutex<BTreeMap<Handle, ProcessMonitor>>,
}

/// The health of a live process, and the tasks that watch it.
#[derive(Debug)]
struct ProcessMonitor {
    health: Arc<Mutex<HealthStatus>>,
    tasks: Vec<AbortHandle>,
}

impl Drop for ProcessMonitor {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

pub(super) fn build(ctx: &RuntimeContext<'_>) -> io::Result<Option<Arc<dyn Runtime>>> {
    let Some(config) = ctx.config.exec.clone() else { return Ok(None) };
    let folder = ctx.config.data_dir.join("exec");
    fs::create_dir_all(&folder)?;
    let (cluster_id, wakeups) = (ctx.config.cluster_id.clone(), Arc::clone(ctx.wakeups));
    Ok(Some(Arc::new(Exec { config, cluster_id, folder, wakeups, monitors: Mutex::default() })))
}

impl Runtime for Exec {
    fn driver(&self) -> Driver {
        Driver::Exec
    }

    fn is_available(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { self.folder.is_dir() })
    }

    fn fingerprint(&self) -> RuntimeFuture<'_, DriverFingerprint> {
        Box::pin(async { Ok(DriverFingerprint::default()) })
    }

    fn list(&self) -> RuntimeFuture<'_, Vec<ExistingReplica>> {
        Box::pin(async {
            let entries = fs::read_dir(&self.folder).map_err(|error| unavailable(&error))?;
            Ok(entries.flatten().filter_map(|entry| existing(&entry.path())).collect())
        })
    }

    fn create<'a>(&'a self, work: &'a Work, files: &'a [PreparedFile]) -> RuntimeFuture<'a, Handle> {
        Box::pin(async move {
            let name = work.container_name();
            let mut spec = spec::process_spec(work, files)?;
            spec.cgroups = cgroup::create(Path::new(cgroup::ROOT), &format!("{}-{name}", self.cluster_id), &work.spec);
            let folder = self.folder.join(&name);
            let written = fs::create_dir_all(&folder).and_then(|()| spec.write(&folder));
            written.map_err(|error| refused(&folder, &error))?;
            Ok(Handle(folder.to_string_lossy().into_owned()))
        })
    }

    fn start<'a>(&'a self, handle: &'a Handle) -> RuntimeFuture<'a, ()> {
        Box::pin(self.start_shim(Path::new(&handle.0)))
    }

    fn inspect<'a>(&'a self, handle: &'a Handle) -> RuntimeFuture<'a, Inspection> {
        Box::pin(async move {
            let folder = Path::new(&handle.0);
            let spec = read_spec(handle)?;
            let status = ProcessStatus::read(folder);
            let listening = status.as_ref().map(|status| ports::listening(&spec, status)).unwrap_or_default();
            let phase = match status {
                None => Phase::Created,
                Some(ProcessStatus { error: Some(reason), .. }) => Phase::StartFailed { reason },
                Some(ProcessStatus { ended: Some(ended), .. }) => Phase::Exited(exit(ended.code, &spec)),
                Some(status) if is_alive(&status) => Phase::Running(self.health(handle, &spec, &status)),
                // The exit code was never written: the shim was killed, or the machine went down.
                Some(status) => {
                    let ended_with_host = status.child.is_some_and(ProcessId::is_of_earlier_boot);
                    Phase::Exited(Exit { ended_with_host, ..exit(None, &spec) })
                }
            };
            if !matches!(phase, Phase::Running(_)) {
                self.monitors().remove(handle);
            }
            Ok(Inspection { phase, address: None, ports: listening })
        })
    }

    /// The machine's cgroups are gone with its last boot.
    fn resume<'a>(&'a self, work: &'a Work, handle: &'a Handle) -> RuntimeFuture<'a, ()> {
        Box::pin(async move {
            let folder = Path::new(&handle.0);
            let mut spec = read_spec(handle)?;
            let name = format!("{}-{}", self.cluster_id, work.container_name());
            spec.cgroups = cgroup::create(Path::new(cgroup::ROOT), &name, &work.spec);
            let written = ProcessStatus::clear(folder).and_then(|()| spec.write(folder));
            written.map_err(|error| refused(folder, &error))?;
            self.start_shim(folder).await
        })
    }

    fn stop<'a>(&'a self, handle: &'a Handle, stop: &'a StopSpec) -> RuntimeFuture<'a, ()> {
        Box::pin(stop_process(Path::new(&handle.0), stop))
    }

    fn remove<'a>(&'a self, handle: &'a Handle) -> RuntimeFuture<'a, ()> {
        Box::pin(async move {
            self.monitors().remove(handle);
            let folder = Path::new(&handle.0);
            if let Ok(spec) = ProcessSpec::read(folder) {
                // A cgroup can only be removed when it is empty, and the shim in it may still drain the output.
                let shim = ProcessStatus::read(folder).and_then(|status| status.shim);
                let gone = async {
                    while shim.is_some_and(ProcessId::is_alive) {
                        tokio::time::sleep(POLL).await;
                    }
                };
                let _ = tokio::time::timeout(OUTPUT_DRAIN + Duration::from_secs(1), gone).await;
                cgroup::remove(&spec.cgroups);
            }
            match fs::remove_dir_all(folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(refused(folder, &error)),
                Ok(()) | Err(_) => Ok(()),
            }
        })
    }

    /// Keeps only the folder.
    fn release(&self, handle: &Handle) {
        self.monitors().remove(handle);
        if let Ok(spec) = read_spec(handle) {
            cgroup::remove(&spec.cgroups);
        }
    }

    fn run_hook<'a>(&'a self, handle: &'a Handle, hook: &'a Hook) -> RuntimeFuture<'a, i64> {
        Box::pin(async move { command::run_hook(&read_spec(handle)?, hook).await })
    }

    fn resource_usage<'a>(&'a self, handle: &'a Handle) -> RuntimeFuture<'a, ResourceUsage> {
        Box::pin(async move {
            let spec = read_spec(handle)?;
            let status = ProcessStatus::read(Path::new(&handle.0)).filter(is_alive).ok_or(RuntimeError::NotFound)?;
            let of_process = || cgroup::process_usage(status.child?.pid()?);
            cgroup::usage(&spec.cgroups).or_else(of_process).ok_or(RuntimeError::NotFound)
        })
    }

    fn logs<'a>(&'a self, handle: &'a Handle, options: LogOptions) -> RuntimeFuture<'a, mpsc::Receiver<LogLine>> {
        Box::pin(async move { Ok(logs::spawn(PathBuf::from(&handle.0), read_spec(handle)?.log.files, options)) })
    }

    fn exec<'a>(&'a self, handle: &'a Handle, request: ExecRequest) -> RuntimeFuture<'a, ExecSession> {
        Box::pin(async move { command::exec(&self.config.shim, read_spec(handle)?, request) })
    }

    fn attach<'a>(&'a self, handle: &'a Handle) -> RuntimeFuture<'a, Option<ExecSession>> {
        Box::pin(async move { Ok(started_session::attach(Path::new(&handle.0)).await) })
    }
}

impl Exec {
    async fn start_shim(&self, folder: &Path) -> Result<(), RuntimeError> {
        let Some((program, arguments)) = self.config.shim.split_first() else {
            return Err(RuntimeError::Refused("this node has no shim".to_owned()));
        };
        let mut shim = Command::new(program)
            .args(arguments)
            .arg("run")
            .arg(folder)
            .envs(file_limit::original().map(|limit| (SOFT_FILE_LIMIT, limit.to_string())))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| refused(Path::new(program), &error))?;
        let mut answer = String::new();
        if let Some(pipe) = shim.stdout.take() {
            let mut pipe = BufReader::new(pipe);
            let read = tokio::time::timeout(START_TIMEOUT, pipe.read_line(&mut answer)).await;
            let timed_out = |_| unavailable(&io::Error::from(io::ErrorKind::TimedOut));
            read.map_err(timed_out)?.map_err(|error| unavailable(&error))?;
        }
        match answer.trim() {
            "ok" => Ok(()),
            other => Err(RuntimeError::Refused(other.strip_prefix("error ").unwrap_or("the shim ended").to_owned())),
        }
    }

    /// The health of a live process. The first call begins to monitor it.
    fn health(&self, handle: &Handle, spec: &ProcessSpec, status: &ProcessStatus) -> HealthStatus {
        let mut monitors = self.monitors();
        let monitor = monitors.entry(handle.clone()).or_insert_with(|| self.monitor(handle, spec, status));
        monitor.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn monitor(&self, handle: &Handle, spec: &ProcessSpec, status: &ProcessStatus) -> ProcessMonitor {
        let folder = PathBuf::from(&handle.0);
        let health = Arc::new(Mutex::new(healthcheck::stored_health(&folder, spec.healthcheck.as_ref())));
        let exit = wake_at_exit(Arc::clone(&self.wakeups), spec.key.clone(), status.clone());
        let mut tasks = vec![tokio::spawn(exit).abort_handle()];
        if !spec.ports.is_empty() {
            let watching = ports::watch(folder.clone(), spec.clone(), Arc::clone(&self.wakeups));
            tasks.push(tokio::spawn(watching).abort_handle());
        }
        if healthcheck::is_enabled(spec.healthcheck.as_ref()) {
            let age = status.child.and_then(ProcessId::age).unwrap_or_default();
            let probing = healthcheck::run(folder, spec.clone(), age, Arc::clone(&health), Arc::clone(&self.wakeups));
            tasks.push(tokio::spawn(probing).abort_handle());
        }
        ProcessMonitor { health, tasks }
    }

    fn monitors(&self) -> MutexGuard<'_, BTreeMap<Handle, ProcessMonitor>> {
        // Each change is one map operation, so a panic elsewhere leaves no partial update.
        self.monitors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_spec(handle: &Handle) -> Result<ProcessSpec, RuntimeError> {
    ProcessSpec::read(Path::new(&handle.0)).map_err(|_| RuntimeError::NotFound)
}

/// A folder with a complete spec is a replica of this node: nobody else writes below the driver's folder.
fn existing(folder: &Path) -> Option<ExistingReplica> {
    let spec = ProcessSpec::read(folder).ok()?;
    Some(ExistingReplica {
        key: spec.key,
        attempt: spec.attempt,
        spec_hash: spec.spec_hash,
        placed_at: spec.placed_at,
        handle: Handle(folder.to_string_lossy().into_owned()),
        stop: StopSpec { signal: spec.stop_signal, grace: Duration::from_millis(spec.stop_grace_millis) },
    })
}

/// Whether the process lives, or its shim has yet to write the exit code.
fn is_alive(status: &ProcessStatus) -> bool {
    status.ended.is_none() && [status.child, status.shim].into_iter().flatten().any(ProcessId::is_alive)
}

fn exit(code: Option<i64>, spec: &ProcessSpec) -> Exit {
    Exit { code, oom_killed: cgroup::was_oom_killed(&spec.cgroups), ended_with_host: false }
}

async fn stop_process(folder: &Path, stop: &StopSpec) -> Result<(), RuntimeError> {
    let Ok(spec) = ProcessSpec::read(folder) else { return Ok(()) };
    let Some(status) = ProcessStatus::read(folder).filter(is_alive) else { return Ok(()) };
    let signal = signal(&stop.signal)
        .ok_or_else(|| RuntimeError::Refused(format!("`{}` is not a signal of this system", stop.signal)))?;
    send(status.child, signal);
    if ends_within(folder, stop.grace).await {
        return Ok(());
    }
    if let Some(group) = status.child.filter(|child| child.is_alive()).and_then(ProcessId::pid) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let shim = status.shim.and_then(ProcessId::pid);
    for pid in members(&spec.cgroups).into_iter().filter(|pid| Some(*pid) != shim) {
        let _ = kill_process(pid, Signal::KILL);
    }
    if ends_within(folder, KILL_TIMEOUT).await {
        Ok(())
    } else {
        Err(unavailable(&io::Error::other("a killed process still exists")))
    }
}

/// Sends a signal to exactly that process: the pidfd pins the pid, and the start time proves the pid was not reused.
fn send(process: Option<ProcessId>, signal: Signal) {
    let Some((process, pid)) = process.and_then(|process| Some((process, process.pid()?))) else { return };
    if let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty())
        && process.is_alive()
    {
        let _ = pidfd_send_signal(descriptor, signal);
    }
}

async fn ends_within(folder: &Path, limit: Duration) -> bool {
    let ended = async {
        while ProcessStatus::read(folder).is_some_and(|status| is_alive(&status)) {
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(limit, ended).await.is_ok()
}

/// Wakes the replica's monitor when the shim ends, which is after it wrote the exit code; and when the process ends, in
/// case the shim was killed before it.
async fn wake_at_exit(wakeups: Arc<Wakeups>, key: ReplicaKey, status: ProcessStatus) {
    for process in [status.shim, status.child].into_iter().flatten() {
        if let Some(descriptor) = exit_descriptor(process) {
            let _ = descriptor.readable().await;
        }
        wakeups.wake(&key);
    }
}

/// A pidfd, readable once the process has ended, whoever its parent is.
#[expect(deprecated, reason = "an owned descriptor outlives its registration, which is all the safe way could promise")]
fn exit_descriptor(process: ProcessId) -> Option<AsyncFd<OwnedFd>> {
    let descriptor = pidfd_open(process.pid()?, PidfdFlags::NONBLOCK).ok().filter(|_| process.is_alive())?;
    AsyncFd::with_interest(descriptor, Interest::READABLE).ok()
}

/// Accepts `SIGTERM`, `TERM` and `15`.
fn signal(name: &str) -> Option<Signal> {
    let upper = name.to_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    Some(match bare {
        "HUP" | "1" => Signal::HUP,
        "INT" | "2" => Signal::INT,
        "QUIT" | "3" => Signal::QUIT,
        "ABRT" | "6" => Signal::ABORT,
        "KILL" | "9" => Signal::KILL,
        "USR1" | "10" => Signal::USR1,
        "USR2" | "12" => Signal::USR2,
        "ALRM" | "14" => Signal::ALARM,
        "TERM" | "15" => Signal::TERM,
        "CONT" | "18" => Signal::CONT,
        "WINCH" | "28" => Signal::WINCH,
        _ => return None,
    })
}

fn unavailable(error: &io::Error) -> RuntimeError {
    RuntimeError::Unavailable { driver: Driver::Exec, reason: error.to_string() }
}

fn refused(path: &Path, error: &io::Error) -> RuntimeError {
    RuntimeError::Refused(format!("`{}`: {error}", path.display()))
}
