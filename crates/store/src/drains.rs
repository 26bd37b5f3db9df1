//! Drains, removal of nodes, and nodes confirmed lost.
//!
//! Owns: the record of a drain, the removal of a node, and whether evacuation is paused.
//! Must not touch: when a drain ends; a plan says so, and counts only for the drain it was made for.

use std::sync::Arc;

use longshore_model::{
    AfterDrain, Drain, DrainOutcome, Evacuation, Event, GroupKey, Health, Intent, Node, NodeName, NodePlan, ReplicaKey,
    RuntimeCode, Slot, Time,
    drain::{DrainBlocker, UndrainedReplica},
    replica::{DesiredState, Detail, Details, Replica},
};

use crate::{CommandError, State};

impl State {
    /// Whether replicas are evacuated from nodes that are down.
    pub fn evacuation(&self) -> &Evacuation {
        &self.evacuation
    }

    /// Removed nodes by name, as they were when they were removed.
    pub fn removed_nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.removed.values()
    }

    /// Why a drain cannot move a generation, as a code and details. `None` if the generation already has a code or is
    /// stopping.
    pub fn drain_blocker(&self, group: &GroupKey, slot: &Slot, replica: &Replica) -> Option<(RuntimeCode, Details)> {
        let drain = self.node(&replica.assignment.node)?.drain.as_ref()?;
        if replica.code.is_some() || replica.desired == DesiredState::Stop {
            return None;
        }
        let left = drain.left.iter().find(|left| left.group == *group && left.slot == slot.key)?;
        let (code, name, detail) = match &left.why {
            DrainBlocker::Stateful { volumes } => {
                let names = volumes.iter().map(ToString::to_string).collect();
                (RuntimeCode::DrainBlockedStateful, "volumes", Detail::List(names))
            }
            why @ (DrainBlocker::NoNode(_)
            | DrainBlocker::Finishing
            | DrainBlocker::Moving
            | DrainBlocker::Stopping) => (RuntimeCode::DrainTimeout, "reason", Detail::Text(why.code().to_owned())),
        };
        Some((code, Details::from([(name.to_owned(), detail)])))
    }

    /// Starts a drain. A drain under way continues with its start time and the new deadline and follow-up; a finished
    /// one starts again.
    pub(crate) fn drain(
        &mut self,
        name: &NodeName,
        deadline: Option<Time>,
        then: AfterDrain,
        at: Time,
    ) -> Result<Vec<Event>, CommandError> {
        self.change_node(name, |node| {
            let under_way = node.drain.take().filter(|drain| drain.outcome == DrainOutcome::UnderWay);
            let (since, left) = under_way.map_or((at, Vec::new()), |drain| (drain.since, drain.left));
            node.intent = Intent::Draining;
            node.drain = Some(Drain { since, deadline, then, outcome: DrainOutcome::UnderWay, left });
        })
    }

    /// An operator confirms that a node is lost. Refused while the node is alive.
    pub(crate) fn confirm_lost(&mut self, name: &NodeName, at: Time) -> Result<Vec<Event>, CommandError> {
        let known = self.nodes.get(name).ok_or_else(|| CommandError::UnknownNode(name.clone()))?;
        match known.health {
            Health::Ready | Health::Degraded => return Err(CommandError::NodeStillAlive(name.clone())),
            Health::Suspect | Health::Down => {}
        }
        let mut events = self.set_health(name, Health::Down, at)?;
        let confirmed = self.change_node(name, |node| {
            node.confirmed_lost.get_or_insert(at);
        })?;
        // Watchers get one change for a node that went down and was confirmed lost by the same command.
        events.retain(|event| confirmed.is_empty() || !matches!(event, Event::NodeChanged(_)));
        events.extend(confirmed);
        Ok(events)
    }

    pub(crate) fn commit_nodes(&mut self, plans: Vec<NodePlan>, at: Time, events: &mut Vec<Event>) {
        for plan in plans {
            match plan {
                NodePlan::Drain { node, since, outcome, left } => {
                    self.update_drain(&node, since, outcome, left, at, events);
                }
                NodePlan::Evacuation(evacuation) if evacuation != self.evacuation => {
                    self.evacuation = evacuation.clone();
                    events.push(Event::EvacuationChanged(evacuation));
                }
                NodePlan::Evacuation(_) => {}
                NodePlan::Forget { node, removed_at } => {
                    if self.removed.get(&node).is_some_and(|known| known.removed_at == Some(removed_at)) {
                        self.removed.remove(&node);
                        events.push(Event::NodeForgotten(node));
                    }
                }
            }
        }
    }

    fn update_drain(
        &mut self,
        name: &NodeName,
        since: Time,
        outcome: DrainOutcome,
        left: Vec<UndrainedReplica>,
        at: Time,
        events: &mut Vec<Event>,
    ) {
        let mut then = AfterDrain::Keep;
        let changed = self.change_node(name, |node| {
            let Some(drain) = node.drain.as_mut().filter(|drain| drain.since == since) else { return };
            if drain.outcome == DrainOutcome::Done {
                return;
            }
            // A drain that timed out no longer removes its node when it finally completes.
            if outcome == DrainOutcome::TimedOut {
                drain.then = AfterDrain::Keep;
            }
            drain.outcome = outcome;
            drain.left = left;
            then = drain.then;
        });
        let changed = changed.unwrap_or_default();
        let done = !changed.is_empty() && outcome == DrainOutcome::Done;
        events.extend(changed);
        if done && then == AfterDrain::Remove {
            self.remove_node(name, at, events);
        }
    }

    /// Removes a node and releases everything on it, because no agent will report it again.
    pub(crate) fn remove_node(&mut self, name: &NodeName, at: Time, events: &mut Vec<Event>) {
        let Some(known) = self.nodes.remove(name) else { return };
        let left = Node { intent: Intent::Removed, removed_at: Some(at), ..Node::clone(&known) };
        self.removed.insert(name.clone(), Arc::new(left));
        let on_it: Vec<ReplicaKey> = self
            .replicas()
            .filter(|(_, _, replica)| replica.assignment.node == *name)
            .map(|(group, slot, replica)| group.replica(&slot.key, replica.generation))
            .collect();
        for key in on_it {
            // Finished jobs stay finished.
            self.collect(&key, events);
            self.release(&key, at, events);
        }
        self.release_block(&known, at);
        // Its addresses belong to a block that rests as a whole.
        self.resting.retain(|_, node| node != name);
        self.moves.remove(name);
        // Its certificate is no longer accepted.
        self.revoke_membership(name);
        for group in self.groups.values_mut() {
            group.failures.remove(name);
            group.collected.nodes.remove(name);
        }
        events.push(Event::NodeGone(name.clone()));
        events.push(Event::NodeRemoved { node: name.clone(), at });
    }
}
