//! Reading what the user named.
//!
//! Owns: standard input as a file, the sentence for a file that cannot be read, and how a time is written.
//! Invariant: no file makes the program panic or fill memory.

use std::{
    cell::OnceCell,
    io::{self, Read as _},
    path::Path,
    time::Duration,
};

use anyhow::Context as _;
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

/// The text a file holds, or standard input where none is named; `what` is what it should hold.
pub(crate) fn read(what: &str, file: Option<&Path>) -> anyhow::Result<String> {
    let place = || file.map_or_else(|| "on standard input".to_owned(), |file| format!("in `{}`", file.display()));
    String::from_utf8(read_bytes(what, file)?).with_context(|| format!("the {what} {} cannot be read", place()))
}

/// The same, whatever bytes they are.
pub(crate) fn read_bytes(what: &str, file: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    let Some(file) = file else {
        let bytes = at_most(io::stdin().lock());
        return bytes.with_context(|| format!("the {what} on standard input cannot be read"));
    };
    let bytes = std::fs::File::open(file).and_then(at_most);
    bytes.with_context(|| format!("the {what} in `{}` cannot be read", file.display()))
}

/// All there is, unless that is more than any manifest or secret may be: some files have no end.
fn at_most(from: impl io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

/// A number and a unit.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time; write a number and s, m, h or d");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_refused_and_not_read_to_it() {
        let refused = read_bytes("secret", Some(Path::new("/dev/zero"))).unwrap_err();
        assert!(
            format!("{refused:#}").starts_with("the secret in `/dev/zero` cannot be read: it has more than"),
            "{refused:#}"
        );
    }

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        assert_eq!(time("10m"), Ok(Duration::from_mins(10)));
        assert_eq!(time("2d"), Ok(Duration::from_hours(48)));
        for wrong in ["", "m", "10", "-1s", "1.5h", "99999999999999999999d", "10ü"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
