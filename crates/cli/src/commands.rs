//! One module per command family: its arguments, what it asks for, and the table it prints.
//!
//! Owns: how commands poll that follow the daemon. Must not touch: how a daemon is reached (`daemon_client`) and how text is
//! laid out (`output`).
//! Invariant: every visible command has an example in its help, and a test runs it.

pub(crate) mod apply;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod cluster;
pub(crate) mod compose_words;
pub(crate) mod config;
pub(crate) mod cp;
pub(crate) mod dashboard;
pub(crate) mod demo_server;
pub(crate) mod deployment;
pub(crate) mod down;
pub(crate) mod events;
pub(crate) mod logs_exec;
pub(crate) mod namespace;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod ps;
pub(crate) mod pull;
pub(crate) mod quota;
pub(crate) mod rebalance;
pub(crate) mod registry;
pub(crate) mod run;
pub(crate) mod secret;
pub(crate) mod server;
pub(crate) mod sim;
pub(crate) mod status;
mod terminal_session;
pub(crate) mod token;
pub(crate) mod up;
pub(crate) mod version;
pub(crate) mod volume;
pub(crate) mod whatif;
pub(crate) mod why;

use std::{ops::ControlFlow, time::Duration};

use crate::output::print;

/// Time between two polls of a command that follows the daemon.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);

/// Waits for the next poll; breaks on Ctrl-C and when standard output has no reader.
async fn next_poll() -> ControlFlow<()> {
    tokio::select! {
        () = tokio::time::sleep(FOLLOW_INTERVAL) => ControlFlow::Continue(()),
        _ = tokio::signal::ctrl_c() => ControlFlow::Break(()),
        () = print::stdout_closed() => ControlFlow::Break(()),
    }
}
