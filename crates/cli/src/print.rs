//! Writing to standard output without falling over.
//!
//! Invariant: a reader that has seen enough (`| head`) ends the program quietly, with the exit code it would have had.

use std::io::{self, Write};

/// Prints a text as it is.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => Ok(outcome?),
    }
}

/// Says something that is not the answer.
pub(crate) fn note(text: &str) {
    // Nobody is left to be told when even standard error is closed.
    let _ = writeln!(io::stderr().lock(), "{text}");
}
