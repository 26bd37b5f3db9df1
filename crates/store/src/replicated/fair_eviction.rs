//! Who loses a record when a bounded list is full.
//!
//! Owns: the number of records of each actor. Must not touch: the records.
//! Invariant: whoever has the most loses its oldest. A caller that fills the list therefore pushes out its own records,
//! and never those of somebody with fewer.

use std::collections::BTreeMap;

use longshore_model::Actor;

/// How many records each actor has.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActorCounts {
    counts: BTreeMap<Actor, usize>,
    total: usize,
}

impl ActorCounts {
    /// Counts the records again if they are not the ones counted, as after a snapshot was read.
    pub(crate) fn sync<'a>(&mut self, len: usize, actors: impl Iterator<Item = &'a Actor>) {
        if self.total == len {
            return;
        }
        *self = Self::default();
        for actor in actors {
            self.add(actor.clone());
        }
    }

    pub(crate) fn add(&mut self, actor: Actor) {
        *self.counts.entry(actor).or_default() += 1;
        self.total += 1;
    }

    pub(crate) fn remove(&mut self, actor: &Actor) {
        if let Some(count) = self.counts.get_mut(actor) {
            *count -= 1;
            self.total -= 1;
            if *count == 0 {
                self.counts.remove(actor);
            }
        }
    }

    /// The actor with the most records; of several the first by name.
    pub(crate) fn largest(&self) -> Option<&Actor> {
        let mut largest: Option<(&Actor, usize)> = None;
        for (actor, count) in &self.counts {
            if largest.is_none_or(|(_, most)| *count > most) {
                largest = Some((actor, *count));
            }
        }
        largest.map(|(actor, _)| actor)
    }
}
