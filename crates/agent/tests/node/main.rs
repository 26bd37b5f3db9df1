//! An agent against real processes and a real Docker Engine of its own.
//!
//! This program is the stories, the shim of the processes they start, and the agent process that some of them kill. It
//! is its own test runner, so that the engine and its network namespace are always removed.
#![expect(clippy::unwrap_used, reason = "a panic fails the story and shows where")]

mod agent_process;
mod docker_engine;
mod fake_control_plane;
mod runner;
mod stories;
mod test_node;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("shim") => longshore_agent::shim::main(&arguments[1..]),
        Some("agent") => agent_process::main(&arguments[1]),
        Some(_) | None => runner::main(&arguments),
    }
}
