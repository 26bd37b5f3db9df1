//! Watches: the feed of changes to the state.
//!
//! Owns: the recent changes in memory, and the position of each watcher.
//! Must not touch: the pace of `apply`. A change is written once into a ring that watchers read at their own pace.
//! There is no queue per watcher, so a slow watcher costs nothing and blocks nobody.
//! Invariant: a watcher gets every change after its index, in order, or `Resync`. It never misses a change silently.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longshore_model::{DeploymentName, Event, NamespaceName, StateIndex};
use serde::Serialize;
use tokio::sync::{Notify, watch};

use super::encoding;

/// The events of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The state index after it.
    pub index: StateIndex,
    /// The events in order.
    pub events: Vec<Event>,
}

/// Which events a watcher gets.
#[derive(Clone)]
pub enum Filter {
    /// All events.
    All,
    /// Events for which the function returns true.
    Only(Arc<dyn Fn(&Event) -> bool + Send + Sync>),
}

impl Filter {
    /// Events about the deployments of a namespace.
    pub fn namespace(namespace: NamespaceName) -> Self {
        Self::Only(Arc::new(move |event| event.deployment().is_some_and(|(scope, _)| *scope == namespace)))
    }

    /// Events about one deployment.
    pub fn deployment(namespace: NamespaceName, deployment: DeploymentName) -> Self {
        Self::Only(Arc::new(move |event| event.deployment() == Some((&namespace, &deployment))))
    }

    fn pick(&self, changes: Arc<[Arc<Change>]>) -> Arc<[Arc<Change>]> {
        match self {
            Self::All => changes,
            Self::Only(predicate) => changes.iter().filter_map(|change| part_of(change, predicate)).collect(),
        }
    }
}

fn part_of(change: &Change, predicate: &Arc<dyn Fn(&Event) -> bool + Send + Sync>) -> Option<Arc<Change>> {
    let events: Vec<Event> = change.events.iter().filter(|event| predicate(event)).cloned().collect();
    (!events.is_empty()).then(|| Arc::new(Change { index: change.index, events }))
}

/// What a watcher gets next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// Changes, oldest first. `through` advances even if the filter removed every change.
    Changes {
        /// The state index up to which the watcher has seen all changes.
        through: StateIndex,
        /// The changes that passed the filter.
        changes: Arc<[Arc<Change>]>,
    },
    /// The watcher fell too far behind, or the state was replaced by a snapshot: read the state, then
    /// [`resume`](Watcher::resume) from its index.
    Resync,
    /// The member is shutting down.
    Closed,
}

/// Follows the changes after a state index.
pub struct Watcher {
    feed: Arc<ChangeFeed>,
    filter: Filter,
    position: StateIndex,
    state: watch::Receiver<FeedState>,
}

/// The most changes returned at once, so that a watcher far behind does not hold the ring's lock for long.
const MAX_CHANGES_PER_READ: usize = 256;

impl Watcher {
    /// Waits for the next changes.
    ///
    /// Cancel-safe: dropping the future skips nothing.
    pub async fn next(&mut self) -> WatchEvent {
        loop {
            if *self.state.borrow_and_update() == FeedState::Closed {
                return WatchEvent::Closed;
            }
            match self.feed.after(self.position) {
                Backlog::Complete(changes) if changes.is_empty() => {
                    // The sender lives in the feed that `self` holds, so this cannot fail.
                    let _ = self.state.changed().await;
                }
                Backlog::Complete(changes) => {
                    self.position = changes.last().map_or(self.position, |change| change.index);
                    return WatchEvent::Changes { through: self.position, changes: self.filter.pick(changes) };
                }
                Backlog::Truncated => return WatchEvent::Resync,
            }
        }
    }

    /// Continues after a state that was read.
    pub fn resume(&mut self, after: StateIndex) {
        self.position = after;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FeedState {
    Open(StateIndex),
    Closed,
}

enum Backlog {
    Complete(Arc<[Arc<Change>]>),
    Truncated,
}

/// The feed of recent changes.
pub(crate) struct ChangeFeed {
    ring: Mutex<Ring>,
    /// Updates that are not in the ring yet. `apply` waits only for this lock, which is held just long enough to empty
    /// the list; the watchers share the other lock.
    pending: Mutex<Vec<PendingUpdate>>,
    updates_pending: Notify,
    state: watch::Sender<FeedState>,
}

enum PendingUpdate {
    Change(Change),
    /// The state was replaced by a snapshot with this index.
    Restart(StateIndex),
}

#[derive(Default)]
struct Ring {
    /// Each change with its weight.
    changes: VecDeque<(Arc<Change>, usize)>,
    weight: usize,
    most_events: usize,
    /// Changes up to this index were dropped from the ring.
    dropped_through: StateIndex,
    newest: StateIndex,
    /// The list returned last, and the position it starts after. Watchers notified together mostly have the same
    /// position and share one list.
    last_returned: Option<(StateIndex, Arc<[Arc<Change>]>)>,
}

/// Minimum time between two notifications. Waking a thousand watchers at every commit would cost more than the commit.
/// The first change after a pause is notified at once.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(5);

impl ChangeFeed {
    pub(crate) fn new(most_events: usize, index: StateIndex) -> Arc<Self> {
        let ring = Ring { most_events, dropped_through: index, newest: index, ..Ring::default() };
        Arc::new(Self {
            ring: Mutex::new(ring),
            pending: Mutex::default(),
            updates_pending: Notify::new(),
            state: watch::Sender::new(FeedState::Open(index)),
        })
    }

    /// Adds changes. The cost does not depend on the number of watchers.
    pub(crate) fn push(&self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        self.pending().extend(changes.into_iter().map(PendingUpdate::Change));
        self.updates_pending.notify_one();
    }

    /// The state was replaced by a snapshot, so the changes up to its index are unknown.
    pub(crate) fn restart(&self, index: StateIndex) {
        self.pending().push(PendingUpdate::Restart(index));
        self.updates_pending.notify_one();
    }

    /// Wakes the watchers when there are updates. Runs until the member is closed.
    pub(crate) async fn notify_watchers(self: Arc<Self>) {
        loop {
            self.updates_pending.notified().await;
            let newest = self.ring().newest;
            self.state.send_replace(FeedState::Open(newest));
            tokio::time::sleep(NOTIFY_INTERVAL).await;
        }
    }

    /// Closes every watcher. The task of `notify_watchers` must have ended.
    pub(crate) fn close(&self) {
        self.state.send_replace(FeedState::Closed);
    }

    pub(crate) fn watcher(self: &Arc<Self>, after: StateIndex, filter: Filter) -> Watcher {
        Watcher { feed: Arc::clone(self), filter, position: after, state: self.state.subscribe() }
    }

    /// The kept changes, oldest first.
    pub(crate) fn kept(&self) -> Vec<Arc<Change>> {
        self.ring().changes.iter().map(|(change, _)| Arc::clone(change)).collect()
    }

    fn after(&self, position: StateIndex) -> Backlog {
        let mut ring = self.ring();
        // A position ahead of this feed comes from another history: from before a restore, or from a member that is
        // ahead. Waiting for the index to catch up would hide the difference.
        if position < ring.dropped_through || position > ring.newest {
            return Backlog::Truncated;
        }
        Backlog::Complete(ring.after(position))
    }

    /// Locks the ring, after moving all pending updates into it.
    fn ring(&self) -> MutexGuard<'_, Ring> {
        // No code under these locks can leave the ring half changed.
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = std::mem::take(&mut *self.pending());
        for arrival in pending {
            match arrival {
                PendingUpdate::Change(change) => ring.push(change),
                PendingUpdate::Restart(index) => {
                    *ring = Ring {
                        most_events: ring.most_events,
                        dropped_through: index,
                        newest: index,
                        ..Ring::default()
                    };
                }
            }
        }
        ring
    }

    fn pending(&self) -> MutexGuard<'_, Vec<PendingUpdate>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    /// The changes after a position that the ring still covers.
    fn after(&mut self, position: StateIndex) -> Arc<[Arc<Change>]> {
        if let Some((after, changes)) = &self.last_returned
            && *after == position
        {
            return Arc::clone(changes);
        }
        let skip = usize::try_from(position.0 - self.dropped_through.0).unwrap_or(usize::MAX);
        let changes = self.changes.range(skip..).take(MAX_CHANGES_PER_READ).map(|(change, _)| Arc::clone(change));
        let changes: Arc<[_]> = changes.collect();
        self.last_returned = Some((position, Arc::clone(&changes)));
        changes
    }

    fn push(&mut self, change: Change) {
        self.last_returned = None;
        let weight = change.events.iter().map(weight).sum();
        self.weight += weight;
        self.newest = change.index;
        self.changes.push_back((Arc::new(change), weight));
        // The newest change is kept even if it alone exceeds the limit; dropping it would force every watcher to
        // resync.
        while self.weight > self.most_events
            && self.changes.len() > 1
            && let Some((oldest, weight)) = self.changes.pop_front()
        {
            self.weight -= weight;
            self.dropped_through = oldest.index;
        }
    }
}

/// Bytes that weigh as much as one small event. Sixty thousand events then take tens of megabytes, whatever they
/// contain: a manifest may be megabytes, and a series of them must not exhaust the memory.
const BYTES_PER_EVENT: usize = 512;

/// The weight of an event: one, plus the size of the spec or node it carries.
fn weight(event: &Event) -> usize {
    let bytes = if let Event::GroupChanged { spec, .. } = event {
        encoded_bytes(spec)
    } else if let Event::NodeChanged(node) = event {
        encoded_bytes(node)
    } else {
        0
    };
    1 + bytes / BYTES_PER_EVENT
}

/// The encoded size in bytes; 0 if it cannot be encoded, in which case it was not in the log either.
fn encoded_bytes(what: &impl Serialize) -> usize {
    encoding::size(what).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use longshore_model::{GroupKey, RevisionNumber, ServiceSpec, SlotIndex, rollout::RolloutPosition};

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
            rollout_position: RolloutPosition::default(),
        };
        Change { index: StateIndex(index), events: vec![event] }
    }

    #[test]
    fn changes_kept_for_watchers_are_bounded_by_their_size_not_their_number() {
        let kept_of = |bytes: usize| {
            let feed = ChangeFeed::new(1_000, StateIndex(0));
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
