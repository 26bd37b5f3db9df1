//! What replicas write, and commands beside them.
//!
//! Owns: the shapes, and how a command's conversation is cut into frames once both sides have left HTTP.
//!
//! ```text
//! kind (1 byte) │ length of what follows (4 bytes, big end first) │ what follows
//! 0 input   1 end of input   2 size of the terminal, as JSON      from the client
//! 3 output  4 errors         5 exit code, as JSON, or null        from the command; nothing follows an exit
//! ```

use bytes::{Buf as _, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

/// The word both sides leave HTTP with.
pub const SESSION_PROTOCOL: &str = "longshore-session";

/// Which lines are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogQuery {
    /// Whose: a replica, `DEPLOYMENT/SERVICE`, or a deployment.
    pub of: String,
    /// Where that is looked for.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Whether lines that come later are wanted, too.
    #[serde(default)]
    pub follow: bool,
    /// Nothing older than this, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// At most so many lines of each replica, of those that are there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<u64>,
}

fn default_namespace() -> String {
    "default".to_owned()
}

/// One line of a replica's output, or a word about a replica that could not be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Whose.
    pub replica: String,
    /// Which decision about it.
    pub generation: u32,
    /// On which node.
    pub node: String,
    /// When it was written, in milliseconds since 1970.
    pub at_ms: u64,
    /// Where to.
    pub source: LogSource,
    /// The line, without its end.
    pub text: String,
}

/// Where a line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogSource {
    /// The replica's standard output.
    Stdout,
    /// Its standard error.
    Stderr,
    /// Not from the replica: why nothing comes from it.
    Note,
}

/// A command to run beside a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment on top of the replica's, each `NAME=value`.
    #[serde(default)]
    pub environment: Vec<String>,
    /// User, where not the replica's.
    #[serde(default)]
    pub user: Option<String>,
    /// Folder, where not the replica's.
    #[serde(default)]
    pub working_dir: Option<String>,
    /// The terminal it is given, if it is given one.
    #[serde(default)]
    pub terminal: Option<TerminalSize>,
}

/// How large a terminal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Characters in a row.
    pub columns: u16,
    /// Rows.
    pub rows: u16,
}

/// One message of a command's conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Bytes for its standard input.
    Input(Bytes),
    /// Nothing more will come.
    EndOfInput,
    /// Its terminal has another size.
    Resize(TerminalSize),
    /// Bytes it wrote; all of them where it has a terminal.
    Output(Bytes),
    /// Bytes it wrote to its standard error.
    Errors(Bytes),
    /// It has ended; without a code where nobody saw how.
    Exit(Option<i64>),
}

/// What was sent is no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Nothing has this number.
    #[error("there is no message of kind {0}")]
    Kind(u8),
    /// Longer than anybody reads.
    #[error("a message of {0} bytes was announced")]
    TooLong(usize),
    /// What is in it is not understood.
    #[error("a message is not understood")]
    Contents,
}

const HEAD: usize = 5;
/// What one side can make the other keep in memory at once.
const LONGEST: usize = 256 * 1024;

impl Frame {
    /// The message in bytes. Long outputs are several messages.
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
        for part in contents.chunks(LONGEST) {
            // A part is short enough for four bytes by far.
            let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
            into.push(kind);
            into.extend_from_slice(&length.to_be_bytes());
            into.extend_from_slice(part);
        }
    }

    /// Takes the first whole message off what has arrived; `None` until it is whole.
    pub fn decode(arrived: &mut BytesMut) -> Result<Option<Self>, FrameError> {
        let Some(head) = arrived.first_chunk::<HEAD>() else { return Ok(None) };
        let [kind, length @ ..] = *head;
        let length = u32::from_be_bytes(length) as usize;
        if length > LONGEST {
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
    fn a_conversation_is_the_same_however_it_arrives() {
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
    fn a_long_output_is_cut_and_nothing_of_it_is_lost() {
        let long = Bytes::from(vec![7; LONGEST * 2 + 1]);
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
    fn what_is_no_message_is_refused_before_it_is_kept() {
        let decoded = |bytes: &[u8]| Frame::decode(&mut BytesMut::from(bytes));
        assert_eq!(decoded(&[0, 255, 255, 255, 255]), Err(FrameError::TooLong(u32::MAX as usize)));
        assert_eq!(decoded(&[9, 0, 0, 0, 0]), Err(FrameError::Kind(9)));
        assert_eq!(decoded(&[2, 0, 0, 0, 1, b'x']), Err(FrameError::Contents));
        assert_eq!(decoded(&[0, 0, 0]), Ok(None));
    }
}
