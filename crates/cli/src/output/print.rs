//! Writing to standard output and standard error.
//!
//! Owns: what happens when a pipe is closed.
//! Invariant: a reader that closes the pipe early (`| head`) ends the program quietly with the exit code it would have
//! had, also while there is nothing to write.

use std::{
    io::{self, Write},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::AsFd,
};

/// How often [`stdout_closed`] polls.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Whether standard output still has a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pipe {
    Open,
    Closed,
}

/// Prints a text as it is.
pub(crate) fn stdout(text: &str) -> anyhow::Result<()> {
    stream(text.as_bytes()).map(drop)
}

/// Prints a part of an output that continues; the caller stops when the pipe is closed.
pub(crate) fn stream(bytes: &[u8]) -> anyhow::Result<Pipe> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(Pipe::Open),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Pipe::Closed),
        Err(error) => Err(error.into()),
    }
}

/// Returns once standard output has no reader. A command that follows something unchanging writes nothing, so a failed
/// write would never tell it.
pub(crate) async fn stdout_closed() {
    while pipe_state(&io::stdout()) == Pipe::Open {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn pipe_state(out: &impl AsFd) -> Pipe {
    let mut polled = [PollFd::new(out, PollFlags::empty())];
    let closed = poll(&mut polled, Some(&Timespec::default()))
        .is_ok_and(|_| polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP));
    if closed { Pipe::Closed } else { Pipe::Open }
}

/// Prints a line that is not part of the answer: an error, a warning, a hint or progress.
pub(crate) fn stderr(text: &str) {
    // When standard error is closed too, there is nowhere left to report that.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_without_a_reader_is_closed_and_a_file_is_not() {
        let (read, write) = io::pipe().unwrap();
        assert_eq!(pipe_state(&write), Pipe::Open);
        drop(read);
        assert_eq!(pipe_state(&write), Pipe::Closed);
        assert_eq!(pipe_state(&tempfile::tempfile().unwrap()), Pipe::Open);
    }
}
