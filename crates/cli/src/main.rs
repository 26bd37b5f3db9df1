//! The `longshore` binary: words, tables and exit codes.
//!
//! Owns: the command line, what is printed where, and what the exit code means.
//! Must not touch: anything another room does. A command reads its input, asks a room, and prints the answer.
//! Invariant: 0 is success, 2 is bad input, 3 is a broken safety rule, 4 to 6 are what `--wait` waited for in vain, 1 is
//! everything else.

mod apply;
mod backup;
mod build;
mod calendar;
mod cluster;
mod dashboard;
mod emptying;
mod exit;
mod hello;
mod input;
mod live;
mod manifest;
mod namespace;
mod place;
mod print;
mod progress;
mod quota;
mod rebalance;
mod registry;
mod remote;
mod secret;
mod server;
mod sim;
mod style;
mod suggest;
mod table;
mod token;
mod up;
mod volume;
mod wait;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::exit::Exit;

/// Runs the Compose file you already have on every machine you own.
#[derive(Debug, Parser)]
#[command(name = "longshore", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Options),
    Config(manifest::Config),
    Validate(manifest::Validate),
    Server(server::Options),
    Apply(apply::Options),
    #[command(flatten)]
    Remote(remote::Command),
    /// See who makes up the cluster, let nodes in, join one.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Make and revoke tokens of operators.
    #[command(subcommand)]
    Token(token::Command),
    /// Log in where images come from.
    #[command(subcommand)]
    Registry(registry::Command),
    /// Store secrets.
    #[command(subcommand)]
    Secret(secret::Command),
    /// Show namespaces.
    #[command(subcommand)]
    Namespace(namespace::Command),
    /// Set the ceilings of namespaces.
    #[command(subcommand)]
    Quota(quota::Command),
    /// Show volumes.
    #[command(subcommand)]
    Volume(volume::Command),
    Rebalance(rebalance::Options),
    Backup(backup::Backup),
    Restore(backup::Restore),
    Dashboard(dashboard::Options),
    /// Try things on a simulated cluster.
    #[command(subcommand)]
    Sim(sim::Command),
    /// Print what a shell needs to complete commands.
    #[command(after_help = "Examples:\n  longshore completions bash\n  longshore completions zsh")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    #[command(hide = true)]
    Hello(hello::Options),
    /// Stand between the daemon and a plain process; started by the daemon only.
    #[command(hide = true)]
    Shim {
        /// What the shim is told.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> std::process::ExitCode {
    let Cli { command } = Cli::parse();
    let outcome = match command {
        Command::Up(options) => up::run(options),
        Command::Config(options) => manifest::config(options),
        Command::Validate(options) => manifest::validate(options),
        Command::Server(options) => server::run(options),
        Command::Apply(options) => apply::run(options),
        Command::Remote(command) => remote::run(command),
        Command::Cluster(command) => cluster::run(command),
        Command::Token(command) => token::run(command),
        Command::Registry(command) => registry::run(command),
        Command::Secret(command) => secret::run(command),
        Command::Namespace(command) => namespace::run(&command),
        Command::Quota(command) => quota::run(command),
        Command::Volume(command) => volume::run(&command),
        Command::Rebalance(options) => rebalance::run(&options),
        Command::Backup(options) => backup::backup(&options),
        Command::Dashboard(options) => dashboard::run(&options),
        Command::Restore(options) => backup::restore(options),
        Command::Sim(command) => sim::run(command),
        Command::Completions { shell } => completions(shell),
        Command::Hello(options) => hello::run(&options),
        Command::Shim { arguments } => return longshore_agent::shim::main(&arguments),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            Exit::Trouble.into()
        }
    }
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "longshore", &mut script);
    print::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}
