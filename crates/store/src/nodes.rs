//! Nodes join, are labelled, change their mind and fall ill.
//!
//! Owns: everything a command can change about a node, and what its loss means for the replicas on it.
//! Invariant: intent and labels are the operator's; a node that reports itself anew cannot undo them.

use std::{collections::BTreeMap, sync::Arc};

use longshore_model::{
    AfterDrain, Capacity, Event, Health, Intent, Node, NodeName, NodeNumber, ReplicaState, RuntimeCode, Time,
    node::{Survey, UseDegraded},
    replica::Details,
};

use crate::{CommandError, State, conflicts, finished, replay::observed};

impl State {
    pub(crate) fn join(&mut self, node: Node) -> Result<Vec<Event>, CommandError> {
        let node = match self.nodes.get(&node.name) {
            // A second machine must not take over the name of one that is alive; one that is down may come back as
            // new hardware, and then keeps what operators said of it.
            Some(known) if known.health != Health::Down => return Err(CommandError::DuplicateNode(node.name)),
            Some(known) => Node {
                number: known.number,
                labels: known.labels.clone(),
                intent: known.intent,
                use_degraded: known.use_degraded,
                drain: known.drain.clone(),
                ..node
            },
            None => {
                conflicts::node_keeps_printed_ids_apart(self, &node.name)?;
                self.nodes_joined += 1;
                self.removed.remove(&node.name);
                Node { number: NodeNumber(self.nodes_joined), ..node }
            }
        };
        let node = Arc::new(node);
        self.nodes.insert(node.name.clone(), Arc::clone(&node));
        let mut events = vec![Event::NodeChanged(node)];
        events.extend(self.node_came());
        Ok(events)
    }

    pub(crate) fn refresh(&mut self, name: &NodeName, survey: Survey) -> Result<Vec<Event>, CommandError> {
        self.change_node(name, |node| {
            let Survey { platform, capacity, drivers, engine_labels, plugins } = survey;
            let Capacity { devices, device_groups, addresses, .. } = node.capacity.clone();
            node.capacity = Capacity { devices, device_groups, addresses, ..capacity };
            (node.platform, node.drivers) = (platform, drivers);
            (node.engine_labels, node.plugins) = (engine_labels, plugins);
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
            // Let in, and never heard of: there is nothing to it but its seat.
            let seat_taken_back = intent == Intent::Removed && self.unseat(name);
            let unknown = CommandError::UnknownNode(name.clone());
            return seat_taken_back.then(|| vec![Event::AccessChanged]).ok_or(unknown);
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
                self.forget_node(name, at, &mut events);
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
                // Heard of again, it was not gone for good.
                Health::Ready | Health::Degraded => node.confirmed_lost = None,
                Health::Suspect | Health::Down => {}
            }
        })?;
        if before == Some(Health::Down) && health == Health::Ready {
            changed.extend(self.node_came());
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

    /// What ran there is lost until the node says otherwise. Work that had ended, well or for good, stays ended:
    /// losing its machine does not undo it. Nor is a job's that failed and is to be started again lost: nothing of it is at
    /// work there, and whoever counts what is must be able to tell.
    fn lose_replicas(&mut self, node: &NodeName, at: Time) -> Vec<Event> {
        let mut events = Vec::new();
        for (key, group) in &mut self.groups {
            for slot in group.slots.values_mut() {
                for replica in slot.replicas.iter_mut().filter(|replica| replica.assignment.node == *node) {
                    let over = finished::ending(&group.spec, replica).is_some() || finished::is_at_rest(replica);
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
