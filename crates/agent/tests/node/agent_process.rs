//! An agent as a process of its own, so that it can be killed.
//!
//! It reaches the story over a unix socket, one JSON document per line: work comes in, reports go out.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
};

use futures_util::{FutureExt, future::BoxFuture};
use longshore_agent::{
    Agent, AgentConfig, ControlLink, DockerConfig, ExecConfig, FileContents, Heard, LinkError, RegistryLogin,
};
use longshore_model::{Cursor, Driver, Report, WorkFeed, work::FileWanted};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream, unix::OwnedWriteHalf},
    sync::{Mutex, mpsc},
};

use crate::{control::Control, world::Ground};

/// What the process is told on its command line.
#[derive(Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) node: String,
    pub(crate) cluster_id: String,
    pub(crate) folder: PathBuf,
    pub(crate) docker: Option<PathBuf>,
    pub(crate) socket: PathBuf,
}

impl Orders {
    /// Those of the one node of a story.
    pub(crate) fn of(ground: &Ground, driver: Driver) -> Self {
        Self {
            node: "n1".to_owned(),
            cluster_id: ground.cluster_id.clone(),
            folder: ground.folder().join("agent"),
            docker: (driver == Driver::Docker).then(|| ground.engine().socket()),
            socket: ground.folder().join("control.sock"),
        }
    }

    /// Where it finds what secrets hold.
    pub(crate) fn files(&self) -> PathBuf {
        self.socket.with_extension("files")
    }
}

/// Starts the process.
pub(crate) fn spawn(orders: &Orders) -> Child {
    let text = serde_json::to_string(orders).unwrap();
    Command::new(std::env::current_exe().unwrap()).args(["agent", &text]).stdin(Stdio::null()).spawn().unwrap()
}

/// Serves the control plane at a socket, for ever.
pub(crate) fn serve(control: Arc<Control>, socket: &Path) {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Some(mut feed) = control.open_feed() else { continue };
            let (read, mut write) = stream.into_split();
            tokio::spawn(async move {
                while let Some(message) = feed.recv().await {
                    let line = serde_json::to_string(&message).unwrap() + "\n";
                    if write.write_all(line.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
            let control = Arc::clone(&control);
            tokio::spawn(async move {
                let mut lines = BufReader::new(read).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let _ = control.hear(serde_json::from_str(&line).unwrap());
                }
            });
        }
    });
}

/// The process itself.
pub(crate) fn main(orders: &str) -> ExitCode {
    let orders: Orders = serde_json::from_str(orders).unwrap();
    let files = orders.files();
    let shim = vec![std::env::current_exe().unwrap().to_string_lossy().into_owned(), "shim".to_owned()];
    let mut config = AgentConfig::new(orders.node.as_str().into(), orders.cluster_id, orders.folder);
    config.docker = orders.docker.map(DockerConfig::at);
    config.exec = Some(ExecConfig { shim });
    config.heartbeat_interval = std::time::Duration::from_millis(200);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let link = SocketLink { socket: orders.socket, files, writer: Mutex::new(None) };
        let _agent = Agent::start(&config, Arc::new(link)).unwrap();
        std::future::pending::<()>().await;
    });
    ExitCode::SUCCESS
}

struct SocketLink {
    socket: PathBuf,
    files: PathBuf,
    writer: Mutex<Option<OwnedWriteHalf>>,
}

fn away(error: &std::io::Error) -> LinkError {
    LinkError::Away(error.to_string())
}

impl ControlLink for SocketLink {
    fn connect(&self, _known: Option<Cursor>) -> BoxFuture<'_, Result<mpsc::Receiver<WorkFeed>, LinkError>> {
        async {
            let stream = UnixStream::connect(&self.socket).await.map_err(|error| away(&error))?;
            let (read, write) = stream.into_split();
            *self.writer.lock().await = Some(write);
            let (to, feed) = mpsc::channel(64);
            tokio::spawn(async move {
                let mut lines = BufReader::new(read).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let _ = to.send(serde_json::from_str(&line).unwrap()).await;
                }
            });
            Ok(feed)
        }
        .boxed()
    }

    fn report(&self, reports: Vec<Report>) -> BoxFuture<'_, Result<Heard, LinkError>> {
        async move {
            let mut writer = self.writer.lock().await;
            let writer = writer.as_mut().ok_or_else(|| LinkError::Away("not connected".to_owned()))?;
            let line = serde_json::to_string(&reports).unwrap() + "\n";
            writer.write_all(line.as_bytes()).await.map(|()| Heard::default()).map_err(|error| away(&error))
        }
        .boxed()
    }

    fn file(&self, wanted: FileWanted) -> BoxFuture<'_, Result<FileContents, LinkError>> {
        let found = std::fs::read(self.files.join(wanted.name.as_str()));
        async { found.map(FileContents).map_err(|error| LinkError::Refused(error.to_string())) }.boxed()
    }

    fn registry_login(&self, _registry: String) -> BoxFuture<'_, Result<Option<RegistryLogin>, LinkError>> {
        async { Ok(None) }.boxed()
    }
}
