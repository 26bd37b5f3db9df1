//! `longshore server`: the daemon in the foreground.
//!
//! Owns: its options and its signals. Must not touch: what the daemon does.

use std::{env, fs, net::SocketAddr, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use longshore_server::{Daemon, ServerConfig};
use tokio::signal::unix::{SignalKind, signal};

use crate::{exit::Exit, print};

/// Where a daemon keeps everything unless told otherwise.
pub(crate) const DATA_DIR: &str = "/var/lib/longshore";
const DOCKER: &str = "/var/run/docker.sock";

/// Run the daemon of this machine, in the foreground.
///
/// On a new folder it makes a cluster of one node. SIGTERM ends it, and nothing that it has started.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where the daemon keeps everything.
    #[arg(long, value_name = "DIRECTORY", default_value = DATA_DIR)]
    data_dir: PathBuf,
    /// Name of this node; the machine's name unless given.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// The socket for callers on this machine; `longshore.sock` in the daemon's folder unless given.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Also listen here, a loopback address with a port, for callers with the token of the file `token`.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The container engine's socket; `/var/run/docker.sock` where there is one, unless given.
    #[arg(long, value_name = "PATH")]
    docker: Option<PathBuf>,
}

pub(crate) fn run(options: Options) -> anyhow::Result<Exit> {
    let config = config(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("the runtime did not start")?.block_on(serve(config))
}

async fn serve(config: ServerConfig) -> anyhow::Result<Exit> {
    // Before anything runs: a signal that comes early must not find the default at work.
    let mut terminate = signal(SignalKind::terminate()).context("signals cannot be heard")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("signals cannot be heard")?;
    let (node, socket) = (config.node.clone(), config.socket.clone());
    let daemon = Daemon::start(config).await?;
    print::note(&format!("node {node} listens at {}", socket.display()));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    daemon.shut_down().await;
    print::note("ended; what runs on this node runs on");
    Ok(Exit::Success)
}

fn config(options: Options) -> anyhow::Result<ServerConfig> {
    let node = match options.node {
        Some(name) => name,
        None => fs::read_to_string("/proc/sys/kernel/hostname").context("this machine has no name; use --node")?,
    };
    let program = env::current_exe().context("the program cannot be found")?;
    let found = PathBuf::from(DOCKER);
    Ok(ServerConfig {
        socket: options.socket.unwrap_or_else(|| options.data_dir.join("longshore.sock")),
        data_dir: options.data_dir,
        node: node.trim().into(),
        listen: options.listen,
        docker: options.docker.or_else(|| found.exists().then_some(found)),
        shim: Some(vec![program.to_string_lossy().into_owned(), "shim".to_owned()]),
    })
}
