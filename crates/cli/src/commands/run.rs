//! `longshore run`: a command run once, with the image, environment, volumes and networks of a service.
//!
//! Owns: its options, waiting until the job has started, and removing it afterwards.
//! Must not touch: how the job is made from its service; the daemon decides that.
//! Invariant: the exit code is the command's; with `--rm` nothing is left of the job, however it ended.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use anyhow::bail;
use clap::Args;
use longshore_api::{Client, ClientError, Code, Deployment, ExecRequest, OneOffJob, Replica, ReplicaState, RunRequest};

use crate::{
    commands::terminal_session::{self, SessionIo},
    daemon_client::{NamespaceArgs, with_client, workload},
    exit::Exit,
    output::{print, progress, style::Colour},
};

const EXAMPLES: &str = "Examples:
  longshore run --rm web sh            a shell with the image, volumes and networks of `web`
  longshore run --rm -T web env
  longshore run -d -e LEVEL=debug web env

With `-d` it stays in the background, and `longshore logs ID` shows its output.";

/// Time between two looks at a job that has not started.
const POLL: Duration = Duration::from_millis(150);
/// Time a removed job has to be gone.
const REMOVAL: Duration = Duration::from_mins(5);
/// Exit codes of a shell for a command that does not exist, and for one that cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;

/// Run a command once, as a job of its own made from a service.
///
/// It has the image, environment, volumes, secrets and networks of the service, and neither its ports nor its name. It is
/// placed like any replica, and not run again when it fails or its node is lost. The exit code is the command's.
#[derive(Debug, Args)]
// The output of a command has no other format.
#[command(after_help = EXAMPLES, mut_arg("output", |output| output.hide(true)))]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line, as Compose has them")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    scope: NamespaceArgs,
    /// Remove the job once it has ended. Without it, `longshore logs` still shows its output, and `down` removes it.
    #[arg(long)]
    rm: bool,
    /// Give it no terminal, also when this one could be used.
    #[arg(short = 'T', long)]
    no_tty: bool,
    /// Leave it in the background, and print its id.
    #[arg(short, long, conflicts_with = "rm")]
    detach: bool,
    /// Start it although services that the service depends on do not run.
    #[arg(long)]
    no_deps: bool,
    /// Set an environment variable; repeatable.
    #[arg(short, long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// Run as this user.
    #[arg(short, long)]
    user: Option<String>,
    /// Run in this directory.
    #[arg(short, long, value_name = "PATH")]
    workdir: Option<String>,
    /// Program to run instead of the image's; the arguments follow the service.
    #[arg(long, value_name = "PROGRAM")]
    entrypoint: Option<String>,
    /// A service (`web` or `shop/web`).
    service: String,
    /// The command and its arguments; the service's own unless given.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

impl RunArgs {
    fn has_terminal(&self) -> bool {
        !self.no_tty && !self.detach && io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    fn request(&self) -> RunRequest {
        let own = |variable: &String| match variable.split_once('=') {
            Some(_) => variable.clone(),
            // As in Compose, a name alone takes the value it has here.
            None => format!("{variable}={}", std::env::var(variable).unwrap_or_default()),
        };
        RunRequest {
            command: self.command.clone(),
            entrypoint: self.entrypoint.as_ref().map(|program| vec![program.clone()]),
            environment: self.environment.iter().map(own).collect(),
            user: self.user.clone(),
            working_dir: self.workdir.clone(),
            terminal: self.has_terminal(),
            attached: !self.detach,
            no_dependencies: self.no_deps,
        }
    }
}

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Exit> {
    with_client(&args.scope.connection, async |client| {
        let (deployment, service) = service_of(client, args).await?;
        let job = client.run(args.scope.namespace(), &deployment, &service, &args.request()).await?;
        if args.detach {
            print::stdout(&format!("{}\n", job.replica))?;
            return Ok(Exit::Success);
        }
        let ended = attended(client, args, &job).await;
        if args.rm {
            remove(client, &job).await?;
        }
        ended
    })
}

async fn service_of(client: &Client, args: &RunArgs) -> anyhow::Result<(String, String)> {
    let Some((found, _)) = workload::find(client, &args.scope, Some(&args.service)).await? else {
        bail!(
            "no deployment has a service `{}`\n\nhint: `longshore up -d` deploys the Compose file of this folder, then \
             `run` can use its services",
            args.service
        );
    };
    let Some(service) = found.service else {
        let services = found.services().join("`, `");
        bail!("`{}` is a deployment\n\nhint: name one of its services: `{services}`", args.service);
    };
    Ok((found.deployment.name, service))
}

/// Waits until the job has started, and stays with it until it has ended.
async fn attended(client: &Client, args: &RunArgs, job: &OneOffJob) -> anyhow::Result<Exit> {
    let io = SessionIo { interactive: true, tty: args.has_terminal() };
    let request = ExecRequest { terminal: io.tty.then(terminal_session::size), attach: true, ..ExecRequest::default() };
    let mut said = String::new();
    let (input, output) = loop {
        let replica = tokio::select! {
            replica = newest(client, job) => replica?,
            _ = tokio::signal::ctrl_c() => return interrupted(client, args, job).await,
        };
        if let Some(exit) = replica.as_ref().and_then(not_started) {
            return Ok(exit);
        }
        if replica.as_ref().is_some_and(has_process) {
            match client.exec(&job.replica, &request).await {
                Ok(session) => break session,
                // It is being created.
                Err(ClientError::Refused(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(replica) = &replica {
            tell_reason(replica, &mut said);
        }
        tokio::time::sleep(POLL).await;
    };
    let mut ended = std::pin::pin!(terminal_session::drive(input, output, io));
    tokio::select! {
        exit = &mut ended => return exit,
        _ = tokio::signal::ctrl_c() => {}
    }
    // Its output is read on while it stops.
    client.stop(&job.namespace, &job.deployment).await?;
    ended.await
}

async fn newest(client: &Client, job: &OneOffJob) -> Result<Option<Replica>, ClientError> {
    let status = client.status(&job.namespace, Some(&job.deployment)).await?;
    Ok(status.replicas.into_iter().find(|replica| replica.id == job.replica))
}

fn has_process(replica: &Replica) -> bool {
    !matches!(replica.state, ReplicaState::Pending | ReplicaState::Pulling)
}

/// The exit if the job could not be started at all, with the reason printed.
fn not_started(replica: &Replica) -> Option<Exit> {
    let failed = replica.state == ReplicaState::Failed && replica.code == Some(Code::StartFailed);
    let reason = replica.details.get("reason").and_then(|reason| reason.as_str()).unwrap_or("it could not be started");
    failed.then(|| {
        print::stderr(&format!("error: {reason}"));
        let is_missing = ["not found", "o such file"].iter().any(|sign| reason.contains(sign));
        Exit::Command(if is_missing { NOT_FOUND } else { NOT_RUNNABLE })
    })
}

/// Prints why the job has not started, once for each reason.
fn tell_reason(replica: &Replica, said: &mut String) {
    let waits = replica.code.is_some() || replica.state == ReplicaState::Pulling;
    let reason = progress::replica_state(replica, Colour::Off);
    if waits && *said != reason {
        print::stderr(&format!("{} is {reason}", replica.id));
        *said = reason;
    }
}

async fn interrupted(client: &Client, args: &RunArgs, job: &OneOffJob) -> anyhow::Result<Exit> {
    if !args.rm {
        client.stop(&job.namespace, &job.deployment).await?;
    }
    // 128 plus SIGINT, as in a shell.
    Ok(Exit::Command(130))
}

async fn remove(client: &Client, job: &OneOffJob) -> anyhow::Result<()> {
    let OneOffJob { namespace, deployment, .. } = job;
    match client.remove(namespace, deployment).await {
        // Somebody else was faster.
        Err(ClientError::Refused(_)) => return Ok(()),
        removed => removed?,
    };
    let gone = async {
        let is_it = |row: &Deployment| row.namespace == *namespace && row.name == *deployment;
        while client.deployments().await?.iter().any(is_it) {
            tokio::time::sleep(POLL).await;
        }
        Ok::<(), ClientError>(())
    };
    match tokio::time::timeout(REMOVAL, gone).await {
        Ok(gone) => Ok(gone?),
        Err(_) => bail!("`{deployment}` is being removed, and is not gone after {} s", REMOVAL.as_secs()),
    }
}
