//! Rate limits and concurrency limits.
//!
//! Owns: token buckets, shared and per caller, and counting what is open at the same time.
//! Invariant: an excess request is refused at once and told when to retry; nothing waits, and no other caller is
//! affected.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// One token bucket for all callers.
#[derive(Debug)]
pub(crate) struct RateLimit {
    rate: Rate,
    left: Mutex<TokenBucket>,
}

/// A rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Requests at once.
    pub(crate) burst: u32,
    /// Requests per second after that.
    pub(crate) per_second: u32,
}

/// The tokens left in a bucket.
#[derive(Clone, Copy, Debug)]
struct TokenBucket {
    count: f64,
    since: Instant,
}

/// The limit is exceeded; the time after which a retry can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryAfter(pub(crate) Duration);

impl TokenBucket {
    fn all(rate: Rate, now: Instant) -> Self {
        Self { count: f64::from(rate.burst), since: now }
    }

    fn take(&mut self, rate: Rate, now: Instant) -> Result<(), RetryAfter> {
        let (burst, per_second) = (f64::from(rate.burst), f64::from(rate.per_second));
        let grown = now.saturating_duration_since(self.since).as_secs_f64() * per_second;
        *self = Self { count: (self.count + grown).min(burst), since: now };
        if self.count < 1.0 {
            return Err(RetryAfter(Duration::from_secs_f64((1.0 - self.count) / per_second)));
        }
        self.count -= 1.0;
        Ok(())
    }
}

impl RateLimit {
    pub(crate) fn new(burst: u32, per_second: u32) -> Self {
        let rate = Rate { burst, per_second };
        Self { rate, left: Mutex::new(TokenBucket::all(rate, Instant::now())) }
    }

    /// Takes one token, if one is left.
    pub(crate) fn take(&self) -> Result<(), RetryAfter> {
        lock(&self.left).take(self.rate, Instant::now())
    }
}

/// One token bucket per caller.
#[derive(Debug)]
pub(crate) struct CallerRateLimits {
    rate: Rate,
    callers: Mutex<HashMap<String, TokenBucket>>,
}

/// Callers remembered. A caller whose bucket is full again may be forgotten.
const MAX_CALLERS: usize = 4096;

impl CallerRateLimits {
    pub(crate) fn new(burst: u32, per_second: u32) -> Self {
        Self { rate: Rate { burst, per_second }, callers: Mutex::default() }
    }

    /// Takes one token of a caller, if one is left.
    pub(crate) fn take(&self, caller: &str) -> Result<(), RetryAfter> {
        self.take_at(caller, Instant::now())
    }

    fn take_at(&self, caller: &str, now: Instant) -> Result<(), RetryAfter> {
        let rate = self.rate;
        let mut callers = lock(&self.callers);
        if callers.len() >= MAX_CALLERS {
            let whole = Duration::from_secs_f64(f64::from(rate.burst) / f64::from(rate.per_second));
            callers.retain(|_, left| now.saturating_duration_since(left.since) < whole);
        }
        match callers.get_mut(caller) {
            Some(left) => left.take(rate, now),
            None => callers.entry(caller.to_owned()).or_insert(TokenBucket::all(rate, now)).take(rate, now),
        }
    }
}

/// Limits how many are open at the same time, per name and in total.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    each: usize,
    all: usize,
    held: Mutex<HashMap<String, usize>>,
}

/// One open slot, until this is dropped.
#[derive(Debug)]
pub(crate) struct ConcurrencyPermit {
    room: Arc<ConcurrencyLimit>,
    name: String,
}

impl ConcurrencyLimit {
    pub(crate) fn new(each: usize, all: usize) -> Arc<Self> {
        Arc::new(Self { each, all, held: Mutex::default() })
    }

    /// Takes a slot, if one is free.
    pub(crate) fn acquire(self: &Arc<Self>, name: &str) -> Option<ConcurrencyPermit> {
        let mut held = lock(&self.held);
        let (mine, all) = (held.get(name).copied().unwrap_or(0), held.values().sum::<usize>());
        if mine >= self.each || all >= self.all {
            return None;
        }
        held.insert(name.to_owned(), mine + 1);
        Some(ConcurrencyPermit { room: Arc::clone(self), name: name.to_owned() })
    }

    /// Slots in use by one name.
    pub(crate) fn held_by(&self, name: &str) -> usize {
        lock(&self.held).get(name).copied().unwrap_or(0)
    }

    /// Slots in use.
    pub(crate) fn count(&self) -> usize {
        lock(&self.held).values().sum()
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        let mut held = lock(&self.room.held);
        match held.get_mut(&self.name) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(held.remove(&self.name)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_a_rate_per_second_and_callers_are_independent() {
        let (limits, start) = (CallerRateLimits::new(3, 2), Instant::now());
        let passed = |caller: &str, seconds: f64| {
            let at = start + Duration::from_secs_f64(seconds);
            (0..10).filter(|_| limits.take_at(caller, at).is_ok()).count()
        };
        assert_eq!([passed("a", 0.01), passed("a", 1.02), passed("a", 60.0)], [3, 2, 3]);
        assert_eq!(passed("b", 60.0), 3);
        assert_eq!(limits.take_at("a", start + Duration::from_mins(1)), Err(RetryAfter(Duration::from_millis(500))));
    }

    #[test]
    fn idle_callers_are_forgotten() {
        let (limits, start) = (CallerRateLimits::new(1, 1), Instant::now());
        (0..MAX_CALLERS).for_each(|caller| limits.take_at(&caller.to_string(), start).unwrap());
        limits.take_at("new", start + Duration::from_secs(2)).unwrap();
        assert_eq!(lock(&limits.callers).len(), 1);
    }

    #[test]
    fn a_concurrency_limit_holds_per_name_and_in_total_and_a_dropped_permit_is_freed() {
        let room = ConcurrencyLimit::new(2, 3);
        let mine = [room.acquire("a").unwrap(), room.acquire("a").unwrap()];
        assert!(room.acquire("a").is_none());
        let theirs = room.acquire("b").unwrap();
        assert!(room.acquire("c").is_none());
        drop(theirs);
        assert!(room.acquire("c").is_some());
        drop(mine);
        assert_eq!(room.count(), 0);
    }
}
