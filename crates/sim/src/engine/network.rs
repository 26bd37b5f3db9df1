//! Messages between the control plane and the agents when they may be lost, duplicated, delayed and reordered.
//!
//! ```text
//! state changes -> feed: everything assigned to a node, as of a state index -> the agent follows the newest it has received
//! container changes -> status report -> observation, stamped by the leader
//! every few seconds: the feed again, and every report of the agent again
//! ```
//!
//! Owns: message faults, agent restarts, random leader changes and the leader's clock skew.
//! Must not touch: what a message means to a node or to the state.
//! Invariant: everything is sent again until it has arrived, so that nothing waits for ever for a message.

use std::{collections::BTreeSet, time::Duration};

use longshore_model::{Command, Health, NodeName, Observation, StateIndex, Time};

use super::{Engine, Tick};
use crate::{
    fuzz::rng::Rng,
    scenario::Faults,
    virtual_node::{DesiredContainer, HeartbeatDelivery, Link, Outbox, StatusReport, VirtualNode},
};

/// Time between two rounds in which everything is sent again.
const RESEND_INTERVAL: Duration = Duration::from_secs(5);
/// Longest time an agent needs to restart, in milliseconds: long enough that its node is sometimes marked down.
const LONGEST_RESTART_MS: u64 = 12_000;

/// The random faults of messages, agents and leaders. Each kind has a random stream of its own.
pub(super) struct Network {
    faults: Faults,
    loss: Rng,
    duplicate: Rng,
    delay: Rng,
    heartbeats: Rng,
    agents: Rng,
    leaders: Rng,
    clock: Rng,
    /// Nodes whose assigned work changed since their last feed.
    feeds_due: BTreeSet<NodeName>,
    restarting_agents: BTreeSet<NodeName>,
}

/// A message in flight.
#[derive(Clone, Debug)]
pub(super) struct Message {
    node: NodeName,
    /// The connection it was sent on. It is dropped when the node has reconnected since.
    connection: u32,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    /// To the agent: everything assigned to its node.
    Feed { cursor: StateIndex, desired: Vec<DesiredContainer>, stops: Vec<StatusReport> },
    /// From the agent: a report, and the time its replica was placed.
    Report(StatusReport, Option<Time>),
}

impl Network {
    pub(super) fn new(faults: &Faults) -> Self {
        let rng = |kind| Rng::new(faults.seed, kind);
        Self {
            loss: rng("loss"),
            duplicate: rng("duplicate"),
            delay: rng("delay"),
            heartbeats: rng("beats"),
            agents: rng("agents"),
            leaders: rng("leaders"),
            clock: rng("clock"),
            faults: faults.clone(),
            feeds_due: BTreeSet::new(),
            restarting_agents: BTreeSet::new(),
        }
    }

    pub(super) fn heartbeat(&mut self) -> HeartbeatDelivery {
        let lost = self.heartbeats.millionths(self.faults.loss_millionths);
        if lost { HeartbeatDelivery::Lost } else { HeartbeatDelivery::Received }
    }

    /// When each copy of a message arrives; empty if all are lost.
    fn arrivals(&mut self, now: Time) -> Vec<Time> {
        let copies = 1 + usize::from(self.duplicate.millionths(self.faults.duplicate_millionths));
        let longest = u64::try_from(self.faults.delay.as_millis()).unwrap_or(0);
        let mut arrivals = Vec::new();
        for _ in 0..copies {
            let at = Time(now.0 + self.delay.between(0, longest));
            if !self.loss.millionths(self.faults.loss_millionths) {
                arrivals.push(at);
            }
        }
        arrivals
    }
}

impl Engine<'_> {
    /// The time on the leader's clock.
    pub(super) fn clock(&self) -> Time {
        self.now.after(self.skew)
    }

    /// The virtual time at which the leader's clock shows `leader_time`.
    pub(super) fn virtual_time(&self, leader_time: Time) -> Time {
        Time(leader_time.0.saturating_sub(u64::try_from(self.skew.as_millis()).unwrap_or(0)))
    }

    pub(super) fn schedule_first_resend(&mut self) {
        if self.network.is_some() {
            self.queue.push(self.now.after(RESEND_INTERVAL), Tick::Resend);
        }
    }

    /// Notes that a node needs a new feed. Returns `false` without a network: the caller then acts on the node itself.
    pub(super) fn mark_feed_due(&mut self, node: &NodeName) -> bool {
        match &mut self.network {
            Some(network) => {
                network.feeds_due.insert(node.clone());
                true
            }
            None => false,
        }
    }

    /// Sends a feed to every node whose work has changed.
    pub(super) fn send_due_feeds(&mut self) {
        let Some(network) = &mut self.network else { return };
        for node in std::mem::take(&mut network.feeds_due) {
            let cursor = self.state.index();
            let (desired, stops) = (self.desired_on(&node), self.stop_reports(&node));
            self.send(&node, Body::Feed { cursor, desired, stops });
        }
    }

    /// Sends a report of an agent. It carries `placed_at`, as a removed slot may be created again with the same key, and a
    /// late report must not be taken for one of the new replica. The answer to a late feed is about the replica that feed
    /// named, whatever was placed since.
    pub(super) fn send_report(&mut self, node: &NodeName, report: StatusReport) {
        let placed_now = || self.replica(&report.key).map(|replica| replica.assignment.placed_at);
        let placed_at = report.placed_at.or_else(placed_now);
        self.send(node, Body::Report(report, placed_at));
    }

    fn send(&mut self, node: &NodeName, body: Body) {
        let Some(connection) = self.virtual_nodes.get(node).map(VirtualNode::connection) else { return };
        let Some(network) = &mut self.network else { return };
        let message = Message { node: node.clone(), connection, body };
        for at in network.arrivals(self.now) {
            self.queue.push(at, Tick::Message(Box::new(message.clone())));
        }
    }

    pub(super) fn receive(&mut self, message: Message) {
        let Message { node, connection, body } = message;
        let open = |virtual_node: &&mut VirtualNode| virtual_node.connection() == connection;
        let Some(virtual_node) = self.virtual_nodes.get_mut(&node).filter(open) else { return };
        match body {
            Body::Feed { cursor, desired, stops } => {
                if virtual_node.link() != Link::Up || !virtual_node.is_on() || !virtual_node.advance_cursor(cursor) {
                    return;
                }
                let mut out = Outbox::default();
                virtual_node.stop_undesired(&desired, self.now, &mut out);
                out.reports.extend(stops.into_iter().filter(|report| !virtual_node.has_container(&report.key)));
                virtual_node.adopt(&desired, self.now, &mut out);
                self.flush(&node, out);
            }
            // A node that is down has no connection. It sends its reports again when it reconnects.
            Body::Report(..) if self.state.node(&node).is_none_or(|node| node.health == Health::Down) => {}
            Body::Report(report, placed_at) => self.observe(report, placed_at),
        }
        self.apply_commands();
    }

    pub(super) fn observe(&mut self, report: StatusReport, placed_at: Option<Time>) {
        self.commands.push_back(Command::Observe(Observation {
            key: report.key,
            attempt: report.attempt,
            placed_at,
            state: report.state,
            code: report.code,
            details: report.details,
            at: self.clock(),
        }));
    }

    /// Sends every feed again, which each agent answers with all of its reports. Some agents restart instead.
    pub(super) fn resend_everything(&mut self) {
        let nodes: Vec<NodeName> = self.virtual_nodes.keys().cloned().collect();
        let Some(network) = &mut self.network else { return };
        self.queue.push(self.now.after(RESEND_INTERVAL), Tick::Resend);
        let mut restarting = Vec::new();
        for node in nodes {
            if network.agents.millionths(network.faults.agent_restart_millionths) {
                restarting.push((node.clone(), network.agents.between(1, LONGEST_RESTART_MS)));
            }
            network.feeds_due.insert(node);
        }
        for (node, takes_ms) in restarting {
            self.restart_agent(&node, takes_ms);
        }
        self.send_due_feeds();
    }

    fn restart_agent(&mut self, node: &NodeName, takes_ms: u64) {
        let runs = |virtual_node: &VirtualNode| virtual_node.link() == Link::Up && virtual_node.is_on();
        if !self.virtual_nodes.get(node).is_some_and(runs) {
            return;
        }
        self.isolate(node);
        if let Some(network) = &mut self.network {
            network.restarting_agents.insert(node.clone());
        }
        self.queue.push(Time(self.now.0 + takes_ms), Tick::AgentRestarted(node.clone()));
    }

    /// Keeps the end of an agent restart from healing a link that the scenario has cut meanwhile.
    pub(super) fn cancel_agent_restart(&mut self, node: &NodeName) {
        if let Some(network) = &mut self.network {
            network.restarting_agents.remove(node);
        }
    }

    pub(super) fn agent_restarted(&mut self, node: &NodeName) {
        if self.network.as_mut().is_some_and(|network| network.restarting_agents.remove(node)) {
            self.heal(node);
        }
    }

    /// After a change of the state: at random, another leader with another clock takes over.
    pub(super) fn maybe_change_leader(&mut self) {
        let Some(network) = &mut self.network else { return };
        if network.leaders.millionths(network.faults.leader_change_millionths) {
            let most = u64::try_from(network.faults.clock_step.as_millis()).unwrap_or(0);
            self.skew = Duration::from_millis(network.clock.between(0, most));
            self.change_leader();
        }
    }

    /// Ends all message faults. Every node reconnects, so that everything lost is sent again.
    pub(super) fn heal_network(&mut self) {
        if self.network.take().is_none() {
            return;
        }
        let nodes: Vec<NodeName> = self.virtual_nodes.keys().cloned().collect();
        for node in nodes {
            self.heal(&node);
            if self.virtual_nodes.get(&node).is_some_and(|virtual_node| virtual_node.link() == Link::Up) {
                self.reconnect(&node);
            }
        }
    }
}
