//! `longshore server`: runs the daemon in the foreground; and the dataplane process that belongs to it.
//!
//! Owns: its options, its log filter and its signals. Must not touch: what the daemon does.

use std::{env, net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Args;
use longshore_server::{Daemon, ServerConfig, StartError};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::{
    attribute_args::AttributeArgs,
    container_engine,
    exit::Exit,
    input::pair,
    output::print,
    paths::{self, LocalNode, NodeArgs, OverlayArgs},
};

/// Run the daemon of this machine in the foreground.
///
/// With a new data directory it creates a cluster of one node. SIGTERM ends the daemon; replicas keep running.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore server --node n1\n  longshore server --node n2 --pool batch --label \
                        zone=east --reserve memory=1GiB,cpu=500m --device gpu=4")]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    node: NodeArgs,
    /// Number of nodes to run on this machine, to try things out; the further ones are named `NAME-2` and so on.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = paths::node_count())]
    nodes: u16,
    /// Unix socket for local clients; `longshore.sock` in the data directory unless given.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// TLS address for other nodes and for clients with a token.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Address at which other nodes reach this one; the `--listen` address unless given.
    #[arg(long, value_name = "ADDRESS", requires = "listen")]
    advertise: Option<String>,
    /// HTTP address for browsers of this machine; must be a loopback address.
    #[arg(long, value_name = "ADDRESS")]
    http: Option<SocketAddr>,
    /// Log level on standard error: error, warn, info, debug or trace.
    #[arg(long, env = "LONGSHORE_LOG", value_name = "LEVEL", default_value = "info")]
    log: tracing::Level,
    /// Disk that replicas on this machine may use, such as 100GiB; the scheduler counts `default_ephemeral_disk` for each
    /// of them. Without it disk is measured and shown, and not counted.
    #[arg(long, value_name = "SIZE", value_parser = paths::disk_size)]
    disk: Option<u64>,
    #[command(flatten)]
    overlay: OverlayArgs,
    #[command(flatten)]
    attributes: AttributeArgs,
    /// Label of the node; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,
    /// Socket of the container engine; the usual places are tried unless given.
    #[arg(long, value_name = "PATH")]
    docker: Option<PathBuf>,
    /// Leave the session of the terminal; `up -d` starts the daemon with it.
    #[arg(long, hide = true)]
    own_session: bool,
}

pub(crate) fn run(args: ServerArgs) -> anyhow::Result<Exit> {
    if args.own_session {
        rustix::process::setsid().context("the daemon cannot leave the session of the terminal")?;
    }
    log_to_stderr(args.log);
    let config = config(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("the async runtime did not start")?.block_on(serve(config))
}

/// The dataplane process, which the daemon starts and which outlives it.
pub(crate) fn dataplane(arguments: &[String]) -> ExitCode {
    let level = env::var("LONGSHORE_LOG").ok().and_then(|level| level.parse().ok());
    log_to_stderr(level.unwrap_or(tracing::Level::INFO));
    longshore_server::dataplane_main(arguments)
}

fn log_to_stderr(level: tracing::Level) {
    // Logs of libraries are for their developers. openraft logs an error ten times a second for each unreachable
    // member.
    let ours = Targets::new()
        .with_target("longshore", level)
        .with_target("openraft", LevelFilter::OFF)
        .with_default(LevelFilter::ERROR);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false).with_target(false);
    tracing_subscriber::registry().with(lines.with_filter(ours)).init();
}

async fn serve(config: ServerConfig) -> anyhow::Result<Exit> {
    // Before the daemon starts: an early signal must not meet the default handler.
    let mut terminate = signal(SignalKind::terminate()).context("the signal handler cannot be installed")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("the signal handler cannot be installed")?;
    let (node, socket) = (config.node.clone(), config.socket.clone());
    let daemon = start(config).await?;
    print::stderr(&format!("node {node} listens at {}", socket.display()));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        why = daemon.failed() => {
            print::stderr(&format!(
                "error: this member cannot write its log: {why} (storage_failed)\n\nhint: replicas keep running; check the \
                 disk, the daemon continues from it when it is started again"
            ));
            return Ok(Exit::Error);
        }
    }
    daemon.shut_down().await;
    print::stderr("daemon stopped; replicas of this node keep running, and its published ports stay open");
    Ok(Exit::Success)
}

/// Starts the daemon, and says which nodes of an earlier start go: only a daemon that has started removes them.
pub(super) async fn start(config: ServerConfig) -> Result<Daemon, StartError> {
    end_with_panics();
    let names: Vec<String> = longshore_server::surplus_nodes(&config).iter().map(ToString::to_string).collect();
    let count = config.extra_nodes.len() + 1;
    let daemon = Daemon::start(config).await?;
    if !names.is_empty() {
        let (names, nodes) = (names.join(", "), if names.len() == 1 { "node" } else { "nodes" });
        print::stderr(&format!(
            "--nodes is {count} now: {nodes} {names} of this machine will be removed, their replicas move; a node that \
             is the home of a volume stays"
        ));
    }
    Ok(daemon)
}

/// A panic ends the process. A member that goes on with a part of its tasks dead answers probes and does half its work;
/// its supervisor starts it again, and replicas keep running.
fn end_with_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        print::stderr("error: the daemon panicked and ends; replicas of this node keep running");
        std::process::abort();
    }));
}

fn config(args: ServerArgs) -> anyhow::Result<ServerConfig> {
    let LocalNode { name, data_dir } = args.node.resolve()?;
    Ok(ServerConfig {
        socket: paths::socket(args.socket, &data_dir)?,
        data_dir,
        extra_nodes: paths::extra_nodes(&name, args.nodes),
        node: name,
        listen: args.listen,
        advertise: args.advertise,
        http: args.http,
        // An engine that is not there now may come later; the agent keeps looking.
        docker: container_engine::candidates(args.docker),
        disk_bytes: args.disk,
        attributes: args.attributes.declared(args.labels),
        overlay: args.overlay.mode(),
        shim: Some(own_command("shim")?),
        dataplane: Some(own_command("dataplane")?),
    })
}

/// A hidden command of this program, which the daemon starts.
pub(super) fn own_command(name: &str) -> anyhow::Result<Vec<String>> {
    let program = env::current_exe().context("the path of this program is unknown")?;
    Ok(vec![program.to_string_lossy().into_owned(), name.to_owned()])
}
