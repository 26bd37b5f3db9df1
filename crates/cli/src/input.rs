//! Reading files, standard input and option values that the user names.
//!
//! Owns: standard input as a file, the message for a file that cannot be read, and the syntax of durations and pairs.
//! Invariant: no file makes the program panic or fill the memory.

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

/// Name of standard input in diagnostics.
pub(crate) const STDIN: &str = "<stdin>";

/// The text of a file; the error is a message to print.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    Disk.read(&path.to_string_lossy()).map_err(|error| {
        // A file that cannot be read has no position; editors still need one to jump to.
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
    // A manifest is read more than once, a pipe only once. Kept as bytes, because invalid UTF-8 must be an error each
    // time.
    stdin: OnceCell<Vec<u8>>,
}

impl Files for DiskAndStdin {
    fn read(&self, path: &str) -> Result<String, ReadError> {
        if !path.ends_with(&format!("/{STDIN}")) {
            return Disk.read(path);
        }
        if let Some(bytes) = self.stdin.get() {
            return text_of(bytes.as_slice());
        }
        let mut bytes = Vec::new();
        io::stdin().lock().take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        text_of(self.stdin.get_or_init(|| bytes).as_slice())
    }
}

/// Reads a text from a file, or from standard input without one; `what` names the content in errors.
pub(crate) fn read(what: &str, file: Option<&Path>) -> anyhow::Result<String> {
    let place = || file.map_or_else(|| "on standard input".to_owned(), |file| format!("in `{}`", file.display()));
    String::from_utf8(read_bytes(what, file)?).with_context(|| format!("the {what} {} cannot be read", place()))
}

/// Reads bytes from a file, or from standard input without one; `what` names the content in errors.
pub(crate) fn read_bytes(what: &str, file: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    let Some(file) = file else {
        let bytes = read_limited(io::stdin().lock());
        return bytes.with_context(|| format!("the {what} on standard input cannot be read"));
    };
    let bytes = std::fs::File::open(file).and_then(read_limited);
    bytes.with_context(|| format!("the {what} in `{}` cannot be read", file.display()))
}

/// Reads everything, and fails above the size limit of manifests and secrets: some files, like `/dev/zero`, have no
/// end.
fn read_limited(from: impl io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

/// Parses a duration: a number and `s`, `m`, `h` or `d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration; write a number and s, m, h or d");
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

/// Parses `NAME=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("expected `NAME=VALUE`")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Parses `SERVICE=COUNT`.
pub(crate) fn service_count(text: &str) -> Result<(String, u32), String> {
    let (name, count) = pair(text).map_err(|_| "expected `SERVICE=COUNT`")?;
    let count = count.parse().map_err(|_| format!("`{count}` is not a count"))?;
    Ok((name, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_file_is_refused() {
        let refused = read_bytes("secret", Some(Path::new("/dev/zero"))).unwrap_err();
        assert!(
            format!("{refused:#}").starts_with("the secret in `/dev/zero` cannot be read: it has more than"),
            "{refused:#}"
        );
    }

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        assert_eq!(duration("10m"), Ok(Duration::from_mins(10)));
        assert_eq!(duration("2d"), Ok(Duration::from_hours(48)));
        for wrong in ["", "m", "10", "-1s", "1.5h", "99999999999999999999d", "10ü"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
