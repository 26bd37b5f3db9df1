//! An agent in its own process, so that it can be killed.
//!
//! It connects to the story over a Unix socket and exchanges one JSON document per line: work in, reports out.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
};

use futures_util::{FutureExt, future::BoxFuture};
use longshore_agent::{
    Agent, AgentConfig, ControlLink, DockerConfig, ExecConfig, FileContents, LinkError, RegistryLogin, ReportAck,
};
use longshore_model::{Cursor, Driver, Report, WorkFeed, agent_protocol::FileRequest};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream, unix::OwnedWriteHalf},
    sync::{Mutex, mpsc},
};

use crate::{fake_control_plane::FakeControlPlane, test_node::TestEnv};

/// The arguments of the process, as JSON on its command line.
#[derive(Serialize, Deserialize)]
pub(crate) struct AgentArgs {
    pub(crate) node: String,
    pub(crate) cluster_id: String,
    pub(crate) folder: PathBuf,
    pub(crate) docker: Option<PathBuf>,
    pub(crate) socket: PathBuf,
}

impl AgentArgs {
    /// The arguments for the node of a story.
    pub(crate) fn of(env: &TestEnv, driver: Driver) -> Self {
        Self {
            node: "n1".to_owned(),
            cluster_id: env.cluster_id.clone(),
            folder: env.folder().join("agent"),
            docker: (driver == Driver::Docker).then(|| env.engine().socket()),
            socket: env.folder().join("control.sock"),
        }
    }

    /// The folder with the contents of secrets, by name.
    pub(crate) fn files(&self) -> PathBuf {
        self.socket.with_extension("files")
    }
}

/// Starts the process.
pub(crate) fn spawn(args: &AgentArgs) -> Child {
    let text = serde_json::to_string(args).unwrap();
    Command::new(std::env::current_exe().unwrap()).args(["agent", &text]).stdin(Stdio::null()).spawn().unwrap()
}

/// Serves the control plane at a socket, for ever.
pub(crate) fn serve(control: Arc<FakeControlPlane>, socket: &Path) {
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
                    let _ = control.receive(serde_json::from_str(&line).unwrap());
                }
            });
        }
    });
}

/// The process itself.
pub(crate) fn main(args: &str) -> ExitCode {
    let args: AgentArgs = serde_json::from_str(args).unwrap();
    let files = args.files();
    let shim = vec![std::env::current_exe().unwrap().to_string_lossy().into_owned(), "shim".to_owned()];
    let mut config = AgentConfig::new(args.node.as_str().into(), args.cluster_id, args.folder);
    config.docker = args.docker.map(DockerConfig::at);
    config.exec = Some(ExecConfig { shim });
    config.heartbeat_interval = std::time::Duration::from_millis(200);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let link = SocketLink { socket: args.socket, files, writer: Mutex::new(None) };
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

fn unreachable(error: &std::io::Error) -> LinkError {
    LinkError::Unreachable(error.to_string())
}

impl ControlLink for SocketLink {
    fn connect(&self, _known: Option<Cursor>) -> BoxFuture<'_, Result<mpsc::Receiver<WorkFeed>, LinkError>> {
        async {
            let stream = UnixStream::connect(&self.socket).await.map_err(|error| unreachable(&error))?;
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

    fn report(&self, reports: Vec<Report>) -> BoxFuture<'_, Result<ReportAck, LinkError>> {
        async move {
            let mut writer = self.writer.lock().await;
            let writer = writer.as_mut().ok_or_else(|| LinkError::Unreachable("not connected".to_owned()))?;
            let line = serde_json::to_string(&reports).unwrap() + "\n";
            writer.write_all(line.as_bytes()).await.map(|()| ReportAck::default()).map_err(|error| unreachable(&error))
        }
        .boxed()
    }

    fn file(&self, request: FileRequest) -> BoxFuture<'_, Result<FileContents, LinkError>> {
        let found = std::fs::read(self.files.join(request.name.as_str()));
        async { found.map(FileContents).map_err(|error| LinkError::Refused(error.to_string())) }.boxed()
    }

    fn registry_login(&self, _registry: String) -> BoxFuture<'_, Result<Option<RegistryLogin>, LinkError>> {
        async { Ok(None) }.boxed()
    }
}
