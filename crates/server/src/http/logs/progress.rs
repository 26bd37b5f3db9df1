//! How far the lines of each writer were sent.
//!
//! Invariant: a connection that breaks costs no line and repeats none, however many were written in one millisecond.

use std::time::{Duration, Instant};

use longshore_model::{Attempt, NodeName, Time, WorkKey};

use super::LOOK;
use crate::beside::BesideError;

/// Time until a node that did not answer is asked again.
const AGAIN: Duration = Duration::from_secs(5);

/// One start of one generation: what writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Writer {
    pub(super) key: WorkKey,
    pub(super) attempt: Attempt,
}

/// Which start of its generation a writer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// The newest; one that is not there has yet to come.
    Newest,
    /// One before; if it is not there, nobody has kept it.
    Before,
}

/// How far a writer's lines were sent.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    pub(super) node: NodeName,
    start: Start,
    reached: Reached,
    part: Part,
    /// At most so many of those that were there before anybody listened.
    tail: Option<u64>,
    /// What was last said in place of them.
    noted: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// They are listened to.
    Open,
    /// All they had to say was heard.
    Done,
    /// They could not be asked, and are asked again.
    Again(Instant),
}

impl Progress {
    pub(super) fn new(node: NodeName, tail: Option<u64>) -> Self {
        Self { node, start: Start::Newest, reached: Reached::default(), part: Part::Open, tail, noted: String::new() }
    }

    /// Which start they are now: the newest becomes one before.
    pub(super) const fn is(&mut self, start: Start) {
        self.start = start;
    }

    pub(super) fn is_due(&self) -> bool {
        match self.part {
            Part::Open | Part::Done => false,
            Part::Again(at) => at <= Instant::now(),
        }
    }

    /// They are asked for their lines, from the time on that is given; and for so many of what is there already.
    pub(super) fn opened(&mut self, since: Option<Time>) -> (Option<Time>, Option<u64>) {
        self.part = Part::Open;
        self.reached.again().map_or((since, self.tail), |reached| (Some(reached), None))
    }

    /// A line came; whether it is a new one.
    pub(super) fn wrote(&mut self, at: Time) -> bool {
        self.noted.clear();
        self.reached.is_new(at)
    }

    /// Lines could not be asked for, or broke off; what is to be said about it, if anything.
    pub(super) fn broke_off(&mut self, why: &BesideError) -> Option<String> {
        match why {
            BesideError::NotThere if self.start == Start::Before => {
                self.part = Part::Done;
                None
            }
            BesideError::NotThere => {
                self.part = Part::Again(Instant::now() + LOOK);
                // It has yet to be started, and nobody has missed any of its lines.
                self.tail = None;
                self.noted.clear();
                None
            }
            BesideError::Away(why) | BesideError::Refused(why) => {
                self.part = Part::Again(Instant::now() + AGAIN);
                if self.noted == *why {
                    return None;
                }
                self.noted.clone_from(why);
                Some(why.clone())
            }
        }
    }

    /// Nothing more comes, unless that it broke off is why.
    pub(super) fn ended(&mut self) {
        if self.part == Part::Open {
            self.part = Part::Done;
        }
    }
}

/// Up to where lines were sent. Times are in milliseconds, and a connection can break between two lines of the same one:
/// it is asked for again as a whole, and as many of its lines as were sent are passed over.
#[derive(Clone, Debug, Default)]
struct Reached {
    at: Option<Time>,
    /// So many lines of that time were sent.
    sent: u64,
    /// So many of them come again.
    repeats: u64,
}

impl Reached {
    /// From when on to ask, once lines broke off.
    const fn again(&mut self) -> Option<Time> {
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

    /// Times of lines, as a node has them.
    const WRITTEN: [u64; 7] = [1, 2, 2, 2, 2, 3, 3];

    /// What is sent of them where the connection breaks after so many each time, counted by their place.
    fn sent(breaks: &[usize]) -> Vec<usize> {
        let mut progress = Progress::new("n1".into(), Some(100));
        let mut sent = Vec::new();
        for heard in breaks.iter().copied().chain([WRITTEN.len()]) {
            let (since, _) = progress.opened(None);
            let lines = WRITTEN.into_iter().enumerate().filter(|(_, at)| since.is_none_or(|since| Time(*at) >= since));
            sent.extend(lines.take(heard).filter(|(_, at)| progress.wrote(Time(*at))).map(|(place, _)| place));
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
    fn what_was_there_before_is_cut_once_and_a_node_that_falls_silent_again_is_named_again() {
        let mut progress = Progress::new("n1".into(), Some(3));
        assert_eq!(progress.opened(Some(Time(7))), (Some(Time(7)), Some(3)));
        let away = BesideError::Away("`n1` does not answer".to_owned());
        assert!(progress.broke_off(&away).is_some() && progress.broke_off(&away).is_none());
        assert!(progress.wrote(Time(9)));
        assert_eq!(progress.opened(Some(Time(7))), (Some(Time(9)), None));
        assert!(progress.broke_off(&away).is_some());
    }

    #[test]
    fn of_what_is_yet_to_be_started_every_line_is_wanted_and_nothing_is_said() {
        let mut progress = Progress::new("n1".into(), Some(0));
        progress.opened(None);
        assert_eq!(progress.broke_off(&BesideError::NotThere), None);
        progress.ended();
        assert_eq!(progress.opened(None), (None, None), "it was done with before it began");
    }
}
