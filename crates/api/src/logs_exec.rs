//! Log streams and exec sessions.
//!
//! Owns: the types, and how an exec session is framed after the upgrade from HTTP.
//!
//! ```text
//! kind (1 byte) │ length of the payload (4 bytes, big endian) │ payload
//! 0 input   1 end of input   2 terminal size, as JSON             from the client
//! 3 output  4 errors         5 exit code, as JSON, or null        from the command; nothing follows an exit
//! ```

use bytes::{Buf as _, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

/// Protocol name in the `Upgrade` header.
pub const SESSION_PROTOCOL: &str = "longshore-session";

/// Which log lines to stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogQuery {
    /// A replica, `DEPLOYMENT/SERVICE`, or a deployment.
    pub of: String,
    /// Its namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Whether to stream lines that are written later.
    #[serde(default)]
    pub follow: bool,
    /// Skip lines older than this, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// At most this many of the existing lines of each replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<u64>,
}

fn default_namespace() -> String {
    "default".to_owned()
}

/// One log line, or a note about a replica whose node does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Printed id of the replica.
    pub replica: String,
    /// Its generation.
    pub generation: u32,
    /// Its node.
    pub node: String,
    /// When it was written, in milliseconds since 1970.
    pub at_ms: u64,
    /// What it was written to.
    pub source: LogSource,
    /// The line, without its line break.
    pub text: String,
}

/// Source of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogSource {
    /// The replica's standard output.
    Stdout,
    /// The replica's standard error.
    Stderr,
    /// Not from the replica: the note says why its log is missing.
    Note,
}

/// A command to run in a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Additional environment, each as `NAME=value`.
    #[serde(default)]
    pub environment: Vec<String>,
    /// User; the replica's unless given.
    #[serde(default)]
    pub user: Option<String>,
    /// Working directory; the replica's unless given.
    #[serde(default)]
    pub working_dir: Option<String>,
    /// Allocates a terminal of this size.
    #[serde(default)]
    pub terminal: Option<TerminalSize>,
    /// Attaches to the process of a one-off job instead of running a command beside it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attach: bool,
}

/// Size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Columns.
    pub columns: u16,
    /// Rows.
    pub rows: u16,
}

/// One frame of an exec session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Bytes for standard input.
    Input(Bytes),
    /// Standard input is closed.
    EndOfInput,
    /// The terminal was resized.
    Resize(TerminalSize),
    /// Bytes of standard output; with a terminal, all output.
    Output(Bytes),
    /// Bytes of standard error.
    Errors(Bytes),
    /// The command has ended; without a code if it is unknown.
    Exit(Option<i64>),
}

/// The bytes are not a valid frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Unknown kind.
    #[error("there is no message of kind {0}")]
    Kind(u8),
    /// The payload is over the limit.
    #[error("a message of {0} bytes was announced")]
    TooLong(usize),
    /// The payload cannot be parsed.
    #[error("the payload of a message cannot be parsed")]
    Contents,
}

const HEAD: usize = 5;
/// Largest payload in bytes: limits how much memory one side can make the other use.
const MAX_PAYLOAD: usize = 256 * 1024;

impl Frame {
    /// Appends the encoded frame. A long payload becomes several frames.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let small = |value: serde_json::Result<Vec<u8>>| Bytes::from(value.unwrap_or_default());
        let (kind, contents) = match self {
            Self::Input(bytes) => (0, bytes.clone()),
            Self::EndOfInput => (1, Bytes::new()),
            Self::Resize(size) => (2, small(serde_json::to_vec(size))),
            Self::Output(bytes) => (3, bytes.clone()),
            Self::Errors(bytes) => (4, bytes.clone()),
            Self::Exit(code) => (5, small(serde_json::to_vec(code))),
        };
        if contents.is_empty() {
            into.extend_from_slice(&[kind, 0, 0, 0, 0]);
        }
        for part in contents.chunks(MAX_PAYLOAD) {
            // A part always fits into four bytes.
            let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
            into.push(kind);
            into.extend_from_slice(&length.to_be_bytes());
            into.extend_from_slice(part);
        }
    }

    /// Takes the first complete frame from the buffer; `None` until it is complete.
    pub fn decode(arrived: &mut BytesMut) -> Result<Option<Self>, FrameError> {
        let Some(head) = arrived.first_chunk::<HEAD>() else { return Ok(None) };
        let [kind, length @ ..] = *head;
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_PAYLOAD {
            return Err(FrameError::TooLong(length));
        }
        if arrived.len() < HEAD + length {
            return Ok(None);
        }
        arrived.advance(HEAD);
        let contents = arrived.split_to(length).freeze();
        Ok(Some(match kind {
            0 => Self::Input(contents),
            1 => Self::EndOfInput,
            2 => Self::Resize(serde_json::from_slice(&contents).map_err(|_| FrameError::Contents)?),
            3 => Self::Output(contents),
            4 => Self::Errors(contents),
            5 => Self::Exit(serde_json::from_slice(&contents).map_err(|_| FrameError::Contents)?),
            other => return Err(FrameError::Kind(other)),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_decoded_the_same_however_it_arrives() {
        let said = [
            Frame::Input(Bytes::from_static(b"ls\n")),
            Frame::Resize(TerminalSize { columns: 132, rows: 50 }),
            Frame::EndOfInput,
            Frame::Output(Bytes::from_static(b"a b\n")),
            Frame::Errors(Bytes::from_static(&[0, 255])),
            Frame::Exit(Some(7)),
            Frame::Exit(None),
        ];
        let mut sent = Vec::new();
        for frame in &said {
            frame.encode(&mut sent);
        }
        let (mut arrived, mut heard) = (BytesMut::new(), Vec::new());
        for byte in sent {
            arrived.extend_from_slice(&[byte]);
            heard.extend(Frame::decode(&mut arrived).unwrap());
        }
        assert_eq!(heard, said);
    }

    #[test]
    fn a_long_output_is_split_and_nothing_of_it_is_lost() {
        let long = Bytes::from(vec![7; MAX_PAYLOAD * 2 + 1]);
        let mut sent = Vec::new();
        Frame::Output(long.clone()).encode(&mut sent);
        let mut arrived = BytesMut::from(&sent[..]);
        let mut whole = Vec::new();
        while let Some(Frame::Output(part)) = Frame::decode(&mut arrived).unwrap() {
            whole.extend_from_slice(&part);
        }
        assert_eq!(whole, long);
    }

    #[test]
    fn an_invalid_frame_is_refused_before_it_is_buffered() {
        let decoded = |bytes: &[u8]| Frame::decode(&mut BytesMut::from(bytes));
        assert_eq!(decoded(&[0, 255, 255, 255, 255]), Err(FrameError::TooLong(u32::MAX as usize)));
        assert_eq!(decoded(&[9, 0, 0, 0, 0]), Err(FrameError::Kind(9)));
        assert_eq!(decoded(&[2, 0, 0, 0, 1, b'x']), Err(FrameError::Contents));
        assert_eq!(decoded(&[0, 0, 0]), Ok(None));
    }
}
