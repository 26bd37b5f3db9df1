//! The `longshore` binary: commands, tables and exit codes.
//!
//! Owns: the list of commands, and which function runs each of them.
//! Must not touch: what a command does. A command reads its input, calls another crate, and prints the answer.
//! Invariant: exit code 0 is success, 2 is bad input, 3 is a broken safety rule, 4 to 6 say why `--wait` gave up, 1 is
//! any other error.

mod attribute_args;
mod commands;
mod container_engine;
mod daemon_client;
mod exit;
mod image_build;
mod input;
mod manifest;
mod output;
mod paths;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::{
    commands::{
        apply, audit, backup, cluster, compose_words, config, cp, dashboard, demo_server, deployment, down, events,
        logs_exec, namespace, network, node, plan, policy, ps, pull, quota, rebalance, registry, run, secret, server,
        sim, status, token, up, version, volume, whatif, why,
    },
    exit::Exit,
    output::print,
};

/// Runs the Compose file you already have on every machine you own.
#[derive(Debug, Parser)]
#[command(name = "longshore", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::UpArgs),
    Config(config::ConfigArgs),
    Validate(config::ValidateArgs),
    Server(server::ServerArgs),
    Apply(apply::ApplyArgs),
    Plan(plan::PlanArgs),
    Pull(pull::PullArgs),
    Whatif(whatif::WhatifArgs),
    Status(status::StatusArgs),
    Down(down::DownArgs),
    Cp(cp::CpArgs),
    Ps(ps::PsArgs),
    Images(ps::ImagesArgs),
    Port(ps::PortArgs),
    Events(events::EventsArgs),
    Version(version::VersionArgs),
    Why(why::WhyArgs),
    Logs(logs_exec::LogsArgs),
    Exec(logs_exec::ExecArgs),
    Run(run::RunArgs),
    #[command(flatten)]
    Deployment(deployment::Command),
    Audit(audit::AuditArgs),
    Node(node::NodeCommandArgs),
    /// Show, create, join, configure or recover the cluster.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Create, list and revoke API tokens.
    #[command(subcommand)]
    Token(token::Command),
    /// Manage logins to image registries.
    #[command(subcommand)]
    Registry(registry::Command),
    /// Store, list and remove secrets.
    #[command(subcommand)]
    Secret(secret::Command),
    /// List namespaces and their usage.
    #[command(subcommand)]
    Namespace(namespace::Command),
    /// Set or remove the quota of a namespace.
    #[command(subcommand)]
    Quota(quota::Command),
    /// Show, set and test what the manifests of a namespace may ask of the machines.
    #[command(subcommand)]
    Policy(policy::Command),
    /// List networks, and which services share them.
    #[command(subcommand)]
    Network(network::Command),
    /// Show how a service is reached.
    #[command(subcommand)]
    Service(network::ServiceCommand),
    /// List, show and delete volumes.
    #[command(subcommand)]
    Volume(volume::Command),
    Rebalance(rebalance::RebalanceArgs),
    Backup(backup::BackupArgs),
    Restore(backup::RestoreArgs),
    Dashboard(dashboard::DashboardArgs),
    /// Run scenarios, benchmarks and fuzzing on a simulated cluster.
    #[command(subcommand)]
    Sim(sim::Command),
    /// Print a shell completion script.
    #[command(after_help = "Examples:\n  longshore completions bash\n  longshore completions zsh")]
    Completions {
        /// The shell to complete for.
        shell: clap_complete::Shell,
    },
    #[command(hide = true)]
    Hello(demo_server::DemoServerArgs),
    /// Serve published ports and names; started by the daemon only, and outlives it.
    #[command(hide = true)]
    Dataplane {
        /// Arguments of the process.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Supervise one process of the exec driver; started by the daemon only.
    #[command(hide = true)]
    Shim {
        /// Arguments of the shim.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> std::process::ExitCode {
    let Cli { command } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => match compose_words::instead(&error) {
            Some(message) => {
                print::stderr(&message);
                return Exit::BadInput.into();
            }
            None => error.exit(),
        },
    };
    let outcome = match command {
        Command::Up(args) => up::run(args),
        Command::Config(args) => config::config(args),
        Command::Validate(args) => config::validate(args),
        Command::Server(args) => server::run(args),
        Command::Apply(args) => apply::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Pull(args) => pull::run(args),
        Command::Whatif(args) => whatif::run(args),
        Command::Status(args) => status::run(&args),
        Command::Down(args) => down::run(args),
        Command::Cp(args) => cp::run(&args),
        Command::Ps(args) => ps::ps(&args),
        Command::Images(args) => ps::images(&args),
        Command::Port(args) => ps::port(&args),
        Command::Events(args) => events::run(&args),
        Command::Version(args) => version::run(&args),
        Command::Why(args) => why::run(args),
        Command::Logs(args) => logs_exec::logs(&args),
        Command::Exec(args) => logs_exec::exec(&args),
        Command::Run(args) => run::run(&args),
        Command::Deployment(command) => deployment::run(command),
        Command::Audit(args) => audit::run(args),
        Command::Node(args) => node::run(args),
        Command::Cluster(command) => cluster::run(command),
        Command::Token(command) => token::run(command),
        Command::Registry(command) => registry::run(command),
        Command::Secret(command) => secret::run(command),
        Command::Namespace(command) => namespace::run(&command),
        Command::Quota(command) => quota::run(command),
        Command::Policy(command) => policy::run(command),
        Command::Network(command) => network::run(&command),
        Command::Service(command) => network::run_service(&command),
        Command::Volume(command) => volume::run(&command),
        Command::Rebalance(args) => rebalance::run(&args),
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => backup::restore(args),
        Command::Dashboard(args) => dashboard::run(&args),
        Command::Sim(command) => sim::run(command),
        Command::Completions { shell } => completions(shell),
        Command::Hello(args) => demo_server::run(&args),
        Command::Dataplane { arguments } => return server::dataplane(&arguments),
        Command::Shim { arguments } => return longshore_agent::shim::main(&arguments),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            Exit::Error.into()
        }
    }
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "longshore", &mut script);
    print::stdout(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}
