//! An agent against real processes and a real Docker Engine of its own.
//!
//! This program is three things: the stories, the shim of the processes they start, and the agent process that one of them
//! kills. It is its own test runner, so that the engine and its network namespace are taken down whatever happens.
#![expect(clippy::unwrap_used, reason = "a story that cannot go on has failed, and says where")]

mod agent_process;
mod control;
mod engine;
mod runner;
mod stories;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("shim") => longshore_agent::shim::main(&arguments[1..]),
        Some("agent") => agent_process::main(&arguments[1]),
        Some(_) | None => runner::main(&arguments),
    }
}
