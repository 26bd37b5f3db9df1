//! Plain processes, under the same contract as containers.
//!
//! Owns: a folder per attempt with its order, its status and its output; watching processes and probing their health.
//! Must not touch: processes it did not start. A number is never trusted without its start time.
//! Invariant: an agent that comes back finds every process by its folder, and none was ended by its going.

mod cgroup;
mod logs;
mod plain;
mod probe;
mod session;

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longshore_model::{Driver, Work, WorkKey, container::Hook};
use rustix::process::{PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Interest, unix::AsyncFd},
    process::Command,
    task::AbortHandle,
};

use super::{Ending, Exit, ExitCause, Found, Handle, Phase, PlacedFile, Pokes, Pulse, RuntimeError, Seen, Spent};
use crate::{
    config::{AgentConfig, ExecConfig},
    shim::{
        LAST_WORDS,
        order::{Order, ProcessId, Status},
    },
};

/// Time a shim has to say whether its process started.
const START: Duration = Duration::from_secs(20);
/// Time a killed process has to be gone. Only the kernel can hold one longer.
const KILLED: Duration = Duration::from_secs(30);

/// Processes of this machine.
#[derive(Debug)]
pub(crate) struct Exec {
    config: ExecConfig,
    cluster_id: String,
    folder: PathBuf,
    pokes: Arc<Pokes>,
    watched: Arc<Mutex<BTreeMap<Handle, Watched>>>,
}

/// What is known of a live process besides its files.
#[derive(Debug)]
struct Watched {
    pulse: Arc<Mutex<Pulse>>,
    tasks: Vec<AbortHandle>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Exec {
    pub(crate) fn new(agent: &AgentConfig, config: ExecConfig, pokes: Arc<Pokes>) -> io::Result<Self> {
        let folder = agent.data_dir.join("exec");
        fs::create_dir_all(&folder)?;
        Ok(Self { config, cluster_id: agent.cluster_id.clone(), folder, pokes, watched: Arc::default() })
    }

    #[expect(clippy::unused_async, reason = "the contract is the same for a driver that must ask somebody")]
    pub(crate) async fn answers(&self) -> bool {
        self.folder.is_dir()
    }

    #[expect(clippy::unused_async, reason = "the contract is the same for a driver that must ask somebody")]
    pub(crate) async fn list(&self) -> Result<Vec<Found>, RuntimeError> {
        let entries = fs::read_dir(&self.folder).map_err(|error| away(&error))?;
        Ok(entries.flatten().filter_map(|entry| found(&entry.path())).collect())
    }

    pub(crate) async fn attempts(&self, key: &WorkKey) -> Result<Vec<Found>, RuntimeError> {
        Ok(self.list().await?.into_iter().filter(|found| found.key == *key).collect())
    }

    #[expect(clippy::unused_async, reason = "the contract is the same for a driver that must ask somebody")]
    pub(crate) async fn make(&self, work: &Work, files: &[PlacedFile]) -> Result<Handle, RuntimeError> {
        let name = work.container_name();
        let mut order = plain::order(work, files)?;
        order.cgroups = cgroup::make(Path::new(cgroup::ROOT), &format!("{}-{name}", self.cluster_id), &work.spec);
        let folder = self.folder.join(&name);
        let written = fs::create_dir_all(&folder).and_then(|()| order.write(&folder));
        written.map_err(|error| refused(&folder, &error))?;
        Ok(Handle(folder.to_string_lossy().into_owned()))
    }

    pub(crate) async fn start(&self, handle: &Handle) -> Result<(), RuntimeError> {
        let folder = Path::new(&handle.0);
        let Some((program, arguments)) = self.config.shim.split_first() else {
            return Err(RuntimeError::Refused("this node has no shim".to_owned()));
        };
        let mut shim = Command::new(program)
            .args(arguments)
            .arg("run")
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| refused(Path::new(program), &error))?;
        let mut said = String::new();
        if let Some(pipe) = shim.stdout.take() {
            let mut pipe = BufReader::new(pipe);
            let read = tokio::time::timeout(START, pipe.read_line(&mut said)).await;
            read.map_err(|_| away(&io::Error::from(io::ErrorKind::TimedOut)))?.map_err(|error| away(&error))?;
        }
        match said.trim() {
            "ok" => Ok(()),
            other => Err(RuntimeError::Refused(other.strip_prefix("error ").unwrap_or("the shim ended").to_owned())),
        }
    }

    #[expect(clippy::unused_async, reason = "the contract is the same for a driver that must ask somebody")]
    pub(crate) async fn look(&self, handle: &Handle) -> Result<Seen, RuntimeError> {
        let folder = Path::new(&handle.0);
        let order = Order::read(folder).map_err(|_| RuntimeError::Gone)?;
        let phase = match Status::read(folder) {
            None => Phase::Made,
            Some(Status { error: Some(reason), .. }) => Phase::Refused { reason },
            Some(Status { ended: Some(ended), .. }) => Phase::Ended(exit(ended.code, &order)),
            Some(status) if is_alive(&status) => Phase::Up(self.pulse(handle, &order, &status)),
            // Nobody wrote down how it ended: its shim was killed, or the machine went down.
            Some(_) => Phase::Ended(exit(None, &order)),
        };
        if !matches!(phase, Phase::Up(_)) {
            self.watched().remove(handle);
        }
        Ok(Seen { phase, address: None, ports: Vec::new() })
    }

    pub(crate) async fn end(&self, handle: &Handle, ending: &Ending) -> Result<(), RuntimeError> {
        let folder = Path::new(&handle.0);
        let Ok(order) = Order::read(folder) else { return Ok(()) };
        let Some(status) = Status::read(folder).filter(is_alive) else { return Ok(()) };
        let asked = signal(&ending.signal)
            .ok_or_else(|| RuntimeError::Refused(format!("`{}` is no signal of this system", ending.signal)))?;
        send(status.child, asked);
        if wait_until_gone(folder, ending.grace).await.is_ok() {
            return Ok(());
        }
        if let Some(group) = status.child.filter(|child| child.is_alive()).and_then(ProcessId::pid) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let shim = status.shim.and_then(ProcessId::pid);
        for pid in crate::shim::order::members(&order.cgroups).into_iter().filter(|pid| Some(*pid) != shim) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        wait_until_gone(folder, KILLED).await.map_err(|()| away(&io::Error::other("a killed process is still there")))
    }

    pub(crate) async fn remove(&self, handle: &Handle) -> Result<(), RuntimeError> {
        self.watched().remove(handle);
        let folder = Path::new(&handle.0);
        if let Ok(order) = Order::read(folder) {
            // A group can be removed when it is empty, and the shim in it has last words to write down.
            let shim = Status::read(folder).and_then(|status| status.shim);
            let gone = async {
                while shim.is_some_and(ProcessId::is_alive) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let _ = tokio::time::timeout(LAST_WORDS + Duration::from_secs(1), gone).await;
            cgroup::remove(&order.cgroups);
        }
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(refused(folder, &error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Lets go of everything but its folder.
    pub(crate) fn retire(&self, handle: &Handle) {
        self.watched().remove(handle);
        if let Ok(order) = Order::read(Path::new(&handle.0)) {
            cgroup::remove(&order.cgroups);
        }
    }

    pub(crate) async fn hook(&self, handle: &Handle, hook: &Hook) -> Result<i64, RuntimeError> {
        let order = Order::read(Path::new(&handle.0)).map_err(|_| RuntimeError::Gone)?;
        session::hook(&order, hook).await
    }

    #[expect(clippy::unused_async, reason = "the contract is the same for a driver that must ask somebody")]
    pub(crate) async fn spent(&self, handle: &Handle) -> Result<Spent, RuntimeError> {
        let folder = Path::new(&handle.0);
        let order = Order::read(folder).map_err(|_| RuntimeError::Gone)?;
        let status = Status::read(folder).filter(is_alive).ok_or(RuntimeError::Gone)?;
        let of_process = || cgroup::spent_by(status.child?.pid()?);
        cgroup::spent(&order.cgroups).or_else(of_process).ok_or(RuntimeError::Gone)
    }

    /// What its health check says; the first look at a live process begins to watch and to probe it.
    fn pulse(&self, handle: &Handle, order: &Order, status: &Status) -> Pulse {
        let mut watched = self.watched();
        let known = watched.entry(handle.clone()).or_insert_with(|| self.watch(handle, order, status));
        known.pulse.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn watch(&self, handle: &Handle, order: &Order, status: &Status) -> Watched {
        let folder = PathBuf::from(&handle.0);
        let pulse = Arc::new(Mutex::new(probe::remembered(&folder, order.healthcheck.as_ref())));
        let exit = poke_at_exit(Arc::clone(&self.pokes), order.key.clone(), status.clone());
        let mut tasks = vec![tokio::spawn(exit).abort_handle()];
        if probe::is_wanted(order.healthcheck.as_ref()) {
            let age = status.child.and_then(ProcessId::age).unwrap_or_default();
            let probing = probe::run(folder, order.clone(), age, Arc::clone(&pulse), Arc::clone(&self.pokes));
            tasks.push(tokio::spawn(probing).abort_handle());
        }
        Watched { pulse, tasks }
    }

    fn watched(&self) -> MutexGuard<'_, BTreeMap<Handle, Watched>> {
        // An entry is inserted or removed as a whole.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A folder of this node's own is one with a whole order in it; the folder itself is nobody else's.
fn found(folder: &Path) -> Option<Found> {
    let order = Order::read(folder).ok()?;
    Some(Found {
        key: order.key,
        attempt: order.attempt,
        spec_hash: order.spec_hash,
        placed_at: order.placed_at,
        handle: Handle(folder.to_string_lossy().into_owned()),
        ending: Ending { signal: order.stop_signal, grace: Duration::from_millis(order.stop_grace_millis) },
    })
}

/// Whether the process lives, or its shim has still to say how it ended.
fn is_alive(status: &Status) -> bool {
    status.ended.is_none() && [status.child, status.shim].into_iter().flatten().any(ProcessId::is_alive)
}

fn exit(code: Option<i64>, order: &Order) -> Exit {
    let cause = if cgroup::ran_out_of_memory(&order.cgroups) { ExitCause::OutOfMemory } else { ExitCause::Own };
    Exit { code, cause }
}

/// Sends a signal to that very process: the descriptor holds the number, and the start time proves it was not reused.
fn send(process: Option<ProcessId>, signal: Signal) {
    let Some((process, pid)) = process.and_then(|process| Some((process, process.pid()?))) else { return };
    if let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty())
        && process.is_alive()
    {
        let _ = pidfd_send_signal(descriptor, signal);
    }
}

async fn wait_until_gone(folder: &Path, limit: Duration) -> Result<(), ()> {
    let gone = async {
        while Status::read(folder).is_some_and(|status| is_alive(&status)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(limit, gone).await.map_err(drop)
}

/// Pokes when the shim ends, which is when it has written down how the process did; and when the process ends that a killed
/// shim has left alone.
async fn poke_at_exit(pokes: Arc<Pokes>, key: WorkKey, status: Status) {
    for process in [status.shim, status.child].into_iter().flatten() {
        if let Some(descriptor) = exit_descriptor(process) {
            let _ = descriptor.readable().await;
        }
        pokes.poke(&key);
    }
}

/// Readable once the process has ended, whoever its parent is.
#[expect(deprecated, reason = "an owned descriptor outlives its registration, which is all the safe way could promise")]
fn exit_descriptor(process: ProcessId) -> Option<AsyncFd<OwnedFd>> {
    let descriptor = pidfd_open(process.pid()?, PidfdFlags::NONBLOCK).ok().filter(|_| process.is_alive())?;
    AsyncFd::with_interest(descriptor, Interest::READABLE).ok()
}

/// `SIGTERM`, `TERM` or `15`.
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

fn away(error: &io::Error) -> RuntimeError {
    RuntimeError::Away { driver: Driver::Exec, reason: error.to_string() }
}

fn refused(path: &Path, error: &io::Error) -> RuntimeError {
    RuntimeError::Refused(format!("`{}`: {error}", path.display()))
}
