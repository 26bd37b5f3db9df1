//! The output files of a process.
//!
//! Owns: the line format `<milliseconds since 1970> <o|e> <text>`, and rotation.
//! Invariant: never more files or larger files than [`LogLimits`] allows, whatever the process writes.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    time::SystemTime,
};

use bytes::Bytes;
use longshore_model::Time;

use super::protocol::LogLimits;
use crate::logs_exec::{LogLine, LogStream};

/// The file that was rotated `age` times: `out.log`, `out.log.1`, ….
pub(crate) fn path(folder: &Path, age: u32) -> PathBuf {
    if age == 0 { folder.join("out.log") } else { folder.join(format!("out.log.{age}")) }
}

pub(super) struct LogFiles {
    folder: PathBuf,
    limits: LogLimits,
    file: Option<File>,
    written: u64,
}

impl LogFiles {
    pub(super) fn open(folder: &Path, limits: LogLimits) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path(folder, 0)).ok();
        let written = file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |metadata| metadata.len());
        Self { folder: folder.to_owned(), limits, file, written }
    }

    /// Appends a line. On a full disk the line is lost; the process is not affected.
    pub(super) fn write(&mut self, stream: LogStream, text: &[u8]) {
        let tag = match stream {
            LogStream::Stdout => 'o',
            LogStream::Stderr => 'e',
        };
        let mut line = format!("{} {tag} ", now_millis()).into_bytes();
        line.extend_from_slice(text);
        line.push(b'\n');
        if self.written > 0 && self.written + line.len() as u64 > self.limits.file_bytes {
            self.rotate();
        }
        if let Some(file) = &mut self.file
            && file.write_all(&line).is_ok()
        {
            self.written += line.len() as u64;
        }
    }

    fn rotate(&mut self) {
        for age in (0..self.limits.files.saturating_sub(1)).rev() {
            let _ = fs::rename(path(&self.folder, age), path(&self.folder, age + 1));
        }
        self.file = File::create(path(&self.folder, 0)).ok();
        self.written = 0;
    }
}

fn now_millis() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis())
}

/// Parses a line without its line end. `None` if it does not have the format.
pub(crate) fn parse(line: &[u8]) -> Option<LogLine> {
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let at = std::str::from_utf8(parts.next()?).ok()?.parse().ok().map(Time)?;
    let stream = match parts.next()? {
        b"o" => LogStream::Stdout,
        b"e" => LogStream::Stderr,
        _ => return None,
    };
    Some(LogLine { at, stream, text: Bytes::copy_from_slice(parts.next()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_line_is_read_back_with_its_spaces() {
        let folder = tempfile::tempdir().unwrap();
        let limits = LogLimits { file_bytes: 1000, files: 2 };
        LogFiles::open(folder.path(), limits).write(LogStream::Stderr, b" two  words ");
        let bytes = fs::read(path(folder.path(), 0)).unwrap();
        let line = parse(bytes.strip_suffix(b"\n").unwrap()).unwrap();
        assert_eq!((line.stream, &line.text[..]), (LogStream::Stderr, &b" two  words "[..]));
    }

    #[test]
    fn rotation_bounds_the_disk_space_of_a_process() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogFiles::open(folder.path(), LogLimits { file_bytes: 1000, files: 3 });
        for number in 0..1000 {
            log.write(LogStream::Stdout, format!("line {number}").as_bytes());
        }
        let sizes: Vec<u64> =
            (0..5).filter_map(|age| fs::metadata(path(folder.path(), age)).ok()).map(|file| file.len()).collect();
        assert!(sizes.len() == 3 && sizes.iter().all(|size| *size <= 1000), "{sizes:?}");
        let newest = fs::read_to_string(path(folder.path(), 0)).unwrap();
        assert!(newest.ends_with("line 999\n"), "{newest}");
    }
}
