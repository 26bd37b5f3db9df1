//! The daemon's side of the dataplane process.
//!
//! Owns: starting the process while there is work for it, starting it again, replacing one of another binary, and passing
//! the network state on. Must not touch: sockets of clients. Invariant: dropping it leaves the process running.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longshore_model::NodeName;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    process::Command,
    sync::mpsc,
    task::AbortHandle,
    time::{sleep, timeout},
};

use super::{
    has_work,
    protocol::{BinaryId, ControlPath, DataplaneReport, Event, Hello, Request},
};
use crate::{NetworkFeed, NetworkState};

/// Argument that makes a process take over from the running one.
pub(super) const TAKE_OVER: &str = "--take-over";
/// The log of the process in the data folder, and the length at which the next process begins another one.
const LOG: (&str, u64) = ("dataplane.log", 4 << 20);
/// Time a process has to answer after it was started.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two attempts to connect to a process that is starting.
const CONNECT_PAUSE: Duration = Duration::from_millis(10);
/// Shortest and longest pause between two attempts to start one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Time between two looks whether there is work.
const WORK_CHECK: Duration = Duration::from_secs(1);

/// How the process is started.
#[derive(Clone, Debug)]
pub struct DataplaneCommand {
    /// The command line that enters [`super::main`].
    pub command: Vec<String>,
    /// The data folder.
    pub data_dir: PathBuf,
    /// The nodes of this machine.
    pub nodes: BTreeSet<NodeName>,
}

/// Keeps a dataplane process running while there is work for it.
#[derive(Debug)]
pub struct DataplaneClient {
    shared: Arc<Shared>,
    feed: mpsc::UnboundedSender<NetworkFeed>,
    task: AbortHandle,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<NetworkState>,
    report: Mutex<DataplaneReport>,
}

impl Drop for DataplaneClient {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl DataplaneClient {
    /// Starts with a state. Needs a tokio runtime.
    pub fn start(command: DataplaneCommand, state: NetworkState) -> Self {
        let shared = Arc::new(Shared { state: Mutex::new(state), report: Mutex::default() });
        let (feed, messages) = mpsc::unbounded_channel();
        let supervisor = Supervisor { command, shared: Arc::clone(&shared), messages, pause: PAUSES.0 };
        let task = tokio::spawn(supervisor.run()).abort_handle();
        Self { shared, feed, task }
    }

    /// Passes a message on.
    pub fn update(&self, message: NetworkFeed) {
        let mut state = lock(&self.shared.state);
        if state.apply(message.clone()) {
            // Sent with the lock held: whoever reads the state knows that later messages are in the channel.
            let _ = self.feed.send(message);
        }
    }

    /// What the process reported last.
    pub fn report(&self) -> DataplaneReport {
        lock(&self.shared.report).clone()
    }
}

/// A connection to the process.
struct Connection {
    hello: Hello,
    lines: Lines<BufReader<OwnedReadHalf>>,
    write: OwnedWriteHalf,
}

struct Supervisor {
    command: DataplaneCommand,
    shared: Arc<Shared>,
    messages: mpsc::UnboundedReceiver<NetworkFeed>,
    pause: Duration,
}

impl Supervisor {
    async fn run(mut self) {
        loop {
            match self.connect().await {
                Ok(Some(connection)) => {
                    self.pause = PAUSES.0;
                    if let Err(error) = self.follow(connection).await {
                        tracing::warn!(%error, "the dataplane process is gone");
                    }
                    *lock(&self.shared.report) = DataplaneReport::default();
                }
                Ok(None) => self.wait_for_work().await,
                Err(error) => {
                    tracing::warn!(%error, "the dataplane process cannot be started; published ports are closed");
                    sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    fn has_work(&self) -> bool {
        has_work(&lock(&self.shared.state), &self.command.nodes)
    }

    async fn wait_for_work(&mut self) {
        // Messages are in the state already.
        let _ = timeout(WORK_CHECK, self.messages.recv()).await;
    }

    /// A connection to a process of this binary; `None` if there is no work for one.
    async fn connect(&self) -> io::Result<Option<Connection>> {
        let has_work = self.has_work();
        match open(&self.command.data_dir).await {
            Ok(running) if running.hello.binary == BinaryId::own() || !has_work => Ok(Some(running)),
            Ok(other) => {
                tracing::info!(pid = other.hello.pid, "another binary's dataplane process is replaced");
                let replaced = other.hello.pid;
                drop(other);
                self.spawn(Some(TAKE_OVER))?;
                self.wait_for_process(|hello| hello.pid != replaced).await.map(Some)
            }
            Err(_) if has_work => {
                self.spawn(None)?;
                self.wait_for_process(|_| true).await.map(Some)
            }
            Err(_) => Ok(None),
        }
    }

    async fn wait_for_process(&self, is_expected: impl Fn(&Hello) -> bool) -> io::Result<Connection> {
        let connecting = async {
            loop {
                match open(&self.command.data_dir).await {
                    Ok(connection) if is_expected(&connection.hello) => return connection,
                    Ok(_) | Err(_) => sleep(CONNECT_PAUSE).await,
                }
            }
        };
        timeout(START_TIMEOUT, connecting).await.map_err(|_| io::Error::other("it does not answer; see dataplane.log"))
    }

    fn spawn(&self, mode: Option<&str>) -> io::Result<()> {
        let DataplaneCommand { command, data_dir, nodes } = &self.command;
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let log = open_log(data_dir)?;
        let mut process = Command::new(program);
        process.args(arguments).arg(data_dir).args(mode).args(nodes.iter().map(NodeName::as_str));
        process.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut process = process.spawn()?;
        // Waited for, so that nothing is left of it in the table of processes.
        tokio::spawn(async move {
            let ended = process.wait().await;
            tracing::info!(pid = process.id(), status = ?ended.ok(), "a dataplane process ended");
        });
        Ok(())
    }

    /// Keeps a report. The process writes a log of its own, so what an operator has to know is said here, too.
    fn note(&self, report: DataplaneReport) {
        let mut known = lock(&self.shared.report);
        for condition in report.conditions.iter().filter(|condition| !known.conditions.contains(condition)) {
            tracing::warn!(code = condition.code.code(), message = condition.message, "published port not open");
        }
        *known = report;
    }

    /// Passes messages on and takes reports until there is no work, or the process is gone.
    async fn follow(&mut self, mut connection: Connection) -> io::Result<()> {
        let state = {
            let state = lock(&self.shared.state);
            while self.messages.try_recv().is_ok() {}
            state.clone()
        };
        connection.send(&Request::State(state)).await?;
        loop {
            if !self.has_work() {
                connection.send(&Request::Stop).await?;
                // It says no more than that it ends.
                while connection.lines.next_line().await?.is_some() {}
                return Ok(());
            }
            tokio::select! {
                message = self.messages.recv() => match message {
                    Some(message) => connection.send(&Request::Feed(message)).await?,
                    None => return Ok(()),
                },
                line = connection.lines.next_line() => {
                    let line = line?.ok_or(io::ErrorKind::UnexpectedEof)?;
                    match serde_json::from_str(&line)? {
                        Event::Report(report) => self.note(report),
                        Event::Hello(_) => {}
                    }
                }
                () = sleep(WORK_CHECK) => {}
            }
        }
    }
}

impl Connection {
    async fn send(&mut self, request: &Request) -> io::Result<()> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.write.write_all(&line).await
    }
}

/// Connects to the process of a folder.
async fn open(data_dir: &Path) -> io::Result<Connection> {
    let control = ControlPath::of(data_dir)?;
    let (read, write) = UnixStream::connect(&control.path).await?.into_split();
    let mut lines = BufReader::new(read).lines();
    let first = timeout(START_TIMEOUT, lines.next_line()).await??.ok_or(io::ErrorKind::UnexpectedEof)?;
    match serde_json::from_str(&first)? {
        Event::Hello(hello) => Ok(Connection { hello, lines, write }),
        Event::Report(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn open_log(data_dir: &Path) -> io::Result<fs::File> {
    let (name, longest) = LOG;
    let path = data_dir.join(name);
    if fs::metadata(&path).is_ok_and(|log| log.len() > longest) {
        fs::rename(&path, data_dir.join(format!("{name}.1")))?;
    }
    fs::OpenOptions::new().create(true).append(true).open(path)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one assignment or one applied message, so a panic elsewhere leaves no partial update.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
