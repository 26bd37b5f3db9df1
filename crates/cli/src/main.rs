//! The `longshore` binary: words, tables and exit codes.
//!
//! Owns: the command line, what is printed where, and what the exit code means.
//! Must not touch: anything another room does. A command reads its input, asks a room, and prints the answer.
//! Invariant: 0 is success, 2 is bad input, 3 is a broken safety rule, 1 is everything else.

mod exit;
mod input;
mod manifest;
mod print;
mod sim;
mod style;

use clap::{Parser, Subcommand};

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
    Config(manifest::Config),
    Validate(manifest::Validate),
    /// Try things on a simulated cluster.
    #[command(subcommand)]
    Sim(sim::Command),
}

fn main() -> std::process::ExitCode {
    let Cli { command } = Cli::parse();
    let outcome = match command {
        Command::Config(options) => manifest::config(options),
        Command::Validate(options) => manifest::validate(options),
        Command::Sim(command) => sim::run(command),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            Exit::Trouble.into()
        }
    }
}
