//! Writing to standard output without falling over.
//!
//! Invariant: a reader that has seen enough (`| head`) ends the program quietly, with the exit code it would have had, also
//! while there is nothing to write.

use std::{
    io::{self, Write},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::AsFd,
};

/// Between two looks whether anybody still reads.
const LOOK: Duration = Duration::from_millis(250);

/// Whether anybody reads what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    There,
    Gone,
}

/// Prints a text as it is.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    offer(text.as_bytes()).map(drop)
}

/// The same for whoever goes on printing, and need not where nobody reads.
pub(crate) fn offer(bytes: &[u8]) -> anyhow::Result<Reader> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(error.into()),
    }
}

/// Ends once nobody reads any more. Who follows something that does not change writes nothing, and would never hear of it.
pub(crate) async fn reader_gone() {
    while reader(&io::stdout()) == Reader::There {
        tokio::time::sleep(LOOK).await;
    }
}

fn reader(out: &impl AsFd) -> Reader {
    let mut asked = [PollFd::new(out, PollFlags::empty())];
    let left = poll(&mut asked, Some(&Timespec::default()))
        .is_ok_and(|_| asked[0].revents().intersects(PollFlags::ERR | PollFlags::HUP));
    if left { Reader::Gone } else { Reader::There }
}

/// Says something that is not the answer.
pub(crate) fn note(text: &str) {
    // Nobody is left to be told when even standard error is closed.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_that_nobody_reads_is_told_from_one_that_is_full() {
        let (read, write) = io::pipe().unwrap();
        assert_eq!(reader(&write), Reader::There);
        drop(read);
        assert_eq!(reader(&write), Reader::Gone);
        assert_eq!(reader(&tempfile::tempfile().unwrap()), Reader::There);
    }
}
