//! `longshore logs` and `longshore exec`: output of replicas, and commands inside them.
//!
//! Owns: the replica name before each line, and the options of a command. Must not touch: the local terminal, which
//! `session` owns. Invariant: the exit code of `exec` is the command's.

use std::{
    io::{self, IsTerminal as _},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use longshore_api::{Client, ExecRequest, LogEntry, LogQuery, LogSource};

use crate::{
    commands::terminal_session::{self, SessionIo},
    daemon_client::{NamespaceArgs, with_client, workload},
    exit::Exit,
    input,
    output::{
        OutputFormat,
        print::{self, Pipe},
        style::{Colour, Tone},
        timestamp,
    },
};

const LOGS_EXAMPLES: &str = "Examples:
  longshore logs shop-web-0
  longshore logs web
  longshore logs shop/web -f --tail 20
  longshore logs shop --since 10m";

/// Show the output of replicas, each line with its replica. For a restarted replica this includes the output of the
/// start before.
#[derive(Debug, Args)]
#[command(after_help = LOGS_EXAMPLES)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    scope: NamespaceArgs,
    /// A replica, a service (`web` or `shop/web`) or a deployment; that of this folder unless given.
    name: Option<String>,
    /// Keep printing until Ctrl-C, including replicas that start later.
    #[arg(short, long)]
    follow: bool,
    /// Only lines younger than this: `90s`, `10m`, `2h`, `1d`.
    #[arg(long, value_name = "AGE", value_parser = input::duration)]
    since: Option<Duration>,
    /// Only the last lines of each start of a replica.
    #[arg(long, value_name = "LINES")]
    tail: Option<u64>,
    /// Print the time of each line.
    #[arg(short, long)]
    timestamps: bool,
}

pub(crate) fn logs(args: &LogsArgs) -> anyhow::Result<Exit> {
    let LogsArgs { scope, name, follow, since, tail, timestamps: _ } = args;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let since_ms = since.map(|age| u64::try_from(now.saturating_sub(age).as_millis()).unwrap_or_default());
    with_client(&scope.connection, async |client| {
        let found = workload::find(client, scope, name.as_deref()).await?;
        // A name that nothing has is refused by the daemon, with a suggestion.
        let of = found.map_or_else(|| name.clone().unwrap_or_default(), |(found, _)| found.name());
        let query = LogQuery { of, namespace: scope.namespace().to_owned(), follow: *follow, since_ms, tail: *tail };
        let mut lines = client.logs(&query).await?;
        let mut width = 0;
        loop {
            let entry = tokio::select! {
                entry = lines.next() => entry?,
                _ = tokio::signal::ctrl_c() => None,
                () = print::stdout_closed() => None,
            };
            let Some(entry) = entry else { return Ok(Exit::Success) };
            width = width.max(entry.replica.len());
            if print_entry(args, &entry, width)? == Pipe::Closed {
                return Ok(Exit::Success);
            }
        }
    })
}

fn print_entry(args: &LogsArgs, entry: &LogEntry, width: usize) -> anyhow::Result<Pipe> {
    let text = match args.scope.connection.format() {
        OutputFormat::Json => serde_json::to_string(entry)? + "\n",
        OutputFormat::Yaml => format!("---\n{}", longshore_compose::yaml::emit::emit(&serde_json::to_value(entry)?)),
        OutputFormat::Text if entry.source == LogSource::Note => {
            print::stderr(&format!("{}: {}", entry.replica, entry.text));
            return Ok(Pipe::Open);
        }
        OutputFormat::Text => {
            let name = Colour::of_stdout().paint(Tone::Strong, &format!("{:width$}", entry.replica));
            let at = if args.timestamps { format!("{} ", timestamp::millisecond(entry.at_ms)) } else { String::new() };
            format!("{name} | {at}{}\n", entry.text)
        }
    };
    print::stream(text.as_bytes())
}

/// Prints the output of a deployment as it is written, each line with its replica, until the stream ends.
pub(super) async fn follow(client: &Client, namespace: &str, deployment: &str) -> anyhow::Result<()> {
    let (of, namespace) = (deployment.to_owned(), namespace.to_owned());
    let mut lines = client.logs(&LogQuery { of, namespace, follow: true, ..LogQuery::default() }).await?;
    let (mut width, colour) = (0, Colour::of_stdout());
    while let Some(entry) = lines.next().await? {
        width = width.max(entry.replica.len());
        let name = colour.paint(Tone::Strong, &format!("{:width$}", entry.replica));
        if print::stream(format!("{name} | {}\n", entry.text).as_bytes())? == Pipe::Closed {
            return Ok(());
        }
    }
    Ok(())
}

const EXEC_EXAMPLES: &str = "Examples:
  longshore exec web cat /etc/hostname
  longshore exec shop-web-0 cat /etc/hostname
  longshore exec -it shop-web-0 sh
  longshore exec -e LEVEL=debug shop-web-0 env";

/// Run a command inside a replica, on any node.
///
/// The exit code is the command's.
#[derive(Debug, Args)]
// The output of a command has no other format.
#[command(after_help = EXEC_EXAMPLES, mut_arg("output", |output| output.hide(true)))]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    scope: NamespaceArgs,
    /// Forward standard input to the command.
    #[arg(short, long)]
    interactive: bool,
    /// Give the command a terminal of the size of this one.
    #[arg(short, long)]
    tty: bool,
    /// Set an environment variable; repeatable.
    #[arg(short, long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// Run as this user.
    #[arg(short, long)]
    user: Option<String>,
    /// Run in this directory.
    #[arg(short, long, value_name = "PATH")]
    workdir: Option<String>,
    /// A replica, or a service or deployment of which a running replica is picked.
    replica: String,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

pub(crate) fn exec(args: &ExecArgs) -> anyhow::Result<Exit> {
    if args.tty && !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        print::stderr("error: `-t` needs a terminal, and standard input or output is none\n\nhint: leave out `-t`");
        return Ok(Exit::Error);
    }
    with_client(&args.scope.connection, async |client| run_session(client, args).await)
}

async fn run_session(client: &Client, args: &ExecArgs) -> anyhow::Result<Exit> {
    let request = ExecRequest {
        command: args.command.clone(),
        environment: args.environment.clone(),
        user: args.user.clone(),
        working_dir: args.workdir.clone(),
        terminal: args.tty.then(terminal_session::size),
        attach: false,
    };
    let replica = match workload::find(client, &args.scope, Some(&args.replica)).await? {
        Some((found, status)) => workload::running_replica(&found, &status)?,
        None => args.scope.replica_id(&args.replica),
    };
    let (input, output) = client.exec(&replica, &request).await?;
    terminal_session::drive(input, output, SessionIo { interactive: args.interactive, tty: args.tty }).await
}
