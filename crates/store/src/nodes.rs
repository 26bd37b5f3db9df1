//! Nodes join, are labelled, change their mind and fall ill.
//!
//! Owns: everything a command can change about a node, and what its loss means for the replicas on it.
//! Invariant: intent and labels are the operator's; a node that reports itself anew cannot undo them.

use std::{collections::BTreeMap, sync::Arc};

use longshore_model::{
    Event, GroupKey, Health, Intent, Node, NodeName, NodeNumber, ReplicaState, RuntimeCode, SlotKey, Time,
    node::UseDegraded, replica::Details,
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
                ..node
            },
            None => {
                conflicts::node_keeps_printed_ids_apart(self, &node.name)?;
                self.nodes_joined += 1;
                Node { number: NodeNumber(self.nodes_joined), ..node }
            }
        };
        let node = Arc::new(node);
        self.nodes.insert(node.name.clone(), Arc::clone(&node));
        Ok(vec![Event::NodeChanged(node)])
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

    pub(crate) fn set_intent(&mut self, name: &NodeName, intent: Intent) -> Result<Vec<Event>, CommandError> {
        match intent {
            Intent::Active | Intent::Paused | Intent::Draining => self.change_node(name, |node| node.intent = intent),
            Intent::Removed => self.forget_node(name),
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
        let changed = self.change_node(name, |node| node.health = health)?;
        if changed.is_empty() || health != Health::Down {
            return Ok(changed);
        }
        let mut events = self.lose_replicas(name, at);
        events.extend(changed);
        Ok(events)
    }

    fn change_node(&mut self, name: &NodeName, change: impl FnOnce(&mut Node)) -> Result<Vec<Event>, CommandError> {
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
    /// losing its machine does not undo it.
    fn lose_replicas(&mut self, node: &NodeName, at: Time) -> Vec<Event> {
        let mut events = Vec::new();
        for (key, group) in &mut self.groups {
            for slot in group.slots.values_mut() {
                for replica in slot.replicas.iter_mut().filter(|replica| replica.assignment.node == *node) {
                    if finished::ending(&group.spec, replica).is_some() || replica.state == ReplicaState::Lost {
                        continue;
                    }
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

    fn forget_node(&mut self, name: &NodeName) -> Result<Vec<Event>, CommandError> {
        if self.nodes.remove(name).is_none() {
            return Err(CommandError::UnknownNode(name.clone()));
        }
        let on_it: Vec<(GroupKey, SlotKey, longshore_model::Generation)> = self
            .replicas()
            .filter(|(_, _, replica)| replica.assignment.node == *name)
            .map(|(group, slot, replica)| (group.clone(), slot.key.clone(), replica.generation))
            .collect();
        let mut events = Vec::new();
        // The command carries no time and needs none: the addresses released belong to a range that is never given
        // out again, as node numbers are not reused.
        for (group, slot, generation) in on_it {
            // Work that was done there stays done.
            self.collect(&group, &slot, generation, &mut events);
            self.release(&group, &slot, generation, Time::default(), &mut events);
        }
        self.resting.retain(|_, node| node != name);
        for group in self.groups.values_mut() {
            group.failures.remove(name);
            group.collected.nodes.remove(name);
        }
        events.push(Event::NodeGone(name.clone()));
        Ok(events)
    }
}
