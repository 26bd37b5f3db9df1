//! How much may be asked in a while.
//!
//! Invariant: whoever asks too often is refused at once; nobody is made to wait.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// Lets through so many in a row, and then so many a second.
#[derive(Debug)]
pub(crate) struct Limit {
    most: f64,
    per_second: f64,
    left: Mutex<(f64, Instant)>,
}

impl Limit {
    pub(crate) fn new(most: u32, per_second: u32) -> Self {
        let most = f64::from(most);
        Self { most, per_second: f64::from(per_second), left: Mutex::new((most, Instant::now())) }
    }

    /// Takes one, if one is left.
    pub(crate) fn pass(&self) -> Result<(), ()> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Result<(), ()> {
        let mut kept = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, since) = *kept;
        let left = (left + now.saturating_duration_since(since).as_secs_f64() * self.per_second).min(self.most);
        let passes = left >= 1.0;
        *kept = (if passes { left - 1.0 } else { left }, now);
        if passes { Ok(()) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_few_pass_in_a_row_and_then_so_many_a_second() {
        let (limit, start) = (Limit::new(3, 2), Instant::now());
        let passed = |seconds: f64| {
            let at = start + Duration::from_secs_f64(seconds);
            (0..10).filter(|_| limit.pass_at(at).is_ok()).count()
        };
        assert_eq!([passed(0.01), passed(1.02), passed(60.0)], [3, 2, 3]);
    }
}
