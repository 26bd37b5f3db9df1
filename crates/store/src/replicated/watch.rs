//! What changed, for everybody who wants to hear it.
//!
//! Owns: the last changes in memory, and where each watcher has got to.
//! Must not touch: anybody's pace. A change is written once into a ring that watchers read at their own speed; there is
//! no queue per watcher, so a slow one costs nothing and can hold up nobody.
//! Invariant: a watcher hears every change after its index, in order, or is told to start over. It never misses one
//! unknowingly.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longshore_model::{DeploymentName, Event, NamespaceName, StateIndex};
use serde::Serialize;
use tokio::sync::{Notify, watch};

use super::encoding;

/// What one command changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The state it led to.
    pub index: StateIndex,
    /// What happened, in order.
    pub events: Vec<Event>,
}

/// Which events a watcher hears.
#[derive(Clone)]
pub enum Filter {
    /// All.
    All,
    /// Those the function says yes to.
    Only(Arc<dyn Fn(&Event) -> bool + Send + Sync>),
}

impl Filter {
    /// What is about the deployments of a namespace.
    pub fn namespace(namespace: NamespaceName) -> Self {
        Self::Only(Arc::new(move |event| event.deployment().is_some_and(|(scope, _)| *scope == namespace)))
    }

    /// What is about one deployment.
    pub fn deployment(namespace: NamespaceName, deployment: DeploymentName) -> Self {
        Self::Only(Arc::new(move |event| event.deployment() == Some((&namespace, &deployment))))
    }

    fn pick(&self, changes: Arc<[Arc<Change>]>) -> Arc<[Arc<Change>]> {
        match self {
            Self::All => changes,
            Self::Only(wanted) => changes.iter().filter_map(|change| part_of(change, wanted)).collect(),
        }
    }
}

fn part_of(change: &Change, wanted: &Arc<dyn Fn(&Event) -> bool + Send + Sync>) -> Option<Arc<Change>> {
    let events: Vec<Event> = change.events.iter().filter(|event| wanted(event)).cloned().collect();
    (!events.is_empty()).then(|| Arc::new(Change { index: change.index, events }))
}

/// What a watcher hears next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// Changes, oldest first. `through` is how far the watcher has heard, also where its filter left nothing.
    Changes {
        /// The state up to which everything has been heard.
        through: StateIndex,
        /// What passed the filter.
        changes: Arc<[Arc<Change>]>,
    },
    /// It fell too far behind, or the state was replaced as a whole: read the state, then
    /// [`resume`](Watcher::resume) from its index.
    Resync,
    /// The member is being closed.
    Closed,
}

/// Follows the changes after an index.
pub struct Watcher {
    feed: Arc<Feed>,
    filter: Filter,
    heard: StateIndex,
    news: watch::Receiver<News>,
}

/// Changes handed to a watcher at once, so that one far behind does not hold the ring's lock for long.
const MOST_AT_ONCE: usize = 256;

impl Watcher {
    /// Waits for the next changes.
    ///
    /// Safe to drop while waiting: nothing is skipped.
    pub async fn next(&mut self) -> Watched {
        loop {
            if *self.news.borrow_and_update() == News::Closed {
                return Watched::Closed;
            }
            match self.feed.after(self.heard) {
                Missed::Nothing(changes) if changes.is_empty() => {
                    // The sender lives in the feed we hold, so this cannot fail.
                    let _ = self.news.changed().await;
                }
                Missed::Nothing(changes) => {
                    self.heard = changes.last().map_or(self.heard, |change| change.index);
                    return Watched::Changes { through: self.heard, changes: self.filter.pick(changes) };
                }
                Missed::Something => return Watched::Resync,
            }
        }
    }

    /// Goes on after a state that was read anew.
    pub fn resume(&mut self, after: StateIndex) {
        self.heard = after;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    Open(StateIndex),
    Closed,
}

enum Missed {
    Nothing(Arc<[Arc<Change>]>),
    Something,
}

/// The last changes.
pub(crate) struct Feed {
    ring: Mutex<Ring>,
    /// What is not in the ring yet. Whoever applies only ever waits for this lock, which nobody holds for longer than it
    /// takes to empty a list; a thousand watchers share the other one.
    arrived: Mutex<Vec<Arrival>>,
    fresh: Notify,
    news: watch::Sender<News>,
}

enum Arrival {
    Change(Change),
    /// The state was replaced by one of this index.
    Restart(StateIndex),
}

#[derive(Default)]
struct Ring {
    /// Each with its weight.
    changes: VecDeque<(Arc<Change>, usize)>,
    weight: usize,
    most_events: usize,
    /// Changes up to here are no longer in the ring.
    forgotten: StateIndex,
    newest: StateIndex,
    /// What was last handed out, and after which state. Watchers called together have mostly heard the same, and then share
    /// one list instead of each counting up every change in it.
    handed_out: Option<(StateIndex, Arc<[Arc<Change>]>)>,
}

/// Time between two calls to all watchers. A thousand of them woken at every commit would cost more than the commit;
/// the first change after a pause is told at once.
const BETWEEN_CALLS: Duration = Duration::from_millis(5);

impl Feed {
    pub(crate) fn new(most_events: usize, index: StateIndex) -> Arc<Self> {
        let ring = Ring { most_events, forgotten: index, newest: index, ..Ring::default() };
        Arc::new(Self {
            ring: Mutex::new(ring),
            arrived: Mutex::default(),
            fresh: Notify::new(),
            news: watch::Sender::new(News::Open(index)),
        })
    }

    /// Adds changes; costs the same however many listen.
    pub(crate) fn push(&self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        self.arrived().extend(changes.into_iter().map(Arrival::Change));
        self.fresh.notify_one();
    }

    /// The state was replaced: what led there is not known here.
    pub(crate) fn restart(&self, index: StateIndex) {
        self.arrived().push(Arrival::Restart(index));
        self.fresh.notify_one();
    }

    /// Calls the watchers whenever something is new. Runs until the member closes.
    pub(crate) async fn herald(self: Arc<Self>) {
        loop {
            self.fresh.notified().await;
            let newest = self.ring().newest;
            self.news.send_replace(News::Open(newest));
            tokio::time::sleep(BETWEEN_CALLS).await;
        }
    }

    /// Sends every watcher away. The herald must have stopped.
    pub(crate) fn close(&self) {
        self.news.send_replace(News::Closed);
    }

    pub(crate) fn watcher(self: &Arc<Self>, after: StateIndex, filter: Filter) -> Watcher {
        Watcher { feed: Arc::clone(self), filter, heard: after, news: self.news.subscribe() }
    }

    /// The changes that are still kept, oldest first.
    pub(crate) fn kept(&self) -> Vec<Arc<Change>> {
        self.ring().changes.iter().map(|(change, _)| Arc::clone(change)).collect()
    }

    fn after(&self, heard: StateIndex) -> Missed {
        let mut ring = self.ring();
        // An index from the future was heard from a history that is not ours: before a restore, or from a member that is
        // ahead of us. Waiting for the numbers to catch up would hide the difference.
        if heard < ring.forgotten || heard > ring.newest {
            return Missed::Something;
        }
        Missed::Nothing(ring.after(heard))
    }

    /// The ring with everything in it that has arrived.
    fn ring(&self) -> MutexGuard<'_, Ring> {
        // Nothing under these locks can leave the ring half changed.
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let arrived = std::mem::take(&mut *self.arrived());
        for arrival in arrived {
            match arrival {
                Arrival::Change(change) => ring.push(change),
                Arrival::Restart(index) => {
                    *ring = Ring { most_events: ring.most_events, forgotten: index, newest: index, ..Ring::default() };
                }
            }
        }
        ring
    }

    fn arrived(&self) -> MutexGuard<'_, Vec<Arrival>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    /// What changed after a state that the ring reaches back to.
    fn after(&mut self, heard: StateIndex) -> Arc<[Arc<Change>]> {
        if let Some((after, changes)) = &self.handed_out
            && *after == heard
        {
            return Arc::clone(changes);
        }
        let skip = usize::try_from(heard.0 - self.forgotten.0).unwrap_or(usize::MAX);
        let changes = self.changes.range(skip..).take(MOST_AT_ONCE).map(|(change, _)| Arc::clone(change));
        let changes: Arc<[_]> = changes.collect();
        self.handed_out = Some((heard, Arc::clone(&changes)));
        changes
    }

    fn push(&mut self, change: Change) {
        self.handed_out = None;
        let weight = change.events.iter().map(weight).sum();
        self.weight += weight;
        self.newest = change.index;
        self.changes.push_back((Arc::new(change), weight));
        // The newest stays even when it alone is more than the ring should hold: dropping it would tell everybody to
        // start over for a change they are about to read.
        while self.weight > self.most_events
            && self.changes.len() > 1
            && let Some((oldest, weight)) = self.changes.pop_front()
        {
            self.weight -= weight;
            self.forgotten = oldest.index;
        }
    }
}

/// Bytes that weigh as much as one event without anything large in it. Sixty thousand events are then some tens of megabytes,
/// whatever is in them: a manifest may be megabytes, and whoever sends one after the other must not fill our memory.
const BYTES_OF_AN_EVENT: usize = 512;

/// What an event weighs: one, and more where it brings along what somebody wrote.
fn weight(event: &Event) -> usize {
    let bytes = if let Event::GroupChanged { spec, .. } = event {
        length_of(spec)
    } else if let Event::NodeChanged(node) = event {
        length_of(node)
    } else {
        0
    };
    1 + bytes / BYTES_OF_AN_EVENT
}

/// How long something is when it is written down. What cannot be written down was not in the log either.
fn length_of(what: &impl Serialize) -> usize {
    encoding::size(what).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use longshore_model::{GroupKey, RevisionNumber, ServiceSpec, SlotIndex, rollout::Rolling};

    use super::*;

    fn change(index: u64, environment_bytes: usize) -> Change {
        let mut spec = ServiceSpec::default();
        spec.container.environment.insert("V".into(), Some("x".repeat(environment_bytes)));
        let group = GroupKey { namespace: "default".into(), deployment: "shop".into(), service: "web".into() };
        let event = Event::GroupChanged {
            group,
            revision: RevisionNumber(index),
            spec: Arc::new(spec),
            next_index: SlotIndex(0),
            restart_epoch: 0,
            rolling: Rolling::default(),
        };
        Change { index: StateIndex(index), events: vec![event] }
    }

    #[test]
    fn what_is_kept_for_watchers_is_bounded_by_what_it_holds_and_not_by_how_many_there_are() {
        let kept_of = |bytes: usize| {
            let feed = Feed::new(1_000, StateIndex(0));
            feed.push((1..=100).map(|index| change(index, bytes)).collect());
            let kept = feed.kept();
            assert_eq!(kept.last().map(|change| change.index), Some(StateIndex(100)), "the newest is always there");
            kept.len()
        };
        assert_eq!(kept_of(10), 100, "small ones all are");
        let large = kept_of(100 * 1024);
        assert!((2..6).contains(&large), "{large} changes of 100 KiB each");
        assert_eq!(kept_of(1024 * 1024), 1, "one alone may be more than there is room for");
    }
}
