//! Growing pauses between tries.
//!
//! Owns: the numbers.

use std::time::Duration;

/// A pause that doubles up to a ceiling, for ever.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    next: Duration,
    ceiling: Duration,
}

impl Backoff {
    #[cfg(test)]
    pub(crate) const fn from(next: Duration, ceiling: Duration) -> Self {
        Self { next, ceiling }
    }

    /// For whatever a person waits for: a registry that is down for an hour is asked every five minutes.
    pub(crate) const fn for_pulls() -> Self {
        Self { next: Duration::from_secs(1), ceiling: Duration::from_mins(5) }
    }

    /// For a neighbour on the same machine or network, which is back in seconds or not at all.
    pub(crate) const fn for_neighbours() -> Self {
        Self { next: Duration::from_millis(100), ceiling: Duration::from_secs(5) }
    }

    /// The pause to make now.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.ceiling);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_a_second_to_five_minutes_and_stay_there() {
        let mut backoff = Backoff::for_pulls();
        let seconds: Vec<u64> = (0..12).map(|_| backoff.pause().as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    }
}
