//! The feeds of all machines that are connected to this server, from one index.
//!
//! Owns: the task that follows the store, and the machines it sends to.
//! Must not touch: what a message says. Invariant: a machine that does not read its messages is dropped, and starts again
//! with a snapshot; it delays no other.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use longshore_model::{NodeName, StateIndex};
use longshore_network::NetworkFeed;
use longshore_store::replicated::{Filter, Replicated, WatchEvent};
use tokio::sync::mpsc;

use super::{MachineFeed, NetworkIndex, cursor};

/// Messages that a machine may be behind.
const FEED_BUFFER: usize = 256;
/// Machines that may ask for a feed at once.
const WAITING: usize = 64;

/// The feeds of this server.
#[derive(Debug, Default)]
pub(crate) struct NetworkFeeds(Mutex<Option<mpsc::Sender<Subscription>>>);

/// A machine that wants a feed.
#[derive(Debug)]
struct Subscription {
    nodes: BTreeSet<NodeName>,
    /// Its snapshot is of this state or a later one.
    not_before: StateIndex,
    messages: mpsc::Sender<NetworkFeed>,
}

/// A machine with a feed.
struct Machine {
    feed: MachineFeed,
    messages: mpsc::Sender<NetworkFeed>,
}

impl NetworkFeeds {
    /// Opens the feed of a machine with these nodes, from a state not before this one.
    pub(crate) async fn open(
        &self,
        store: &Replicated,
        cluster: &str,
        not_before: StateIndex,
        nodes: BTreeSet<NodeName>,
    ) -> mpsc::Receiver<NetworkFeed> {
        let (messages, received) = mpsc::channel(FEED_BUFFER);
        let mut subscription = Subscription { nodes, not_before, messages };
        let running = self.lock().clone();
        if let Some(hub) = running {
            match hub.send(subscription).await {
                Ok(()) => return received,
                Err(mpsc::error::SendError(unsent)) => subscription = unsent,
            }
        }
        let (hub, subscriptions) = mpsc::channel(WAITING);
        tokio::spawn(run(store.clone(), cluster.to_owned(), subscription, subscriptions));
        *self.lock() = Some(hub);
        received
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<mpsc::Sender<Subscription>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the store until it is closed or too far ahead; every machine connects again then.
async fn run(store: Replicated, cluster: String, first: Subscription, mut subscriptions: mpsc::Receiver<Subscription>) {
    let state = store.read_local().state;
    let mut hub = Hub {
        through: state.index(),
        index: NetworkIndex::open(&state, &cluster),
        machines: Vec::new(),
        waiting: vec![first],
        store,
    };
    let mut watcher = hub.store.watch(hub.through, Filter::All);
    loop {
        hub.admit();
        tokio::select! {
            event = watcher.next() => {
                let WatchEvent::Changes { through, changes } = event else { return };
                let state = hub.store.read_local().state;
                let changes = hub.index.advance(&state, &changes);
                hub.through = through;
                let (index, cursor) = (&hub.index, cursor(&state, through));
                hub.machines.retain_mut(|machine| match machine.feed.next_changes(index, cursor, &changes) {
                    Some(message) => machine.messages.try_send(message).is_ok(),
                    None => !machine.messages.is_closed(),
                });
            }
            subscription = subscriptions.recv() => match subscription {
                Some(subscription) => hub.waiting.push(subscription),
                None => return,
            },
        }
    }
}

struct Hub {
    store: Replicated,
    index: NetworkIndex,
    /// The index has followed the state up to here.
    through: StateIndex,
    machines: Vec<Machine>,
    waiting: Vec<Subscription>,
}

impl Hub {
    /// Sends snapshots to the machines whose time has come.
    fn admit(&mut self) {
        let ready = self.waiting.extract_if(.., |waiting| waiting.not_before <= self.through);
        let state = self.store.read_local().state;
        for Subscription { nodes, messages, .. } in ready {
            let (feed, snapshot) = MachineFeed::open(&self.index, cursor(&state, self.through), nodes);
            if messages.try_send(snapshot).is_ok() {
                self.machines.push(Machine { feed, messages });
            }
        }
    }
}
