//! What signals ask for.
//!
//! Invariant: only a person at the terminal can ask for what runs to be stopped.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that are heard instead of obeyed.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// To stop what runs.
    ToStop,
    /// To end, and no more.
    ToEnd,
}

impl Signals {
    pub(super) fn listen() -> anyhow::Result<Self> {
        let hear = |kind| signal(kind).context("signals cannot be heard");
        Ok(Self {
            interrupt: hear(SignalKind::interrupt())?,
            terminate: hear(SignalKind::terminate())?,
            hang_up: hear(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.interrupt.recv() => Told::ToStop,
            _ = self.terminate.recv() => Told::ToEnd,
            _ = self.hang_up.recv() => Told::ToEnd,
        }
    }
}
