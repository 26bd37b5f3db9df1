//! Attaching to a process that the shim runs: its input, its output as it is written, and its terminal.
//!
//! Owns: the socket in the process's folder, the frames on it, and the output written before a client came.
//! Must not touch: the log, which is written whether somebody is attached or not.
//! Invariant: the first client receives every byte since the start; there is no second one, because the input of the
//! process ends with the first.
//!
//! ```text
//! kind (1 byte) │ length of the payload (4 bytes, big endian) │ payload
//! 0 input   1 end of input   2 columns and rows, two bytes each      from the client
//! 3 output  4 errors         5 exit code in eight bytes, or nothing  from the shim
//! ```

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::AsRawFd as _,
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rustix::termios::{Winsize, tcsetwinsize};
use serde::{Deserialize, Serialize};

use crate::logs_exec::LogStream;

/// Output kept for the first client. A process that writes more before it comes has to wait.
const BUFFERED_BYTES: usize = 1 << 20;
/// How long a process waits with a full buffer, and a shim whose process has ended, for the first client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest payload of a frame from a client.
const MAX_PAYLOAD: usize = 1 << 20;
/// The end of input on a terminal, which cannot be closed without hanging up.
const END_OF_TRANSMISSION: u8 = 4;

/// How a process can be attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AttachMode {
    /// Input, output and errors are pipes.
    Piped,
    /// All three are one terminal.
    Terminal,
}

/// The kinds of frames.
pub(crate) mod kind {
    pub(crate) const INPUT: u8 = 0;
    pub(crate) const END_OF_INPUT: u8 = 1;
    pub(crate) const RESIZE: u8 = 2;
    pub(crate) const OUTPUT: u8 = 3;
    pub(crate) const ERRORS: u8 = 4;
    pub(crate) const EXIT: u8 = 5;
}

pub(crate) fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// The path of the socket by way of an open directory: the path of the folder itself may be longer than an address.
pub(crate) fn socket_path(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/attach.sock", directory.as_raw_fd()))
}

/// The input of the process.
pub(super) struct ProcessInput {
    pub(super) file: File,
    pub(super) mode: AttachMode,
}

/// The socket of a process, and what the first client will receive.
#[derive(Clone)]
pub(super) struct AttachPoint(Arc<Shared>);

struct Shared {
    output: Mutex<Outgoing>,
    changed: Condvar,
}

#[derive(Default)]
struct Outgoing {
    buffered: Vec<u8>,
    client: Option<UnixStream>,
    /// Whether a client came, perhaps left since.
    served: bool,
}

impl AttachPoint {
    /// Opens the socket and serves the first client that connects.
    pub(super) fn open(folder: &Path, input: ProcessInput) -> io::Result<Self> {
        let directory = File::open(folder)?;
        let listener = UnixListener::bind(socket_path(&directory))?;
        let point = Self(Arc::new(Shared { output: Mutex::default(), changed: Condvar::new() }));
        let served = point.clone();
        thread::spawn(move || {
            if let Ok((client, _)) = listener.accept() {
                let _ = std::fs::remove_file(socket_path(&directory));
                served.serve(client, input);
            }
        });
        Ok(point)
    }

    /// Sends what the process wrote, or keeps it for the first client.
    pub(super) fn publish(&self, stream: LogStream, bytes: &[u8]) {
        let kind = match stream {
            LogStream::Stdout => kind::OUTPUT,
            LogStream::Stderr => kind::ERRORS,
        };
        self.send(&frame(kind, bytes));
    }

    /// Tells the client that the process has ended, and waits for one that has not come yet.
    pub(super) fn finish(&self, code: Option<i64>) {
        self.send(&frame(kind::EXIT, &code.map(|code| code.to_be_bytes().to_vec()).unwrap_or_default()));
        let _ = self.0.changed.wait_timeout_while(self.lock(), CLIENT_TIMEOUT, |output| !output.served);
    }

    fn send(&self, frame: &[u8]) {
        let full = |output: &mut Outgoing| !output.served && output.buffered.len() > BUFFERED_BYTES;
        let waited = self.0.changed.wait_timeout_while(self.lock(), CLIENT_TIMEOUT, full);
        let mut output = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(output, _)| output);
        if let Some(client) = &mut output.client {
            if client.write_all(frame).is_err() {
                output.client = None;
            }
        } else if !full(&mut output) && !output.served {
            output.buffered.extend_from_slice(frame);
        }
    }

    fn serve(&self, mut client: UnixStream, input: ProcessInput) {
        {
            let mut output = self.lock();
            let buffered = std::mem::take(&mut output.buffered);
            output.served = true;
            output.client = client.try_clone().ok().filter(|_| client.write_all(&buffered).is_ok());
            self.0.changed.notify_all();
        }
        forward_input(&mut client, input);
    }

    fn lock(&self) -> MutexGuard<'_, Outgoing> {
        self.0.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forwards frames to the process until the client leaves. The input of the process is closed then.
fn forward_input(client: &mut UnixStream, input: ProcessInput) {
    let ProcessInput { file, mode } = input;
    let mut to = Some(file);
    while let Some((kind, payload)) = read_frame(client) {
        match (kind, &mut to, mode) {
            (kind::INPUT, Some(file), _) => {
                // A process that no longer reads may still write.
                let _ = file.write_all(&payload);
            }
            (kind::END_OF_INPUT, Some(file), AttachMode::Terminal) => drop(file.write_all(&[END_OF_TRANSMISSION])),
            (kind::END_OF_INPUT, _, AttachMode::Piped) => to = None,
            (kind::RESIZE, Some(file), AttachMode::Terminal) => resize(file, &payload),
            _ => {}
        }
    }
}

fn resize(terminal: &File, payload: &[u8]) {
    let &[c1, c0, r1, r0] = payload else { return };
    let (ws_col, ws_row) = (u16::from_be_bytes([c1, c0]), u16::from_be_bytes([r1, r0]));
    // Fails only if the terminal is gone, and then its size does not matter.
    let _ = tcsetwinsize(terminal, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 });
}

fn read_frame(from: &mut UnixStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    from.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let mut payload = vec![0; Some(length).filter(|length| *length <= MAX_PAYLOAD)?];
    from.read_exact(&mut payload).ok()?;
    Some((head[0], payload))
}
