//! `longshore up`: runs a manifest on this machine, in the foreground.
//!
//! ```text
//! manifest ─▶ does a daemon answer at the socket? ─ yes ─▶ apply, wait, print addresses, exit
//!                       │ no
//!                       └─▶ start one in this process ─▶ apply, wait, print addresses ─▶ run until a signal
//! ```
//!
//! Owns: this order, what Ctrl-C does, and the printed text. Must not touch: what a daemon does.
//! Invariant: it stops only the deployment of its manifest, and only on Ctrl-C.

mod addresses;
mod background;
mod http_port;
mod signals;

use std::{
    convert::Infallible,
    fmt::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use longshore_api::{AppliedManifest, ApplyRequest, Client, ClientError, Endpoint, PullChoice};
use longshore_compose::Loaded;
use longshore_model::{Driver, NodeAttributes};
use longshore_server::{Daemon, ServerConfig};

use self::signals::{Signals, StopRequest};
use super::{logs_exec, server};
use crate::{
    container_engine::{self, Engine},
    daemon_client::{
        port_conditions, print_refusal,
        wait::{self, Goal, WaitLimit, WaitOutcome},
    },
    exit::Exit,
    image_build::{self, Rebuild},
    manifest::{self, EngineArgs, ManifestArgs, ParsedManifest},
    output::{
        live_region::{LiveRegion, Stream},
        print,
        progress::ChangeReporter,
        style::{Colour, Tone},
    },
    paths::{self, LocalNode, NodeArgs, OverlayArgs},
};

const EXAMPLES: &str = "\
Examples:
  longshore up                            compose.yaml of this directory
  longshore up -f compose.yaml --nodes 3  on three nodes that share this machine
  longshore up --build                    rebuild the images of services with `build`
  longshore up -d                         in the background
  longshore up --keep                     Ctrl-C stops the daemon and leaves replicas running

Ctrl-C stops the deployment, as `docker compose up` does, and exits; pressed again, it exits at once. \
Any other signal stops the daemon only: replicas keep running, and the next `longshore up` or `longshore server` takes them over.";

/// Time between two polls once the deployment is active.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// Time limit of stopping the deployment.
const STOP_TIMEOUT: Duration = Duration::from_mins(2);

/// Run a manifest on this machine: start a daemon, or use the running one, and wait until the deployment is active.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// Namespace of the deployment.
    #[arg(short, long, env = "LONGSHORE_NAMESPACE", value_name = "NAME", default_value = "default")]
    namespace: String,
    /// Number of nodes to run on this machine.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = paths::node_count())]
    nodes: u16,
    /// Build the images of services with `build` even if they exist.
    #[arg(long)]
    build: bool,
    #[command(flatten)]
    engine: EngineArgs,
    /// Leave replicas running on Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// Return once the deployment is active; a daemon that has to be started runs on in the background.
    #[arg(short, long)]
    detach: bool,
    /// How long to wait until the deployment is active, in seconds; 300 unless given. Where it is given, replicas that
    /// fit on no node are waited for, too.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    #[command(flatten)]
    node: NodeArgs,
    /// Unix socket of the daemon; `longshore.sock` in the data directory unless given.
    #[arg(long, env = "LONGSHORE_SOCKET", value_name = "PATH")]
    socket: Option<PathBuf>,
    /// HTTP address for browsers of this machine, a loopback address; `longshore dashboard` prints the link. Unless
    /// given, a free port, and the same one again at the next start.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", hide_default_value = true)]
    http: SocketAddr,
    /// Disk that replicas on this machine may use, such as 100GiB; the scheduler counts `default_ephemeral_disk` for each
    /// of them. Without it disk is measured and shown, and not counted.
    #[arg(long, value_name = "SIZE", value_parser = paths::disk_size)]
    disk: Option<u64>,
    #[command(flatten)]
    overlay: OverlayArgs,
    /// Socket of the container engine; the usual places are tried unless given.
    #[arg(long, value_name = "PATH")]
    docker: Option<PathBuf>,
}

impl UpArgs {
    fn rebuild(&self) -> Rebuild {
        if self.build { Rebuild::Always } else { Rebuild::IfMissing }
    }
}

pub(crate) fn run(mut args: UpArgs) -> anyhow::Result<Exit> {
    let manifest = std::mem::take(&mut args.manifest);
    let Some(mut parsed) = manifest::parse(manifest, &args.namespace)? else { return Ok(Exit::BadInput) };
    // As Compose does: what is on this machine is used as it is, unless the manifest or the user says otherwise.
    args.engine.add_to(&mut parsed.request, Some(PullChoice::Missing));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("the async runtime did not start")?.block_on(up(args, parsed))
}

async fn up(args: UpArgs, parsed: ParsedManifest) -> anyhow::Result<Exit> {
    // Before anything starts: an early signal must not meet the default handler.
    let signals = Signals::install()?;
    let node = args.node.resolve()?;
    let socket = paths::socket(args.socket.clone(), &node.data_dir)?;
    let client = Client::new(Endpoint::Unix(socket.clone()));
    let engine = container_engine::find(args.docker.clone());
    if let Engine::Found(engine) = &engine
        && let Err(message) =
            tokio::task::block_in_place(|| image_build::build_images(&parsed.loaded, engine, args.rebuild()))
    {
        print::stderr(&message);
        return Ok(Exit::Error);
    }
    let daemon = match client.nodes().await {
        Ok(_) => {
            if args.nodes > 1 || args.disk.is_some() {
                print::stderr("a daemon runs already: --nodes and --disk are options of its start");
            }
            None
        }
        Err(ClientError::Unreachable { .. }) => {
            if let Some(message) = missing_engine(&parsed.loaded, &engine) {
                print::stderr(&message);
                return Ok(Exit::Error);
            }
            if args.detach {
                background::start(&client, &args, &node, &socket).await?;
                None
            } else {
                let (data_dir, http) = (node.data_dir.clone(), http_port::preferred(args.http, &node.data_dir));
                let config = config(&args, node, socket.clone(), engine, http)?;
                let daemon = server::start(config).await?;
                http_port::remember(http, &data_dir);
                Some(daemon)
            }
        }
        Err(error) => return Err(error.into()),
    };
    let foreground = Foreground { client: &client, args: &args, socket: &socket, daemon: daemon.as_ref() };
    let outcome = foreground.run(&parsed, signals).await;
    if let Some(daemon) = daemon {
        daemon.shut_down().await;
    }
    outcome
}

/// One run of `up`, once a daemon answers.
struct Foreground<'a> {
    client: &'a Client,
    args: &'a UpArgs,
    socket: &'a Path,
    /// The daemon of this process; `None` if another one was running.
    daemon: Option<&'a Daemon>,
}

impl Foreground<'_> {
    /// Applies the manifest, waits until it is active, and with a daemon of its own runs until a signal.
    async fn run(&self, parsed: &ParsedManifest, mut signals: Signals) -> anyhow::Result<Exit> {
        // As `docker compose up`, which starts what has ended again.
        let request = ApplyRequest { rerun_ended: true, ..parsed.request.clone() };
        let applied = match self.client.apply(&request).await {
            Ok(applied) => applied,
            Err(ClientError::Refused(envelope)) => return Ok(print_refusal(&envelope, envelope.hint())),
            Err(error) => return Err(error.into()),
        };
        applied.warnings.iter().for_each(|warning| print::stderr(warning));
        let AppliedManifest { namespace, deployment, revision, .. } = applied;
        let goal = Goal { namespace, deployment, revision };
        let mut region = LiveRegion::new(Stream::Stderr);
        let limit = WaitLimit::of(self.args.timeout);
        let outcome = tokio::select! {
            outcome = wait::until_active(self.client, &goal, limit, &mut region) => outcome?,
            request = signals.next() => {
                region.keep();
                return self.leave(&goal, request, &mut signals).await;
            }
        };
        let active = outcome == WaitOutcome::Complete;
        let exit = outcome.report(&goal);
        if active {
            self.print_addresses(&goal).await?;
        }
        // Without a terminal there is nobody who could repair a deployment that failed.
        if self.daemon.is_none() || (!active && !region.redraws()) {
            let stays = self.daemon.is_none() || self.args.keep;
            return if stays { Ok(exit) } else { self.stop(&goal).await.map(|_| exit) };
        }
        let effect = if self.args.keep { "stops the daemon; replicas keep running" } else { "stops it and exits" };
        print::stderr(&format!("\nCtrl-C {effect}"));
        let request = tokio::select! {
            lost = self.watch(&goal, &mut region) => return Err(lost.into()),
            never = self.print_logs(&goal) => match never {},
            request = signals.next() => request,
        };
        // A deployment that never became active is a failure, however it is left.
        let left = self.leave(&goal, request, &mut signals).await?;
        Ok(if active { left } else { exit })
    }

    /// Prints the addresses of the services, and commands to try.
    async fn print_addresses(&self, goal: &Goal) -> anyhow::Result<()> {
        let deployment = self.client.deployment(&goal.namespace, &goal.deployment).await?;
        let replicas = self.client.replicas().await?;
        port_conditions::print_warnings(self.client, &goal.namespace, &goal.deployment).await;
        let colour = Colour::of_stdout();
        let mut out = format!("{} is {}, revision {}\n", goal.deployment, deployment.status, deployment.revision);
        for (service, address) in addresses::of_deployment(&deployment, &replicas) {
            let _ = writeln!(out, "  {service}  {}", colour.paint(Tone::Strong, &address));
        }
        let name = &goal.deployment;
        out.push_str("\nTry next, in another terminal:\n");
        // Commands find the default socket without help.
        if self.socket != paths::default_socket() {
            let _ = writeln!(out, "  export LONGSHORE_SOCKET={}", self.socket.display());
        }
        let _ = writeln!(out, "  longshore status {name}");
        if let Some(replica) = replicas.iter().find(|replica| replica.deployment == *name) {
            let _ = writeln!(out, "  longshore why {}", replica.id);
        }
        if let Some(service) = deployment.services.first() {
            let _ = writeln!(out, "  longshore scale {name} {}={}", service.name, service.desired + 1);
        }
        let nodes = self.client.nodes().await?;
        if let Some(last) = nodes.last().filter(|_| nodes.len() > 1) {
            let _ = writeln!(out, "  longshore node drain {0}\n  longshore node isolate {0}", last.name);
        }
        if self.client.login_link().await?.url.is_some_and(|url| url.starts_with("http://")) {
            out.push_str("  longshore dashboard\n");
        }
        print::stdout(&out)
    }

    /// Prints what the services write. Without logs the deployment is still watched.
    async fn print_logs(&self, goal: &Goal) -> Infallible {
        if let Err(error) = logs_exec::follow(self.client, &goal.namespace, &goal.deployment).await {
            print::stderr(&format!("the output of {} cannot be shown: {error:#}", goal.deployment));
        }
        std::future::pending().await
    }

    /// Prints changes of replicas until a request fails.
    async fn watch(&self, goal: &Goal, region: &mut LiveRegion) -> ClientError {
        let (mut reporter, colour, mut first) = (ChangeReporter::with_last_lines(), Colour::of_stderr(), true);
        loop {
            let replicas = match self.client.replicas().await {
                Ok(replicas) => replicas,
                Err(error) => return error,
            };
            let own = replicas.into_iter().filter(|replica| replica.deployment == goal.deployment);
            let changes = reporter.changes(&own.collect::<Vec<_>>(), colour);
            // The first poll reports every replica, which was printed while waiting.
            changes.iter().filter(|_| !first).for_each(|line| region.print_above(line));
            first = false;
            tokio::time::sleep(WATCH_INTERVAL).await;
        }
    }

    async fn leave(&self, goal: &Goal, request: StopRequest, signals: &mut Signals) -> anyhow::Result<Exit> {
        let name = &goal.deployment;
        if self.daemon.is_none() {
            print::stderr(&format!("{name} keeps running under the daemon that was already there"));
            return Ok(Exit::Success);
        }
        match request {
            StopRequest::Deployment if !self.args.keep => tokio::select! {
                stopped = self.stop(goal) => stopped,
                _ = signals.next() => {
                    print::stderr("exited at once; replicas that still run keep running");
                    Ok(Exit::Error)
                }
            },
            StopRequest::Deployment | StopRequest::Daemon => {
                print::stderr(&format!("daemon stopped; {name} keeps running, the next `longshore up` takes it over"));
                Ok(Exit::Success)
            }
        }
    }

    async fn stop(&self, goal: &Goal) -> anyhow::Result<Exit> {
        print::stderr(&format!("stopping {}", goal.deployment));
        self.client.remove(&goal.namespace, &goal.deployment).await?;
        let outcome = wait::until_removed(self.client, goal, STOP_TIMEOUT).await?;
        if outcome == WaitOutcome::Complete {
            print::stderr("stopped");
        }
        let others = self.client.deployments().await?.into_iter().map(|deployment| deployment.name);
        for name in others.filter(|name| *name != goal.deployment) {
            let taker = "the next `longshore up` or `longshore server` takes it over";
            print::stderr(&format!("{name} keeps running, {taker}"));
        }
        Ok(outcome.report(goal))
    }
}

fn config(
    args: &UpArgs,
    node: LocalNode,
    socket: PathBuf,
    engine: Engine,
    http: SocketAddr,
) -> anyhow::Result<ServerConfig> {
    let LocalNode { name, data_dir } = node;
    Ok(ServerConfig {
        extra_nodes: paths::extra_nodes(&name, args.nodes),
        node: name,
        socket,
        data_dir,
        listen: None,
        advertise: None,
        http: Some(http),
        disk_bytes: args.disk,
        attributes: NodeAttributes::default(),
        docker: match engine {
            Engine::Found(path) => vec![path],
            // Nothing needs it yet; what is applied later may.
            Engine::Unreachable(..) | Engine::Missing => container_engine::candidates(args.docker.clone()),
        },
        overlay: args.overlay.mode(),
        shim: Some(server::own_command("shim")?),
        // Published ports are closed with the command, as Compose does.
        dataplane: None,
    })
}

/// The error if services need containers and no engine was found.
fn missing_engine(loaded: &Loaded, engine: &Engine) -> Option<String> {
    let problem = match engine {
        Engine::Found(_) => return None,
        Engine::Unreachable(path, error) => format!("the engine at `{}` does not answer: {error}", path.display()),
        Engine::Missing => "there is no Docker Engine on this machine".to_owned(),
    };
    let containers = loaded.spec.services.iter().filter(|(_, spec)| spec.driver != Driver::Exec);
    let names: Vec<String> = containers.map(|(name, _)| format!("`{name}`")).collect();
    let services = if names.len() == 1 { "service" } else { "services" };
    (!names.is_empty()).then(|| {
        format!(
            "error: {services} {} need containers, and {problem}\n\nhint: start Docker, or name its socket with \
             `--docker`, or run processes without containers with `x-longshore: {{driver: exec}}`",
            names.join(", ")
        )
    })
}
