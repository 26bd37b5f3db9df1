//! Reading what the user named.
//!
//! Owns: standard input as a file, and the sentence for a file that cannot be read.
//! Invariant: no file makes the program panic or fill memory.

use std::{
    cell::OnceCell,
    io::{self, Read as _},
    path::Path,
};

use longshore_compose::{
    files::{Disk, Files, ReadError, text_of},
    yaml::MAX_BYTES,
};

/// What standard input is called in diagnostics.
pub(crate) const STDIN: &str = "<stdin>";

/// The text of a file, or a sentence to print.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    Disk.read(&path.to_string_lossy()).map_err(|error| {
        // In front of the first character there is nothing; editors still want a place to jump to.
        let (line, column) = match error {
            ReadError::NotText { line, column } => (line, column),
            ReadError::Missing | ReadError::Directory | ReadError::Large | ReadError::System(_) => (1, 1),
        };
        format!("{}:{line}:{column}: error: the file {error}\n\nhint: {}", path.display(), error.hint())
    })
}

/// The disk, and standard input under the name [`STDIN`].
#[derive(Debug, Default)]
pub(crate) struct DiskAndStdin {
    // A manifest is asked for more than once, and a pipe answers only once: kept as it came, since what is no text must
    // be refused each time.
    stdin: OnceCell<Vec<u8>>,
}

impl Files for DiskAndStdin {
    fn read(&self, path: &str) -> Result<String, ReadError> {
        if !path.ends_with(&format!("/{STDIN}")) {
            return Disk.read(path);
        }
        if let Some(known) = self.stdin.get() {
            return text_of(known.as_slice());
        }
        let mut bytes = Vec::new();
        io::stdin().lock().take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        text_of(self.stdin.get_or_init(|| bytes).as_slice())
    }
}
