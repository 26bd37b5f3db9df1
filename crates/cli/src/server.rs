//! `longshore server`: the daemon in the foreground.
//!
//! Owns: its options and its signals. Must not touch: what the daemon does.

use std::{env, net::SocketAddr, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use longshore_server::{Daemon, ServerConfig};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::{
    exit::Exit,
    place::{self, Engine, Seat},
    print,
};

/// Run the daemon of this machine, in the foreground.
///
/// On a new folder it makes a cluster of one node. SIGTERM ends it, and nothing that it has started.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore server --node n1")]
pub(crate) struct Options {
    #[command(flatten)]
    seat: Seat,
    /// How many nodes this machine shall be, to try things out; they share it, and are named `NAME-2` and so on.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = place::node_count())]
    nodes: u16,
    /// The socket for callers on this machine; `longshore.sock` in the daemon's folder unless given.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Listen here, encrypted, for other nodes and for operators with a token.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Where others reach this node; where it listens unless given.
    #[arg(long, value_name = "ADDRESS", requires = "listen")]
    advertise: Option<String>,
    /// Listen here, a loopback address, for browsers of this machine.
    #[arg(long, value_name = "ADDRESS")]
    http: Option<SocketAddr>,
    /// How much the daemon tells on standard error: error, warn, info, debug or trace.
    #[arg(long, env = "LONGSHORE_LOG", value_name = "LEVEL", default_value = "info")]
    log: tracing::Level,
    /// The container engine's socket; `/var/run/docker.sock` where there is one, unless given.
    #[arg(long, value_name = "PATH")]
    docker: Option<PathBuf>,
}

pub(crate) fn run(options: Options) -> anyhow::Result<Exit> {
    // What other libraries have to say is for their own developers. The one that elects leaders calls every member that is
    // away an error, ten times a second.
    let ours = Targets::new()
        .with_target("longshore", options.log)
        .with_target("openraft", LevelFilter::OFF)
        .with_default(LevelFilter::ERROR);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false).with_target(false);
    tracing_subscriber::registry().with(lines.with_filter(ours)).init();
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
    let (folder, node) = options.seat.taken()?;
    Ok(ServerConfig {
        socket: place::socket_of(options.socket, &folder)?,
        data_dir: folder,
        beside: place::nodes_beside(&node, options.nodes),
        node,
        listen: options.listen,
        advertise: options.advertise,
        http: options.http,
        // An engine that is down now may be up later, and the agent keeps asking.
        docker: match place::engine(options.docker) {
            Engine::At(path) | Engine::Mute(path, _) => Some(path),
            Engine::None => None,
        },
        shim: Some(shim()?),
    })
}

/// The command that enters the shim: this very program.
pub(crate) fn shim() -> anyhow::Result<Vec<String>> {
    let program = env::current_exe().context("the program cannot be found")?;
    Ok(vec![program.to_string_lossy().into_owned(), "shim".to_owned()])
}
