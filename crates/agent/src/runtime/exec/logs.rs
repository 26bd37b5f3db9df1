//! Reading what a process has written.
//!
//! Owns: following files that are put aside while they are read.

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

use super::{Exec, is_alive};
use crate::{
    runtime::{Handle, RuntimeError},
    session::{Follow, LogLine, LogOptions},
    shim::{
        log::{parse, path},
        order::{Order, Status},
    },
};

/// How often a reader looks for more. Nothing else is woken by it.
const LOOK: Duration = Duration::from_millis(100);

impl Exec {
    #[expect(clippy::unused_async, reason = "the contract is the same for a driver that must ask somebody")]
    pub(crate) async fn logs(
        &self,
        handle: &Handle,
        options: LogOptions,
    ) -> Result<mpsc::Receiver<LogLine>, RuntimeError> {
        let folder = PathBuf::from(&handle.0);
        let order = Order::read(&folder).map_err(|_| RuntimeError::Gone)?;
        let (to, lines) = mpsc::channel(256);
        tokio::spawn(read(folder, order.log.files, options, to));
        Ok(lines)
    }
}

async fn read(folder: PathBuf, files: u32, options: LogOptions, to: mpsc::Sender<LogLine>) {
    let since = options.since.unwrap_or(Time(0));
    let mut tail = VecDeque::new();
    for age in (1..files).rev() {
        take(&mut tail, Reader::open(&path(&folder, age)), options.tail, since);
    }
    let mut newest = Reader::open(&path(&folder, 0));
    if let Some(reader) = newest.as_mut() {
        keep(&mut tail, reader.lines(), options.tail, since);
    }
    for line in tail {
        if to.send(line).await.is_err() {
            return;
        }
    }
    if options.follow == Follow::Yes {
        follow(&folder, newest, since, &to).await;
    }
}

async fn follow(folder: &Path, mut reader: Option<Reader>, since: Time, to: &mpsc::Sender<LogLine>) {
    loop {
        // Asked before reading: what is written between the two is read in the next round, not lost.
        let over = !Status::read(folder).is_some_and(|status| is_alive(&status));
        let put_aside = reader.as_ref().is_some_and(|reader| !reader.is_still(&path(folder, 0)));
        for line in reader.as_mut().map(Reader::lines).unwrap_or_default() {
            if line.at >= since && to.send(line).await.is_err() {
                return;
            }
        }
        if put_aside || reader.is_none() {
            reader = Reader::open(&path(folder, 0));
            if put_aside {
                continue;
            }
        }
        if over || to.is_closed() {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn take(tail: &mut VecDeque<LogLine>, reader: Option<Reader>, most: Option<u64>, since: Time) {
    keep(tail, reader.map(|mut reader| reader.lines()).unwrap_or_default(), most, since);
}

fn keep(tail: &mut VecDeque<LogLine>, lines: Vec<LogLine>, most: Option<u64>, since: Time) {
    tail.extend(lines.into_iter().filter(|line| line.at >= since));
    while most.is_some_and(|most| tail.len() as u64 > most) {
        tail.pop_front();
    }
}

/// One file, read from where it was last left. A line without its end waits for it.
struct Reader {
    file: File,
    rest: Vec<u8>,
}

impl Reader {
    fn open(path: &Path) -> Option<Self> {
        Some(Self { file: File::open(path).ok()?, rest: Vec::new() })
    }

    fn lines(&mut self) -> Vec<LogLine> {
        let _: io::Result<usize> = self.file.read_to_end(&mut self.rest);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        whole.split(|byte| *byte == b'\n').filter_map(parse).collect()
    }

    fn is_still(&self, path: &Path) -> bool {
        let number = |metadata: io::Result<std::fs::Metadata>| metadata.map(|metadata| metadata.ino()).ok();
        number(self.file.metadata()) == number(std::fs::metadata(path))
    }
}
