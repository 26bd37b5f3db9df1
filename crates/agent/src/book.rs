//! What the node's work is, as far as it has heard.
//!
//! Owns: the rule about cursors, and the difference between two states of the feed.
//! Must not touch: what runs. The book says what should be, never what is.
//! Invariant: the cursor never goes back, and an old message changes nothing.

use std::collections::BTreeMap;

use longshore_model::{Cursor, Work, WorkFeed, WorkKey};
use serde::{Deserialize, Serialize};

/// The work of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Book {
    cursor: Option<Cursor>,
    // A list on disk, because a JSON object cannot have a structure as its key.
    #[serde(with = "as_list")]
    work: BTreeMap<WorkKey, Work>,
}

/// What a message did to the book.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It was old: nothing.
    OldNews,
    /// These are new or different, those are gone.
    News {
        /// To be done.
        changed: Vec<Work>,
        /// No longer ours.
        gone: Vec<WorkKey>,
    },
}

impl Book {
    pub(crate) fn cursor(&self) -> Option<Cursor> {
        self.cursor
    }

    pub(crate) fn work(&self) -> impl Iterator<Item = &Work> {
        self.work.values()
    }

    pub(crate) fn get(&self, key: &WorkKey) -> Option<&Work> {
        self.work.get(key)
    }

    pub(crate) fn take(&mut self, message: WorkFeed) -> Heard {
        match message {
            // A snapshot of the very state we know is no old news: it proves that nothing was missed.
            WorkFeed::Snapshot { cursor, .. } if self.cursor > Some(cursor) => Heard::OldNews,
            WorkFeed::Snapshot { cursor, work } => {
                self.cursor = Some(cursor);
                let work: BTreeMap<_, _> = work.into_iter().map(|work| (work.key.clone(), work)).collect();
                let old = std::mem::replace(&mut self.work, work);
                let gone = old.keys().filter(|key| !self.work.contains_key(key)).cloned().collect();
                let changed = self.work.values().filter(|work| old.get(&work.key) != Some(work)).cloned().collect();
                Heard::News { changed, gone }
            }
            WorkFeed::Changes { cursor, .. } if self.cursor >= Some(cursor) => Heard::OldNews,
            WorkFeed::Changes { cursor, changed, gone } => {
                self.cursor = Some(cursor);
                for key in &gone {
                    self.work.remove(key);
                }
                for work in &changed {
                    self.work.insert(work.key.clone(), work.clone());
                }
                Heard::News { changed, gone }
            }
        }
    }
}

mod as_list {
    use super::{BTreeMap, Deserialize, Serialize, Work, WorkKey};

    pub(super) fn serialize<S: serde::Serializer>(work: &BTreeMap<WorkKey, Work>, to: S) -> Result<S::Ok, S::Error> {
        work.values().collect::<Vec<_>>().serialize(to)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<WorkKey, Work>, D::Error> {
        let list = Vec::<Work>::deserialize(from)?;
        Ok(list.into_iter().map(|work| (work.key.clone(), work)).collect())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{net::Ipv6Addr, sync::Arc};

    use longshore_model::{
        Assignment, Attempt, Desired, Generation, GroupKey, NodeName, RevisionNumber, ServiceSpec, SlotIndex, SlotKey,
        StateIndex, Time,
    };

    use super::*;

    pub(crate) fn work(index: u32, generation: u32) -> Work {
        let group = GroupKey { namespace: "default".into(), deployment: "shop".into(), service: "web".into() };
        let slot = SlotKey::Index(SlotIndex(index));
        Work {
            key: WorkKey { group, slot, generation: Generation(generation) },
            attempt: Attempt(0),
            revision: RevisionNumber(1),
            spec: Arc::new(ServiceSpec::default()),
            assignment: Assignment {
                node: NodeName::from("n1"),
                address: Ipv6Addr::LOCALHOST,
                placed_at: Time(0),
                terms: Arc::default(),
                devices: BTreeMap::new(),
            },
            desired: Desired::Run,
            networks: BTreeMap::new(),
            volumes: BTreeMap::new(),
        }
    }

    fn at(index: u64) -> Cursor {
        Cursor { incarnation: 0, index: StateIndex(index) }
    }

    fn indices(book: &Book) -> Vec<String> {
        book.work().map(|work| work.key.to_string()).collect()
    }

    #[test]
    fn a_snapshot_says_what_is_gone() {
        let mut book = Book::default();
        book.take(WorkFeed::Snapshot { cursor: at(1), work: vec![work(0, 1), work(1, 1)] });
        let heard = book.take(WorkFeed::Snapshot { cursor: at(2), work: vec![work(1, 1), work(2, 1)] });
        assert_eq!(heard, Heard::News { changed: vec![work(2, 1)], gone: vec![work(0, 1).key] });
    }

    #[test]
    fn messages_of_a_server_that_lags_behind_change_nothing() {
        let mut book = Book::default();
        book.take(WorkFeed::Snapshot { cursor: at(10), work: vec![work(0, 2)] });
        let known = book.clone();
        assert_eq!(book.take(WorkFeed::Snapshot { cursor: at(9), work: vec![] }), Heard::OldNews);
        let old = WorkFeed::Changes { cursor: at(10), changed: vec![], gone: vec![work(0, 2).key] };
        assert_eq!(book.take(old), Heard::OldNews);
        assert_eq!(book, known);
    }

    #[test]
    fn changes_that_overtake_what_is_known_are_taken() {
        let mut book = Book::default();
        book.take(WorkFeed::Snapshot { cursor: at(10), work: vec![work(0, 1)] });
        book.take(WorkFeed::Changes { cursor: at(11), changed: vec![work(0, 2)], gone: vec![work(0, 1).key] });
        assert_eq!(indices(&book), ["shop-web-0 g2"]);
    }

    #[test]
    fn it_reads_back_what_it_wrote() {
        let mut book = Book::default();
        book.take(WorkFeed::Snapshot { cursor: at(3), work: vec![work(0, 1), work(7, 4)] });
        let text = serde_json::to_vec(&book).unwrap();
        assert_eq!(serde_json::from_slice::<Book>(&text).unwrap(), book);
    }
}
