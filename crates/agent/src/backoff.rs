//! Growing pauses between tries.
//!
//! Owns: their lengths.

use std::time::Duration;

/// A pause that doubles up to a maximum. The number of tries is unlimited.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    #[cfg(test)]
    pub(crate) const fn new(next: Duration, max: Duration) -> Self {
        Self { next, max }
    }

    /// For image pulls: a registry that is down for an hour is asked every five minutes.
    pub(crate) const fn for_pulls() -> Self {
        Self { next: Duration::from_secs(1), max: Duration::from_mins(5) }
    }

    /// For requests to a driver or the control plane, which usually are back within seconds.
    pub(crate) const fn for_requests() -> Self {
        Self { next: Duration::from_millis(100), max: Duration::from_secs(5) }
    }

    /// Returns the pause to make now, and doubles the next one.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_a_second_to_five_minutes_and_stay_there() {
        let mut backoff = Backoff::for_pulls();
        let seconds: Vec<u64> = (0..12).map(|_| backoff.next_pause().as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    }
}
