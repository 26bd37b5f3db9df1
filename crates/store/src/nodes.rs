//! Nodes: join, labels, intent and health.
//!
//! Owns: everything a command can change about a node, and what losing a node does to its replicas.
//! Invariant: intent and labels belong to the operator; a node that reports itself again cannot change them.

use std::{collections::BTreeMap, sync::Arc};

use longshore_model::{
    AfterDrain, Capacity, Event, Health, Intent, Node, NodeAttributes, NodeName, NodeNumber, ReplicaState, RuntimeCode,
    Time,
    node::{NodeFingerprint, UseDegraded},
    replica::Details,
};

use crate::{CommandError, State, conflicts, ended_replicas, state_events::observed};

impl State {
    pub(crate) fn join(&mut self, node: Node) -> Result<Vec<Event>, CommandError> {
        let mut numbered = Vec::new();
        let node = match self.nodes.get(&node.name) {
            // A second machine must not take the name of a live node. A node that is down may return on new hardware,
            // and keeps the operator's settings.
            Some(known) if known.health != Health::Down => return Err(CommandError::DuplicateNode(node.name)),
            Some(known) => Node {
                number: known.number,
                block: known.block,
                joined_at: known.joined_at,
                pool: known.pool.clone(),
                datacenter: known.datacenter.clone(),
                labels: known.labels.clone(),
                reserved: known.reserved.clone(),
                intent: known.intent,
                use_degraded: known.use_degraded,
                drain: known.drain.clone(),
                attributes: known.attributes.clone(),
                ..node
            },
            None => {
                conflicts::check_join_keeps_replica_ids_unique(self, &node.name)?;
                if let Some(at) = node.joined_at {
                    numbered = self.begin_numbering(at);
                }
                self.nodes_joined += 1;
                self.removed.remove(&node.name);
                let mut node = Node { number: NodeNumber(self.nodes_joined), ..node };
                node.block = self.take_block(&node);
                node
            }
        };
        let mut node = declared(node);
        let limit = self.address_limit(&node);
        follow_overlay(&mut node, limit);
        let node = Arc::new(node);
        self.nodes.insert(node.name.clone(), Arc::clone(&node));
        let mut events = numbered;
        events.push(Event::NodeChanged(node));
        events.extend(self.request_rebalance_on_join());
        Ok(events)
    }

    pub(crate) fn refresh(&mut self, name: &NodeName, survey: NodeFingerprint) -> Result<Vec<Event>, CommandError> {
        let mut events = match &survey.network {
            Some(_) if self.nodes.contains_key(name) => self.begin_numbering(self.latest),
            Some(_) | None => Vec::new(),
        };
        let limit = self.nodes.get(name).and_then(|node| self.address_limit(node));
        let changed = self.change_node(name, |node| {
            let NodeFingerprint { platform, capacity, drivers, engine_labels, plugins, flags, network } = survey;
            let addresses = capacity.addresses.or(node.capacity.addresses);
            node.capacity = node.attributes.capacity_of(Capacity { addresses, ..capacity });
            (node.platform, node.drivers) = (platform, drivers);
            (node.engine_labels, node.plugins, node.network) = (engine_labels, plugins, network);
            take_flags(node, flags);
            follow_overlay(node, limit);
        })?;
        events.extend(changed);
        Ok(events)
    }

    pub(crate) fn set_attributes(
        &mut self,
        name: &NodeName,
        attributes: &NodeAttributes,
        at: Time,
    ) -> Result<Vec<Event>, CommandError> {
        let limit = self.nodes.get(name).and_then(|node| self.address_limit(node));
        self.change_node(name, |node| {
            declare(node, attributes);
            let heard = node.attributes.health_when_heard();
            // A node that is not heard takes the new health when it is heard again.
            let is_heard = matches!(node.health, Health::Ready | Health::Degraded);
            if attributes.degraded.is_some() && is_heard && node.health != heard {
                (node.health, node.health_since) = (heard, at);
            }
            follow_overlay(node, limit);
        })
    }

    pub(crate) fn label(
        &mut self,
        name: &NodeName,
        labels: BTreeMap<String, String>,
    ) -> Result<Vec<Event>, CommandError> {
        self.change_node(name, |node| {
            for (label, value) in labels {
                if value.is_empty() {
                    node.labels.remove(&label);
                } else {
                    node.labels.insert(label, value);
                }
            }
        })
    }

    pub(crate) fn set_intent(&mut self, name: &NodeName, intent: Intent, at: Time) -> Result<Vec<Event>, CommandError> {
        let Some(known) = self.nodes.get(name) else {
            // Admitted but never joined: only its membership has to be revoked.
            let membership_revoked = intent == Intent::Removed && self.revoke_membership(name);
            let unknown = CommandError::UnknownNode(name.clone());
            return membership_revoked.then(|| vec![Event::AccessChanged]).ok_or(unknown);
        };
        match intent {
            Intent::Active | Intent::Paused => self.change_node(name, |node| {
                node.intent = intent;
                node.drain = None;
            }),
            Intent::Draining if known.intent == Intent::Draining => Ok(Vec::new()),
            Intent::Draining => self.drain(name, None, AfterDrain::Keep, at),
            Intent::Removed => {
                let mut events = Vec::new();
                self.remove_node(name, at, &mut events);
                Ok(events)
            }
        }
    }

    pub(crate) fn set_use_degraded(
        &mut self,
        name: &NodeName,
        use_degraded: UseDegraded,
    ) -> Result<Vec<Event>, CommandError> {
        self.change_node(name, |node| node.use_degraded = use_degraded)
    }

    pub(crate) fn set_health(&mut self, name: &NodeName, health: Health, at: Time) -> Result<Vec<Event>, CommandError> {
        let before = self.nodes.get(name).map(|node| node.health);
        let mut changed = self.change_node(name, |node| {
            if node.health != health {
                node.health = health;
                node.health_since = at;
            }
            match health {
                // The node is alive, so it is no longer confirmed lost.
                Health::Ready | Health::Degraded => node.confirmed_lost = None,
                Health::Suspect | Health::Down => {}
            }
        })?;
        if before == Some(Health::Down) && health == Health::Ready {
            changed.extend(self.request_rebalance_on_join());
        }
        if changed.is_empty() || health != Health::Down {
            return Ok(changed);
        }
        let mut events = self.lose_replicas(name, at);
        events.extend(changed);
        Ok(events)
    }

    pub(crate) fn change_node(
        &mut self,
        name: &NodeName,
        change: impl FnOnce(&mut Node),
    ) -> Result<Vec<Event>, CommandError> {
        let known = self.nodes.get_mut(name).ok_or_else(|| CommandError::UnknownNode(name.clone()))?;
        let mut node = Node::clone(known);
        change(&mut node);
        if node == **known {
            return Ok(Vec::new());
        }
        *known = Arc::new(node);
        Ok(vec![Event::NodeChanged(Arc::clone(known))])
    }

    /// Marks the replicas on a node that went down as lost. Terminal replicas stay terminal. A job's failed replica
    /// that will be restarted is not lost either: nothing of it runs there, and running replicas must be countable.
    fn lose_replicas(&mut self, node: &NodeName, at: Time) -> Vec<Event> {
        let mut events = Vec::new();
        for (key, group) in &mut self.groups {
            for slot in group.slots.values_mut() {
                for replica in slot.replicas.iter_mut().filter(|replica| replica.assignment.node == *node) {
                    let over = ended_replicas::terminal_outcome(&group.spec, replica).is_some()
                        || ended_replicas::is_failed_job(replica);
                    if over || replica.state == ReplicaState::Lost {
                        continue;
                    }
                    replica.before_loss = Some((replica.state, replica.since));
                    replica.state = ReplicaState::Lost;
                    replica.code = Some(RuntimeCode::NodeLost);
                    replica.details = Details::new();
                    replica.since = at;
                    events.push(observed(key, &slot.key, replica));
                }
            }
        }
        events
    }
}

/// A node that joins, with what its flags declare in force.
fn declared(mut node: Node) -> Node {
    let flags = std::mem::take(&mut node.flags);
    take_flags(&mut node, flags);
    node
}

/// Puts those flags into force that changed since the daemon last named them. A label that is no longer named goes.
fn take_flags(node: &mut Node, flags: NodeAttributes) {
    for name in node.flags.labels.keys().filter(|name| !flags.labels.contains_key(*name)) {
        node.labels.remove(name);
        node.attributes.labels.remove(name);
    }
    declare(node, &flags.changed_since(&node.flags));
    node.flags = flags;
}

fn declare(node: &mut Node, newer: &NodeAttributes) {
    node.attributes.extend(newer);
    node.labels.extend(newer.labels.clone());
    node.pool = newer.pool.clone().unwrap_or_else(|| node.pool.clone());
    node.datacenter = newer.datacenter.clone().unwrap_or_else(|| node.datacenter.clone());
    node.reserved.memory_bytes = newer.reserved_memory_bytes.unwrap_or(node.reserved.memory_bytes);
    node.reserved.cpu_millis = newer.reserved_cpu_millis.unwrap_or(node.reserved.cpu_millis);
    node.reserved.disk_bytes = newer.reserved_disk_bytes.or(node.reserved.disk_bytes);
    node.capacity = node.attributes.capacity_of(std::mem::take(&mut node.capacity));
}

/// What follows from a node's report about the overlay: whether it reaches its peers, and how many replicas can have an
/// address there.
fn follow_overlay(node: &mut Node, limit: Option<u64>) {
    let Some(network) = &node.network else { return };
    node.overlay = network.reach;
    if let Some(limit) = limit.filter(|_| network.gives_addresses) {
        node.capacity.addresses = Some(node.capacity.addresses.map_or(limit, |declared| declared.min(limit)));
    }
}
