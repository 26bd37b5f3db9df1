//! The dataplane process: `longshore dataplane`, started by the daemon, in a session of its own.
//!
//! ```text
//! start ──▶ take over, or listen ──▶ network.json ──▶ serve daemons, one after the other
//!                                                        ├─ Stop, or the folder is gone ──▶ close, wait, end
//!                                                        └─ HandOver ──▶ sockets to the next process, wait, end
//! ```
//!
//! Owns: its life. Must not touch: the data folder, apart from its socket.
//! Invariant: a daemon that goes away changes nothing.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::{fs::MetadataExt as _, fs::PermissionsExt as _, net::UnixStream as StdUnixStream},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use longshore_model::NodeName;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, setsid};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use super::{
    Dataplane, STATE_FILE,
    protocol::{BinaryId, ControlPath, Event, Hello, Request},
};
use crate::socket_handover::{self, InheritedSockets, NamedSocket};

/// Name of the control socket among those that are handed over.
const CONTROL: &str = "control";
/// Time that connections have to end after a stop.
const STOP_DRAIN: Duration = Duration::from_secs(30);
/// Time between two reports to a daemon, and between two looks whether connections are left.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two looks whether the data folder is still there.
const FOLDER_CHECK: Duration = Duration::from_secs(1);
/// Time that the process before this one has to pass its sockets.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(5);
/// Threads: copying is the kernel's work, most of it.
const THREADS: usize = 2;

/// Arguments of the process.
struct Arguments {
    data_dir: PathBuf,
    nodes: BTreeSet<NodeName>,
    takes_over: bool,
}

impl Arguments {
    /// `DATA-FOLDER [--take-over] NODE…`, as [`super::DataplaneCommand`] writes them.
    fn parse(arguments: &[String]) -> Option<Self> {
        let (data_dir, rest) = arguments.split_first()?;
        let takes_over = rest.first().is_some_and(|first| first == super::client::TAKE_OVER);
        let nodes = rest[usize::from(takes_over)..].iter().map(|node| NodeName::from(node.as_str())).collect();
        Some(Self { data_dir: PathBuf::from(data_dir), nodes, takes_over })
    }
}

/// Enters the process. Whoever calls it has installed a subscriber for its log.
pub fn main(arguments: &[String]) -> ExitCode {
    let Some(arguments) = Arguments::parse(arguments) else { return ExitCode::from(2) };
    // A session of its own, so that a hang-up or stop of the daemon's session does not end this process.
    let _ = setsid();
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    let ran = runtime.and_then(|runtime| {
        let ran = runtime.block_on(run(arguments));
        // Connections that did not end in time end now.
        runtime.shutdown_background();
        ran
    });
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the dataplane cannot run");
            ExitCode::FAILURE
        }
    }
}

/// Every connection takes two descriptors.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Asks the process of this folder for its sockets; it ends once its connections have ended. `None` if there is none.
pub(super) fn take_over(data_dir: &Path) -> Option<InheritedSockets> {
    let control = ControlPath::of(data_dir).ok()?;
    let stream = StdUnixStream::connect(&control.path).ok()?;
    let received = receive_sockets(&stream);
    if let Err(error) = &received {
        tracing::warn!(%error, "the running dataplane process does not hand its sockets over");
    }
    received.ok()
}

fn receive_sockets(mut stream: &StdUnixStream) -> io::Result<InheritedSockets> {
    use io::{Read as _, Write as _};
    stream.set_read_timeout(Some(HAND_OVER_TIMEOUT))?;
    let mut request = serde_json::to_vec(&Request::HandOver)?;
    request.push(b'\n');
    stream.write_all(&request)?;
    // What it says before is for daemons. A byte at a time, because descriptors follow the end of a line.
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
        if byte == *b"\n" {
            if line == HANDING_OVER {
                return InheritedSockets::receive(stream);
            }
            line.clear();
        }
    }
}

/// The line after which sockets follow.
const HANDING_OVER: &[u8] = b"\"handing_over\"\n";

async fn run(arguments: Arguments) -> io::Result<()> {
    let mut inherited = InheritedSockets::default();
    if arguments.takes_over {
        inherited = take_over(&arguments.data_dir).ok_or_else(|| io::Error::other("there is nothing to take over"))?;
    }
    let control = ControlPath::of(&arguments.data_dir)?;
    let listener = match inherited.take(CONTROL) {
        Some(socket) => {
            let socket = std::os::unix::net::UnixListener::from(socket);
            socket.set_nonblocking(true)?;
            UnixListener::from_std(socket)?
        }
        None => bind(&control.path)?,
    };
    let dataplane = Arc::new(Dataplane::start_with(&arguments.data_dir, arguments.nodes, inherited));
    if let Some(state) = read_state(&arguments.data_dir) {
        dataplane.replace(state);
    }
    tracing::info!(pid = std::process::id(), "dataplane started");
    let (ends, mut end) = mpsc::channel(1);
    let ending = watch::Sender::new(false);
    let accepting = accept(Arc::clone(&dataplane), Arc::new(listener), ends, ending.subscribe());
    let limit = tokio::select! {
        () = accepting => None,
        reason = end.recv() => match reason {
            Some(End::Stopped) | None => Some(STOP_DRAIN),
            Some(End::HandedOver) => None,
        },
        () = folder_gone(&control.path) => Some(Duration::ZERO),
    };
    ending.send_replace(true);
    dataplane.shut_down();
    drain(&dataplane, limit).await;
    tracing::info!(pid = std::process::id(), "dataplane ended");
    Ok(())
}

/// Why the process ends.
enum End {
    Stopped,
    HandedOver,
}

/// Listens at the path; what a process that was killed left there is replaced.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if StdUnixStream::connect(path).is_ok() {
                return Err(error);
            }
            fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn read_state(data_dir: &Path) -> Option<crate::NetworkState> {
    let bytes = fs::read(data_dir.join(STATE_FILE)).ok()?;
    serde_json::from_slice(&bytes).map_err(|error| tracing::warn!(%error, "the network state is damaged")).ok()
}

/// Returns once the socket is not there any more: the data folder was removed, and nobody can reach this process again.
async fn folder_gone(path: &Path) {
    let inode = || fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let own = inode();
    while inode() == own {
        sleep(FOLDER_CHECK).await;
    }
}

/// Waits until no connection is open, or for so long at most.
async fn drain(dataplane: &Dataplane, limit: Option<Duration>) {
    let began = Instant::now();
    while dataplane.has_connections() && limit.is_none_or(|limit| began.elapsed() < limit) {
        sleep(REPORT_INTERVAL).await;
    }
}

async fn accept(
    dataplane: Arc<Dataplane>,
    listener: Arc<UnixListener>,
    ends: mpsc::Sender<End>,
    ending: watch::Receiver<bool>,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(REPORT_INTERVAL).await;
            continue;
        };
        let (read, write) = stream.into_split();
        let session = Session {
            dataplane: Arc::clone(&dataplane),
            listener: Arc::clone(&listener),
            ends: ends.clone(),
            ending: ending.clone(),
            write,
        };
        tokio::spawn(session.serve(read));
    }
}

/// One connection of a daemon, or of the process that takes over.
struct Session {
    dataplane: Arc<Dataplane>,
    listener: Arc<UnixListener>,
    ends: mpsc::Sender<End>,
    ending: watch::Receiver<bool>,
    write: OwnedWriteHalf,
}

impl Session {
    async fn serve(mut self, read: OwnedReadHalf) {
        if let Err(error) = self.exchange(BufReader::new(read)).await {
            tracing::debug!(%error, "a daemon left");
        }
    }

    async fn exchange(&mut self, read: BufReader<OwnedReadHalf>) -> io::Result<()> {
        let hello = Hello { pid: std::process::id(), binary: BinaryId::own() };
        self.send(&Event::Hello(hello)).await?;
        let mut lines = read.lines();
        let mut reports = interval(REPORT_INTERVAL);
        reports.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut reported, mut ending) = (None, self.ending.clone());
        loop {
            let request = tokio::select! {
                line = lines.next_line() => match line? {
                    Some(line) => Some(serde_json::from_str(&line)?),
                    None => return Ok(()),
                },
                _ = reports.tick() => None,
                _ = ending.wait_for(|ending| *ending) => return Ok(()),
            };
            match request {
                Some(Request::State(state)) => {
                    self.dataplane.replace(state);
                    self.dataplane.close_unused();
                }
                Some(Request::Feed(message)) => self.dataplane.update(message),
                Some(Request::Stop) => {
                    let _ = self.ends.send(End::Stopped).await;
                    return Ok(());
                }
                Some(Request::HandOver) => return self.hand_over().await,
                None => self.dataplane.recheck(),
            }
            let report = self.dataplane.report();
            if reported.as_ref() != Some(&report) {
                self.send(&Event::Report(report.clone())).await?;
                reported = Some(report);
            }
        }
    }

    async fn send(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        self.write.write_all(&line).await
    }

    async fn hand_over(&mut self) -> io::Result<()> {
        self.write.write_all(HANDING_OVER).await?;
        let mut sockets = self.dataplane.hand_over();
        sockets.extend(NamedSocket::of(CONTROL.to_owned(), self.listener.as_ref()));
        let stream: &UnixStream = self.write.as_ref();
        // The descriptor shares its flags with the one that tokio uses, which does nothing any more.
        let stream = StdUnixStream::from(std::os::fd::AsFd::as_fd(stream).try_clone_to_owned()?);
        stream.set_nonblocking(false)?;
        let sent = tokio::task::spawn_blocking(move || socket_handover::send(&stream, &sockets)).await;
        let _ = self.ends.send(End::HandedOver).await;
        sent.map_err(io::Error::other)?
    }
}
