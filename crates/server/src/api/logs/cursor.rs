//! How far the log of each attempt was sent.
//!
//! Invariant: a broken connection loses no line and repeats none, however many lines share one millisecond.

use std::time::{Duration, Instant};

use longshore_model::{Attempt, NodeName, ReplicaKey, Time};

use crate::{api::logs::REFRESH_INTERVAL, node_rpc::logs_exec::LogsExecError};

/// Time until a node that did not answer is asked again.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// One attempt of one generation: the writer of one log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReplicaAttempt {
    pub(crate) key: ReplicaKey,
    pub(crate) attempt: Attempt,
}

/// Which attempt of its generation this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptAge {
    /// The newest; if it is not found, it has not started yet.
    Newest,
    /// An earlier one; if it is not found, it was not kept.
    Previous,
}

/// How far the log of one attempt was sent.
#[derive(Clone, Debug)]
pub(crate) struct LogCursor {
    pub(crate) node: NodeName,
    age: AttemptAge,
    position: SentPosition,
    state: CursorState,
    /// Limit for lines that were written before the stream began.
    tail: Option<u64>,
    /// The last note that was sent instead of lines.
    last_note: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CursorState {
    /// The log is open.
    Open,
    /// The log has ended.
    Done,
    /// The node did not answer; it is asked again then.
    RetryAt(Instant),
}

impl LogCursor {
    pub(crate) fn new(node: NodeName, tail: Option<u64>) -> Self {
        Self {
            node,
            age: AttemptAge::Newest,
            position: SentPosition::default(),
            state: CursorState::Open,
            tail,
            last_note: String::new(),
        }
    }

    /// An attempt stops being the newest when the next one starts.
    pub(crate) const fn set_age(&mut self, age: AttemptAge) {
        self.age = age;
    }

    pub(crate) fn is_due(&self) -> bool {
        match self.state {
            CursorState::Open | CursorState::Done => false,
            CursorState::RetryAt(at) => at <= Instant::now(),
        }
    }

    /// Opens the log: returns the time to read from and the limit for older lines.
    pub(crate) fn open_at(&mut self, since: Option<Time>) -> (Option<Time>, Option<u64>) {
        self.state = CursorState::Open;
        self.position.resume_at().map_or((since, self.tail), |position| (Some(position), None))
    }

    /// Whether a line of this time was not sent before.
    pub(crate) fn accept_line(&mut self, at: Time) -> bool {
        self.last_note.clear();
        self.position.is_new(at)
    }

    /// The log could not be opened or broke off. Returns the note to send, if it is a new one.
    pub(crate) fn interrupted(&mut self, why: &LogsExecError) -> Option<String> {
        match why {
            LogsExecError::NotFound if self.age == AttemptAge::Previous => {
                self.state = CursorState::Done;
                None
            }
            LogsExecError::NotFound => {
                self.state = CursorState::RetryAt(Instant::now() + REFRESH_INTERVAL);
                // It has not started, so nobody has missed any of its lines.
                self.tail = None;
                self.last_note.clear();
                None
            }
            LogsExecError::Unreachable(why) | LogsExecError::Refused(why) => {
                self.state = CursorState::RetryAt(Instant::now() + RETRY_DELAY);
                if self.last_note == *why {
                    return None;
                }
                self.last_note.clone_from(why);
                Some(why.clone())
            }
        }
    }

    /// The log ended, unless it broke off.
    pub(crate) fn ended(&mut self) {
        if self.state == CursorState::Open {
            self.state = CursorState::Done;
        }
    }
}

/// How far lines were sent. Times are in milliseconds, and a connection can break between two lines of the same
/// millisecond: all lines of that time are requested again, and as many as were sent are skipped.
#[derive(Clone, Debug, Default)]
struct SentPosition {
    at: Option<Time>,
    /// Lines of that time that were sent.
    sent: u64,
    /// Lines of that time that will be repeated.
    repeats: u64,
}

impl SentPosition {
    /// The time to resume from.
    const fn resume_at(&mut self) -> Option<Time> {
        self.repeats = self.sent;
        self.at
    }

    fn is_new(&mut self, at: Time) -> bool {
        let same = self.at == Some(at);
        if same && self.repeats > 0 {
            self.repeats -= 1;
            return false;
        }
        let sent = if same { self.sent + 1 } else { 1 };
        *self = Self { at: Some(at), sent, repeats: 0 };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of the lines on a node.
    const WRITTEN: [u64; 7] = [1, 2, 2, 2, 2, 3, 3];

    /// Indices of the lines that are sent when the connection breaks after each of these counts.
    fn sent(breaks: &[usize]) -> Vec<usize> {
        let mut cursor = LogCursor::new("n1".into(), Some(100));
        let mut sent = Vec::new();
        for received in breaks.iter().copied().chain([WRITTEN.len()]) {
            let (since, _) = cursor.open_at(None);
            let lines = WRITTEN.into_iter().enumerate().filter(|(_, at)| since.is_none_or(|since| Time(*at) >= since));
            sent.extend(lines.take(received).filter(|(_, at)| cursor.accept_line(Time(*at))).map(|(place, _)| place));
        }
        sent
    }

    #[test]
    fn lines_of_one_millisecond_are_sent_once_wherever_the_connection_breaks() {
        for first in 0..=WRITTEN.len() {
            for second in 0..=WRITTEN.len() {
                assert_eq!(sent(&[first, second]), [0, 1, 2, 3, 4, 5, 6], "broken after {first} and {second}");
            }
        }
    }

    #[test]
    fn tail_applies_once_and_a_node_that_fails_again_is_noted_again() {
        let mut cursor = LogCursor::new("n1".into(), Some(3));
        assert_eq!(cursor.open_at(Some(Time(7))), (Some(Time(7)), Some(3)));
        let away = LogsExecError::Unreachable("`n1` does not answer".to_owned());
        assert!(cursor.interrupted(&away).is_some() && cursor.interrupted(&away).is_none());
        assert!(cursor.accept_line(Time(9)));
        assert_eq!(cursor.open_at(Some(Time(7))), (Some(Time(9)), None));
        assert!(cursor.interrupted(&away).is_some());
    }

    #[test]
    fn an_attempt_that_has_not_started_sends_every_line_and_no_note() {
        let mut cursor = LogCursor::new("n1".into(), Some(0));
        cursor.open_at(None);
        assert_eq!(cursor.interrupted(&LogsExecError::NotFound), None);
        cursor.ended();
        assert_eq!(cursor.open_at(None), (None, None), "it was done with before it began");
    }
}
