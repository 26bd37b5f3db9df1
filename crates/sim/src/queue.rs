//! The event queue of a run.
//!
//! Owns: the order of items: by time, at one instant in the order of insertion, and those pushed with `push_last` after all
//! others of their instant.
//! Invariant: the same insertions give the same order on every machine.

use std::collections::BTreeMap;

use longshore_model::Time;

/// Items ordered by time.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    items: BTreeMap<(Time, Rank, u64), T>,
    inserted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    InOrder,
    Last,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self { items: BTreeMap::new(), inserted: 0 }
    }

    pub(crate) fn push(&mut self, at: Time, item: T) {
        self.insert(at, Rank::InOrder, item);
    }

    /// Inserts an item that comes after all others of its instant.
    pub(crate) fn push_last(&mut self, at: Time, item: T) {
        self.insert(at, Rank::Last, item);
    }

    fn insert(&mut self, at: Time, rank: Rank, item: T) {
        self.items.insert((at, rank, self.inserted), item);
        self.inserted += 1;
    }

    /// Removes the next item, unless it is due after `until`.
    pub(crate) fn pop_until(&mut self, until: Time) -> Option<(Time, T)> {
        let first = self.items.first_entry()?;
        if first.key().0 > until {
            return None;
        }
        let ((at, _, _), item) = first.remove_entry();
        Some((at, item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_instant_keeps_the_order_of_insertion() {
        let mut queue = Queue::new();
        for (at, name) in [(2, "c"), (1, "a"), (2, "d"), (1, "b"), (9, "late")] {
            queue.push(Time(at), name);
        }
        let order: Vec<&str> = std::iter::from_fn(|| queue.pop_until(Time(2))).map(|(_, name)| name).collect();
        assert_eq!(order, ["a", "b", "c", "d"]);
    }

    #[test]
    fn an_item_pushed_last_comes_after_later_insertions_of_its_instant() {
        let mut queue = Queue::new();
        queue.push_last(Time(1), "decide");
        queue.push(Time(1), "happen");
        queue.push(Time(2), "later");
        let order: Vec<&str> = std::iter::from_fn(|| queue.pop_until(Time(2))).map(|(_, name)| name).collect();
        assert_eq!(order, ["happen", "decide", "later"]);
    }
}
