//! `longshore up`: a cluster of this one machine, with a manifest on it, in the foreground.
//!
//! ```text
//! manifest ─▶ a daemon answers at the socket? ─ yes ─▶ apply there, wait, say where it is, end
//!                       │ no
//!                       └─▶ start one here ─▶ apply, wait, say where it is ─▶ stay until told to end
//! ```
//!
//! Owns: the order of this, what Ctrl-C means, and what is said. Must not touch: what a daemon does.
//! Invariant: only what this command was asked to run is stopped by it; a signal that is not a person's stops nothing.

mod addresses;
mod signals;

use std::{fmt::Write as _, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::Args;
use longshore_api::{AppliedManifest, Client, ClientError, Endpoint};
use longshore_compose::Loaded;
use longshore_model::{Driver, NodeName};
use longshore_server::{Daemon, ServerConfig};

use self::signals::{Signals, Told};
use crate::{
    apply::{self, Judged},
    build::{self, When},
    exit::Exit,
    live::{Live, Screen, Side},
    manifest::Manifest,
    place::{self, Engine, Seat},
    print, progress, remote, server,
    style::{Colour, Tone},
    wait::{self, Ended, Goal},
};

const EXAMPLES: &str = "\
Examples:
  longshore up                            compose.yaml of this directory
  longshore up -f compose.yaml --nodes 3  on three nodes that share this machine
  longshore up --build                    images of services with `build` are made anew
  longshore up --keep                     Ctrl-C ends the daemon and leaves what runs

Ctrl-C stops what the manifest runs, as `docker compose up` does, and ends; pressed again, it ends at once. \
Any other signal ends the daemon alone: what runs runs on, and the next `longshore up` or `longshore server` takes it over.";

/// Between two looks at what runs, once it does.
const GLANCE: Duration = Duration::from_millis(500);
/// Time what runs has to stop.
const STOPPING: Duration = Duration::from_mins(2);

/// Run a manifest on this machine: starts a daemon, or uses the one that runs, and waits until everything runs.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(flatten)]
    manifest: Manifest,
    /// The namespace of the deployment.
    #[arg(short, long, env = "LONGSHORE_NAMESPACE", value_name = "NAME", default_value = "default")]
    namespace: String,
    /// How many nodes this machine shall be.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = place::node_count())]
    nodes: u16,
    /// Build the images of services with `build` also where they are there.
    #[arg(long)]
    build: bool,
    /// On Ctrl-C, leave what runs.
    #[arg(long)]
    keep: bool,
    /// How long to wait until everything runs, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    #[command(flatten)]
    seat: Seat,
    /// The daemon's socket; `longshore.sock` in its folder unless given.
    #[arg(long, env = "LONGSHORE_SOCKET", value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Listen here, a loopback address, for browsers of this machine; `longshore dashboard` prints the link. Unless given,
    /// at a port that is free.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", hide_default_value = true)]
    http: SocketAddr,
    /// The container engine's socket; the usual ones are tried unless given.
    #[arg(long, value_name = "PATH")]
    docker: Option<PathBuf>,
}

impl Options {
    fn when(&self) -> When {
        if self.build { When::Always } else { When::Missing }
    }
}

pub(crate) fn run(mut options: Options) -> anyhow::Result<Exit> {
    let manifest = std::mem::take(&mut options.manifest);
    let Some(judged) = apply::judge(manifest, &options.namespace)? else { return Ok(Exit::BadInput) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("the runtime did not start")?.block_on(up(options, judged))
}

async fn up(options: Options, judged: Judged) -> anyhow::Result<Exit> {
    // Before anything runs: a signal that comes early must not find the default at work.
    let mut signals = Signals::listen()?;
    let (folder, node) = options.seat.taken()?;
    let socket = place::socket_of(options.socket.clone(), &folder)?;
    let client = Client::new(Endpoint::Unix(socket.clone()));
    let engine = place::engine(options.docker.clone());
    if let Engine::At(engine) = &engine
        && let Err(failed) = tokio::task::block_in_place(|| build::images(&judged.loaded, engine, options.when()))
    {
        print::note(&failed);
        return Ok(Exit::Trouble);
    }
    let daemon = match client.nodes().await {
        Ok(_) => None,
        Err(ClientError::Unreachable { .. }) => {
            if let Some(missing) = missing(&judged.loaded, &engine) {
                print::note(&missing);
                return Ok(Exit::Trouble);
            }
            Some(Daemon::start(config(&options, (folder, node), socket.clone(), engine)?).await?)
        }
        Err(error) => return Err(error.into()),
    };
    let outcome = attend(&client, &options, &judged, daemon.as_ref(), &socket, &mut signals).await;
    if let Some(daemon) = daemon {
        daemon.shut_down().await;
    }
    outcome
}

/// Applies, waits, and stays for as long as the daemon is ours.
async fn attend(
    client: &Client,
    options: &Options,
    judged: &Judged,
    own: Option<&Daemon>,
    socket: &std::path::Path,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let applied = match client.apply(&judged.request).await {
        Ok(applied) => applied,
        Err(ClientError::Refused(envelope)) => return Ok(remote::refused(&envelope, envelope.hint())),
        Err(error) => return Err(error.into()),
    };
    applied.warnings.iter().for_each(|warning| print::note(warning));
    let AppliedManifest { namespace, deployment, revision, .. } = applied;
    let goal = Goal { namespace, deployment, revision };
    let mut live = Live::new(Side::Err);
    let limit = Duration::from_secs(options.timeout);
    let ended = tokio::select! {
        ended = wait::settle(client, &goal, limit, &mut live) => ended?,
        told = signals.next() => {
            live.keep();
            return leave(client, options, &goal, own, told, signals).await;
        }
    };
    let well = ended == Ended::Settled;
    let exit = ended.told(&goal);
    if well {
        announce(client, &goal, socket).await?;
    }
    // Where nobody looks on there is nobody to mend it either.
    if own.is_none() || (!well && live.screen() == Screen::Plain) {
        let stays = own.is_none() || options.keep;
        return if stays { Ok(exit) } else { stop(client, &goal).await.map(|_| exit) };
    }
    let ctrl_c = if options.keep { "ends the daemon; what runs runs on" } else { "stops it and ends" };
    print::note(&format!("\nCtrl-C {ctrl_c}"));
    let told = tokio::select! {
        lost = watch(client, &goal, &mut live) => return Err(lost.into()),
        told = signals.next() => told,
    };
    // What never ran as asked is no success, however it is left.
    let left = leave(client, options, &goal, own, told, signals).await?;
    Ok(if well { left } else { exit })
}

/// Says where it can be reached, and what to try.
async fn announce(client: &Client, goal: &Goal, socket: &std::path::Path) -> anyhow::Result<()> {
    let deployment = client.deployment(&goal.namespace, &goal.deployment).await?;
    let replicas = client.replicas().await?;
    let colour = Colour::of_stdout();
    let mut out = format!("{} is {}, revision {}\n", goal.deployment, deployment.status, deployment.revision);
    for (service, address) in addresses::of(&deployment, &replicas) {
        let _ = writeln!(out, "  {service}  {}", colour.paint(Tone::Strong, &address));
    }
    // Commands find the usual socket by themselves; any other has to be named once.
    let usual = socket == place::socket();
    let name = &goal.deployment;
    out.push_str("\nTry next, in another terminal:\n");
    if !usual {
        let _ = writeln!(out, "  export LONGSHORE_SOCKET={}", socket.display());
    }
    let _ = writeln!(out, "  longshore status {name}");
    if let Some(replica) = replicas.iter().find(|replica| replica.deployment == *name) {
        let _ = writeln!(out, "  longshore why {}", replica.id);
    }
    if let Some(service) = deployment.services.first() {
        let _ = writeln!(out, "  longshore scale {name} {}={}", service.name, service.wanted + 1);
    }
    let nodes = client.nodes().await?;
    if let Some(last) = nodes.last().filter(|_| nodes.len() > 1) {
        let _ = writeln!(out, "  longshore node drain {0}\n  longshore node cut {0}", last.name);
    }
    if client.login_link().await?.url.is_some() {
        out.push_str("  longshore dashboard\n");
    }
    print::print(&out)
}

/// Tells what changes until the daemon no longer answers.
async fn watch(client: &Client, goal: &Goal, live: &mut Live) -> ClientError {
    let (mut told, colour, mut first) = (progress::Told::default(), Colour::of_stderr(), true);
    loop {
        let replicas = match client.replicas().await {
            Ok(replicas) => replicas,
            Err(error) => return error,
        };
        let ours = replicas.into_iter().filter(|replica| replica.deployment == goal.deployment);
        let news = told.news(&ours.collect::<Vec<_>>(), colour);
        // How things stood when everything ran was said.
        news.iter().filter(|_| !first).for_each(|line| live.tell(line));
        first = false;
        tokio::time::sleep(GLANCE).await;
    }
}

async fn leave(
    client: &Client,
    options: &Options,
    goal: &Goal,
    own: Option<&Daemon>,
    told: Told,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let name = &goal.deployment;
    if own.is_none() {
        print::note(&format!("{name} is left to the daemon that was there before"));
        return Ok(Exit::Success);
    }
    match told {
        Told::ToStop if !options.keep => tokio::select! {
            stopped = stop(client, goal) => stopped,
            _ = signals.next() => {
                print::note("ended at once; what still runs runs on");
                Ok(Exit::Trouble)
            }
        },
        Told::ToStop | Told::ToEnd => {
            print::note(&format!("ended; {name} runs on, and the next `longshore up` takes it over"));
            Ok(Exit::Success)
        }
    }
}

async fn stop(client: &Client, goal: &Goal) -> anyhow::Result<Exit> {
    print::note(&format!("stopping {}", goal.deployment));
    client.remove(&goal.namespace, &goal.deployment).await?;
    let ended = wait::gone(client, goal, STOPPING, &mut Live::new(Side::Err)).await?;
    if ended == Ended::Settled {
        print::note("stopped");
    }
    let others = client.deployments().await?.into_iter().map(|deployment| deployment.name);
    for name in others.filter(|name| *name != goal.deployment) {
        print::note(&format!("{name} runs on, and the next `longshore up` or `longshore server` takes it over"));
    }
    Ok(ended.told(goal))
}

fn config(
    options: &Options,
    seat: (PathBuf, NodeName),
    socket: PathBuf,
    engine: Engine,
) -> anyhow::Result<ServerConfig> {
    let (data_dir, node) = seat;
    Ok(ServerConfig {
        beside: place::nodes_beside(&node, options.nodes),
        node,
        socket,
        data_dir,
        listen: None,
        advertise: None,
        http: Some(options.http),
        docker: match engine {
            Engine::At(path) => Some(path),
            Engine::Mute(..) | Engine::None => None,
        },
        shim: Some(server::shim()?),
    })
}

/// What the manifest needs and this machine lacks.
fn missing(loaded: &Loaded, engine: &Engine) -> Option<String> {
    let contained = loaded.spec.services.iter().filter(|(_, spec)| spec.driver != Driver::Exec);
    let names: Vec<String> = contained.map(|(name, _)| format!("`{name}`")).collect();
    let what = match engine {
        Engine::At(_) => return None,
        Engine::Mute(path, error) => format!("nobody can be talked to at `{}`: {error}", path.display()),
        Engine::None => "there is no Docker Engine on this machine".to_owned(),
    };
    let services = if names.len() == 1 { "service" } else { "services" };
    (!names.is_empty()).then(|| {
        format!(
            "error: {services} {} need containers, and {what}\n\nhint: start Docker, or name its socket with \
             `--docker`, or run plain processes with `x-longshore: {{driver: exec}}`",
            names.join(", ")
        )
    })
}
