//! Reading the output files of a process.
//!
//! Owns: following files that are rotated while they are read.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use longshore_model::Time;
use tokio::sync::mpsc;

use super::is_alive;
use crate::{
    logs_exec::{CHANNEL_CAPACITY, LogLine, LogOptions},
    shim::{
        log::{parse, path},
        protocol::ProcessStatus,
    },
};

/// Time between two reads while following.
const POLL: Duration = Duration::from_millis(100);

/// Reads the output of the process in that folder, which is kept in at most `files` files.
pub(super) fn spawn(folder: PathBuf, files: u32, options: LogOptions) -> mpsc::Receiver<LogLine> {
    let (to, lines) = mpsc::channel(CHANNEL_CAPACITY);
    tokio::spawn(read(folder, files, options, to));
    lines
}

async fn read(folder: PathBuf, files: u32, options: LogOptions, to: mpsc::Sender<LogLine>) {
    let mut tail = VecDeque::new();
    for age in (1..files).rev() {
        if let Some(mut reader) = Reader::open(&path(&folder, age)) {
            append(&mut tail, reader.lines(), &options);
        }
    }
    let mut newest = Reader::open(&path(&folder, 0));
    if let Some(reader) = newest.as_mut() {
        append(&mut tail, reader.lines(), &options);
    }
    for line in tail {
        if to.send(line).await.is_err() {
            return;
        }
    }
    if options.follow {
        follow(&folder, newest, options.since.unwrap_or(Time(0)), &to).await;
    }
}

async fn follow(folder: &Path, mut reader: Option<Reader>, since: Time, to: &mpsc::Sender<LogLine>) {
    loop {
        // Both are checked before reading, so lines written in between are read in the next round and not lost.
        let ended = !ProcessStatus::read(folder).is_some_and(|status| is_alive(&status));
        let rotated = reader.as_ref().is_some_and(|reader| !reader.is_still_at(&path(folder, 0)));
        for line in reader.as_mut().map(Reader::lines).unwrap_or_default() {
            if line.at >= since && to.send(line).await.is_err() {
                return;
            }
        }
        if rotated || reader.is_none() {
            reader = Reader::open(&path(folder, 0));
            if rotated {
                continue;
            }
        }
        if ended || to.is_closed() {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Adds lines that the options ask for, and drops the oldest beyond `options.tail`.
fn append(tail: &mut VecDeque<LogLine>, lines: Vec<LogLine>, options: &LogOptions) {
    tail.extend(lines.into_iter().filter(|line| options.since.is_none_or(|since| line.at >= since)));
    while options.tail.is_some_and(|limit| tail.len() as u64 > limit) {
        tail.pop_front();
    }
}

/// One file, read from its last position on. An incomplete last line is kept until the rest of it arrives.
struct Reader {
    file: File,
    incomplete: Vec<u8>,
}

impl Reader {
    fn open(path: &Path) -> Option<Self> {
        Some(Self { file: File::open(path).ok()?, incomplete: Vec::new() })
    }

    fn lines(&mut self) -> Vec<LogLine> {
        let _: io::Result<usize> = self.file.read_to_end(&mut self.incomplete);
        let Some(end) = self.incomplete.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
        let complete: Vec<u8> = self.incomplete.drain(..=end).collect();
        complete.split(|byte| *byte == b'\n').filter_map(parse).collect()
    }

    fn is_still_at(&self, path: &Path) -> bool {
        let inode = |metadata: io::Result<std::fs::Metadata>| metadata.map(|metadata| metadata.ino()).ok();
        inode(self.file.metadata()) == inode(std::fs::metadata(path))
    }
}
