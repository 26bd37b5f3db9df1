//! The network state of every machine, as a snapshot and then as changes.
//!
//! Owns: which services concern a machine: those that publish ports, and those that share a scope with a replica on one
//! of its nodes. Must not touch: the transport, and which of an endpoint's addresses a machine can reach.
//! Invariant: what a machine was sent is what it needs to know; a change that does not concern it sends nothing.

mod broadcast;
mod index;
mod scopes;
mod service_view;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{Cursor, GroupKey, NodeName, StateIndex};
use longshore_network::{NetworkFeed, NetworkService, ScopeName};
use longshore_store::State;

pub(crate) use self::{broadcast::NetworkFeeds, index::NetworkIndex};

use self::index::{IndexChanges, Indexed};

/// What was sent to a machine.
#[derive(Debug)]
pub(crate) struct MachineFeed {
    /// The nodes of the machine.
    nodes: BTreeSet<NodeName>,
    sent: BTreeMap<GroupKey, Arc<NetworkService>>,
    /// The scopes of each service with a replica on the machine.
    local: BTreeMap<GroupKey, BTreeSet<ScopeName>>,
    /// How many services of each scope have one.
    scopes: BTreeMap<ScopeName, usize>,
}

impl MachineFeed {
    /// Opens a feed for a machine with these nodes, with its snapshot.
    pub(crate) fn open(index: &NetworkIndex, cursor: Cursor, nodes: BTreeSet<NodeName>) -> (Self, NetworkFeed) {
        let mut feed = Self { nodes, sent: BTreeMap::new(), local: BTreeMap::new(), scopes: BTreeMap::new() };
        for key in index.services.keys() {
            feed.update_local(index, key);
        }
        let relevant = index.services.iter().filter(|(_, indexed)| feed.concerns(indexed));
        let sent = relevant.map(|(key, indexed)| (key.clone(), Arc::clone(&indexed.service))).collect();
        feed.sent = sent;
        let snapshot = NetworkFeed::Snapshot {
            cursor,
            services: feed.sent.values().map(|service| NetworkService::clone(service)).collect(),
            nodes: index.nodes.values().cloned().collect(),
            settings: Some(index.settings.clone()),
        };
        (feed, snapshot)
    }

    /// The message about these changes; `None` if they do not concern the machine.
    fn next_changes(&mut self, index: &NetworkIndex, cursor: Cursor, changes: &IndexChanges) -> Option<NetworkFeed> {
        let mut looked_at = changes.groups.clone();
        for key in &changes.groups {
            for scope in self.update_local(index, key) {
                looked_at.extend(index.members(&scope).cloned());
                // Those that left the scope in this change are among the changed groups themselves.
            }
        }
        let (mut new, mut gone) = (Vec::new(), Vec::new());
        for key in looked_at {
            match index.services.get(&key).filter(|indexed| self.concerns(indexed)) {
                Some(Indexed { service, .. }) if self.sent.get(&key).is_some_and(|sent| **sent == **service) => {}
                Some(Indexed { service, .. }) => {
                    self.sent.insert(key, Arc::clone(service));
                    new.push(NetworkService::clone(service));
                }
                None => gone.extend(self.sent.remove(&key).map(|_| key)),
            }
        }
        let (nodes, nodes_gone) = changed_nodes(index, changes);
        let settings = changes.settings.clone();
        let is_empty = new.is_empty() && gone.is_empty() && changes.nodes.is_empty() && settings.is_none();
        (!is_empty).then_some(NetworkFeed::Changes { cursor, changed: new, gone, nodes, nodes_gone, settings })
    }

    /// Counts the scopes of a service with a replica on the machine; returns those that came or went.
    fn update_local(&mut self, index: &NetworkIndex, key: &GroupKey) -> Vec<ScopeName> {
        let is_local = |indexed: &&Indexed| !indexed.nodes.is_disjoint(&self.nodes);
        let indexed = index.services.get(key).filter(is_local);
        let now: BTreeSet<ScopeName> =
            indexed.map(|it| it.service.scopes.iter().map(|scope| scope.name.clone()).collect()).unwrap_or_default();
        let before = self.local.remove(key).unwrap_or_default();
        let mut other = Vec::new();
        for scope in now.difference(&before) {
            let count = self.scopes.entry(scope.clone()).or_default();
            *count += 1;
            if *count == 1 {
                other.push(scope.clone());
            }
        }
        for scope in before.difference(&now) {
            if let Some(count) = self.scopes.get_mut(scope) {
                *count -= 1;
                if *count == 0 {
                    self.scopes.remove(scope);
                    other.push(scope.clone());
                }
            }
        }
        if !now.is_empty() {
            self.local.insert(key.clone(), now);
        }
        other
    }

    fn concerns(&self, Indexed { service, .. }: &Indexed) -> bool {
        !service.ports.is_empty() || service.scopes.iter().any(|scope| self.scopes.contains_key(&scope.name))
    }
}

fn changed_nodes(index: &NetworkIndex, changes: &IndexChanges) -> (Vec<longshore_network::NetworkNode>, Vec<NodeName>) {
    let (mut nodes, mut gone) = (Vec::new(), Vec::new());
    for name in &changes.nodes {
        match index.nodes.get(name) {
            Some(node) => nodes.push(node.clone()),
            None => gone.push(name.clone()),
        }
    }
    (nodes, gone)
}

/// The incarnation makes a recovered cluster newer, although its indices continue from an older state.
fn cursor(state: &State, index: StateIndex) -> Cursor {
    Cursor { incarnation: state.access().incarnation(), index }
}
