//! How much may be asked in a while.
//!
//! Owns: counting, for everybody together and for each caller alone.
//! Invariant: whoever asks too often is refused at once and told when to come back; nobody is made to wait, and nobody
//! else is refused for it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Lets through so many in a row, and then so many a second.
#[derive(Debug)]
pub(crate) struct Limit {
    rate: Rate,
    left: Mutex<Left>,
}

/// How often something may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// In a row.
    pub(crate) most: u32,
    /// After that.
    pub(crate) per_second: u32,
}

/// What is left of a rate.
#[derive(Clone, Copy, Debug)]
struct Left {
    count: f64,
    since: Instant,
}

/// Too often; the time after which it is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooOften(pub(crate) Duration);

impl Left {
    fn all(rate: Rate, now: Instant) -> Self {
        Self { count: f64::from(rate.most), since: now }
    }

    fn take(&mut self, rate: Rate, now: Instant) -> Result<(), TooOften> {
        let (most, per_second) = (f64::from(rate.most), f64::from(rate.per_second));
        let grown = now.saturating_duration_since(self.since).as_secs_f64() * per_second;
        *self = Self { count: (self.count + grown).min(most), since: now };
        if self.count < 1.0 {
            return Err(TooOften(Duration::from_secs_f64((1.0 - self.count) / per_second)));
        }
        self.count -= 1.0;
        Ok(())
    }
}

impl Limit {
    pub(crate) fn new(most: u32, per_second: u32) -> Self {
        let rate = Rate { most, per_second };
        Self { rate, left: Mutex::new(Left::all(rate, Instant::now())) }
    }

    /// Takes one, if one is left.
    pub(crate) fn pass(&self) -> Result<(), TooOften> {
        lock(&self.left).take(self.rate, Instant::now())
    }
}

/// The same for each caller alone.
#[derive(Debug)]
pub(crate) struct Limits {
    rate: Rate,
    callers: Mutex<HashMap<String, Left>>,
}

/// Callers that are remembered. Whoever has not asked for a while has all of its rate back and may be forgotten.
const CALLERS: usize = 4096;

impl Limits {
    pub(crate) fn new(most: u32, per_second: u32) -> Self {
        Self { rate: Rate { most, per_second }, callers: Mutex::default() }
    }

    /// Takes one of a caller's, if one is left.
    pub(crate) fn pass(&self, caller: &str) -> Result<(), TooOften> {
        self.pass_at(caller, Instant::now())
    }

    fn pass_at(&self, caller: &str, now: Instant) -> Result<(), TooOften> {
        let rate = self.rate;
        let mut callers = lock(&self.callers);
        if callers.len() >= CALLERS {
            let whole = Duration::from_secs_f64(f64::from(rate.most) / f64::from(rate.per_second));
            callers.retain(|_, left| now.saturating_duration_since(left.since) < whole);
        }
        match callers.get_mut(caller) {
            Some(left) => left.take(rate, now),
            None => callers.entry(caller.to_owned()).or_insert(Left::all(rate, now)).take(rate, now),
        }
    }
}

/// How many may be there at the same time: of one name, and of all together.
#[derive(Debug)]
pub(crate) struct Room {
    each: usize,
    all: usize,
    inside: Mutex<HashMap<String, usize>>,
}

/// Somebody inside of a room, until this is dropped.
#[derive(Debug)]
pub(crate) struct Inside {
    room: Arc<Room>,
    name: String,
}

impl Room {
    pub(crate) fn new(each: usize, all: usize) -> Arc<Self> {
        Arc::new(Self { each, all, inside: Mutex::default() })
    }

    /// Lets somebody in, if there is room.
    pub(crate) fn enter(self: &Arc<Self>, name: &str) -> Option<Inside> {
        let mut inside = lock(&self.inside);
        let (mine, all) = (inside.get(name).copied().unwrap_or(0), inside.values().sum::<usize>());
        if mine >= self.each || all >= self.all {
            return None;
        }
        inside.insert(name.to_owned(), mine + 1);
        Some(Inside { room: Arc::clone(self), name: name.to_owned() })
    }

    /// How many are inside.
    pub(crate) fn count(&self) -> usize {
        lock(&self.inside).values().sum()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut inside = lock(&self.room.inside);
        match inside.get_mut(&self.name) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(inside.remove(&self.name)),
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
    fn a_few_pass_in_a_row_and_then_so_many_a_second_and_nobody_pays_for_another() {
        let (limits, start) = (Limits::new(3, 2), Instant::now());
        let passed = |caller: &str, seconds: f64| {
            let at = start + Duration::from_secs_f64(seconds);
            (0..10).filter(|_| limits.pass_at(caller, at).is_ok()).count()
        };
        assert_eq!([passed("a", 0.01), passed("a", 1.02), passed("a", 60.0)], [3, 2, 3]);
        assert_eq!(passed("b", 60.0), 3);
        assert_eq!(limits.pass_at("a", start + Duration::from_mins(1)), Err(TooOften(Duration::from_millis(500))));
    }

    #[test]
    fn callers_that_fell_silent_are_forgotten() {
        let (limits, start) = (Limits::new(1, 1), Instant::now());
        (0..CALLERS).for_each(|caller| limits.pass_at(&caller.to_string(), start).unwrap());
        limits.pass_at("new", start + Duration::from_secs(2)).unwrap();
        assert_eq!(lock(&limits.callers).len(), 1);
    }

    #[test]
    fn a_room_is_full_for_one_before_it_is_for_all_and_who_leaves_makes_room() {
        let room = Room::new(2, 3);
        let mine = [room.enter("a").unwrap(), room.enter("a").unwrap()];
        assert!(room.enter("a").is_none());
        let theirs = room.enter("b").unwrap();
        assert!(room.enter("c").is_none());
        drop(theirs);
        assert!(room.enter("c").is_some());
        drop(mine);
        assert_eq!(room.count(), 0);
    }
}
