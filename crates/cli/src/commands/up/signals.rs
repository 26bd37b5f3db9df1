//! Signals that end `longshore up`.
//!
//! Owns: which signals are handled, and what each asks for.
//! Invariant: only Ctrl-C, which a person presses, stops the deployment.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Handlers that replace the default action of the signals.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopRequest {
    /// Ctrl-C: stop the deployment, then the daemon.
    Deployment,
    /// SIGTERM and SIGHUP: stop the daemon only.
    Daemon,
}

impl Signals {
    pub(super) fn install() -> anyhow::Result<Self> {
        let handler = |kind| signal(kind).context("the signal handler cannot be installed");
        Ok(Self {
            interrupt: handler(SignalKind::interrupt())?,
            terminate: handler(SignalKind::terminate())?,
            hang_up: handler(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> StopRequest {
        tokio::select! {
            _ = self.interrupt.recv() => StopRequest::Deployment,
            _ = self.terminate.recv() => StopRequest::Daemon,
            _ = self.hang_up.recv() => StopRequest::Daemon,
        }
    }
}
