//! Reading what the user named.
//!
//! Owns: which files are read at all, and the sentence for those that are not.
//! Invariant: no file makes the program panic or fill memory.

use std::{fs::File, io::Read, path::Path};

use longshore_compose::yaml::MAX_BYTES;

/// Why a file cannot be read, ready to be printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unreadable(String);

impl Unreadable {
    fn new(path: &Path, problem: &str, hint: &str) -> Self {
        // In front of the first character there is nothing; editors still want a place to jump to.
        Self(format!("{}:1:1: error: {problem}\n\nhint: {hint}", path.display()))
    }
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text of a file of sane size.
pub(crate) fn read_text(path: &Path) -> Result<String, Unreadable> {
    let refuse = |problem: &str, hint: &str| Unreadable::new(path, problem, hint);
    let file = File::open(path).map_err(|error| refuse(&format!("cannot be opened: {error}"), "check the path"))?;
    if file.metadata().is_ok_and(|known| known.is_dir()) {
        return Err(refuse("this is a directory", "name a file in it"));
    }
    let mut bytes = Vec::new();
    // One byte more than allowed tells a file of the largest size from one that is too large, whatever its
    // metadata say: a pipe has no size, and a growing file the wrong one.
    let limit = MAX_BYTES as u64 + 1;
    file.take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| refuse(&format!("cannot be read: {error}"), "check the file"))?;
    if bytes.len() > MAX_BYTES {
        let problem = format!("the file is larger than {} MiB", MAX_BYTES >> 20);
        return Err(refuse(&problem, "a scenario is written by people; is this the right file?"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let (line, column) = position(&error);
        Unreadable(format!(
            "{}:{line}:{column}: error: this is not text in UTF-8\n\nhint: save the file as UTF-8",
            path.display()
        ))
    })
}

/// Line and column of the first byte that is no text.
fn position(error: &std::string::FromUtf8Error) -> (usize, usize) {
    let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
    let line_start = good.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let line = good.split(|byte| *byte == b'\n').count();
    let column = String::from_utf8_lossy(&good[line_start..]).chars().count() + 1;
    (line, column)
}
