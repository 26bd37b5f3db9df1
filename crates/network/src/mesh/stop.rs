//! Ending threads that wait for descriptors.
//!
//! Owns: the signal. Invariant: once it is given, every wait returns at once, for ever.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// A signal that ends threads.
pub(super) struct Stop(OwnedFd);

impl Stop {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(super) fn signal(&self) {
        // Nobody reads it, so it stays readable.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Waits until `descriptor` is readable, or the time is over. Returns whether the signal was given.
    pub(super) fn wait(&self, descriptor: impl AsFd, timeout: Option<Duration>) -> io::Result<bool> {
        let mut waited = [PollFd::new(&self.0, PollFlags::IN), PollFd::new(&descriptor, PollFlags::IN)];
        poll_retrying(&mut waited, timeout)?;
        Ok(!waited[0].revents().is_empty())
    }

    /// Waits for the time to be over. Returns whether the signal was given.
    pub(super) fn sleep(&self, time: Duration) -> io::Result<bool> {
        let mut waited = [PollFd::new(&self.0, PollFlags::IN)];
        poll_retrying(&mut waited, Some(time))?;
        Ok(!waited[0].revents().is_empty())
    }
}

/// An interrupted wait counts as a short one: every caller loops.
fn poll_retrying(waited: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
    match poll(waited, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
