//! Numbers that are given out, kept, and rest for a while after their release: blocks of addresses, and VIPs.
//!
//! Owns: which numbers are in use or resting. Must not touch: what a number stands for.
//! Invariant: the lowest number that is neither in use nor resting is given out, so the same commands give the same
//! numbers on every member.

use std::{collections::BTreeMap, time::Duration};

use longshore_model::Time;
use serde::{Deserialize, Serialize};

/// How long a number is not given out again: longer than any cache of the addresses computed from it.
const REST: Duration = Duration::from_hours(1);

/// Numbers, counted from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NumberPool {
    /// Numbers in use, and since when others rest.
    taken: BTreeMap<u32, Option<Time>>,
    /// Every number up to this one is in use; it saves a walk over all of them.
    full_up_to: u32,
}

impl NumberPool {
    /// Takes this number; returns whether it was free. A resting one is not.
    pub(crate) fn take(&mut self, number: u32) -> bool {
        let is_free = !self.taken.contains_key(&number);
        if is_free {
            self.taken.insert(number, None);
        }
        is_free
    }

    /// Takes the lowest free number of those that are allowed.
    pub(crate) fn take_lowest(&mut self, now: Time, is_allowed: fn(u32) -> bool) -> u32 {
        let mut number = self.full_up_to;
        let mut all_in_use = true;
        loop {
            number += 1;
            let is_free = match self.taken.get(&number) {
                Some(None) => false,
                Some(Some(since)) => now.since(*since) >= REST,
                None => is_allowed(number),
            };
            let is_permanently_taken = !is_allowed(number) || self.taken.get(&number) == Some(&None);
            all_in_use &= is_free || is_permanently_taken;
            if all_in_use {
                self.full_up_to = number;
            }
            if is_free {
                self.taken.insert(number, None);
                return number;
            }
        }
    }

    /// Releases a number, which rests from now on.
    pub(crate) fn release(&mut self, number: u32, at: Time) {
        if let Some(rests) = self.taken.get_mut(&number) {
            *rests = Some(at);
            self.full_up_to = self.full_up_to.min(number - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(hours: u64) -> Time {
        Time::default().after(Duration::from_hours(hours))
    }

    #[test]
    fn the_lowest_free_number_is_given_out_and_rests_for_an_hour() {
        let mut pool = NumberPool::default();
        let given: Vec<u32> = (0..4).map(|_| pool.take_lowest(hours(1), |_| true)).collect();
        assert_eq!(given, [1, 2, 3, 4]);
        pool.release(2, hours(1));
        assert_eq!(pool.take_lowest(hours(1), |_| true), 5, "2 rests");
        assert_eq!(pool.take_lowest(hours(2), |_| true), 2);
        assert_eq!(pool.take_lowest(hours(2), |_| true), 6);
    }

    #[test]
    fn numbers_that_are_not_allowed_are_left_out() {
        let mut pool = NumberPool::default();
        assert!(pool.take(2) && !pool.take(2));
        let odd = |number: u32| number % 2 == 1;
        assert_eq!([pool.take_lowest(hours(1), odd), pool.take_lowest(hours(1), odd)], [1, 3]);
        pool.release(1, hours(1));
        assert!(!pool.take(1), "it rests");
    }
}
