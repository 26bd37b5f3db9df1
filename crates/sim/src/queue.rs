//! What happens next.
//!
//! Owns: the order of things to come: by time, and at one instant in the order they were put in.
//! Invariant: the same insertions give the same order, whatever the machine.

use std::collections::BTreeMap;

use longshore_model::Time;

/// Things to come.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    items: BTreeMap<(Time, u64), T>,
    inserted: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self { items: BTreeMap::new(), inserted: 0 }
    }

    pub(crate) fn push(&mut self, at: Time, item: T) {
        self.items.insert((at, self.inserted), item);
        self.inserted += 1;
    }

    /// The next thing, unless it lies after `until`.
    pub(crate) fn pop_until(&mut self, until: Time) -> Option<(Time, T)> {
        let first = self.items.first_entry()?;
        if first.key().0 > until {
            return None;
        }
        let ((at, _), item) = first.remove_entry();
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
}
