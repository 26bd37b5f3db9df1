//! Messages between the control plane and the agents when they may be lost, doubled, delayed and overtaken.
//!
//! ```text
//! state changes -> feed: all that is the node's, as of an index -> agent follows the newest it has seen
//! container changes -> sighting -> observation, stamped by the leader
//! every few seconds: the feed once more, and everything the agent has to say once more
//! ```
//!
//! Owns: what befalls a message, agents that restart, leaders that change at any moment and read another clock.
//! Must not touch: what a message means to a machine or to the state.
//! Invariant: whatever is lost is said again, so that nothing waits for ever for a message.

use std::{collections::BTreeSet, time::Duration};

use longshore_model::{Command, Health, NodeName, Observation, StateIndex, Time};

use super::{Engine, Tick};
use crate::{
    fuzz::dice::Dice,
    machine::{Beat, ContainerId, Due, Link, Machine, Outbox, Power, Report},
    scenario::Faults,
};

/// Time between two rounds in which everything is said again.
const SAY_AGAIN: Duration = Duration::from_secs(5);
/// Longest time an agent needs to restart, in milliseconds: near enough to being called down to be one sometimes.
const LONGEST_RESTART_MS: u64 = 12_000;

/// Everything random about messages, agents and leaders, each from a stream of its own.
pub(super) struct Network {
    faults: Faults,
    loss: Dice,
    duplicate: Dice,
    delay: Dice,
    beats: Dice,
    agents: Dice,
    leaders: Dice,
    clock: Dice,
    /// Nodes whose work changed since they were last told.
    owed: BTreeSet<NodeName>,
    /// Nodes whose agent is restarting.
    away: BTreeSet<NodeName>,
}

/// A message on its way.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    node: NodeName,
    /// The connection it was sent on; what is still on its way when another is opened never arrives.
    connection: u32,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    /// To the agent: everything that is its node's.
    Feed { cursor: StateIndex, due: Vec<Due>, ended: Vec<Report> },
    /// From the agent.
    Seen(Report, Option<Time>),
}

impl Network {
    pub(super) fn new(faults: &Faults) -> Self {
        let dice = |kind| Dice::new(faults.seed, kind);
        Self {
            loss: dice("loss"),
            duplicate: dice("duplicate"),
            delay: dice("delay"),
            beats: dice("beats"),
            agents: dice("agents"),
            leaders: dice("leaders"),
            clock: dice("clock"),
            faults: faults.clone(),
            owed: BTreeSet::new(),
            away: BTreeSet::new(),
        }
    }

    /// What becomes of a heartbeat.
    pub(super) fn beat(&mut self) -> Beat {
        if self.beats.millionths(self.faults.loss_millionths) { Beat::Lost } else { Beat::Heard }
    }

    /// When each copy of a message arrives.
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
    /// What the leader's clock shows.
    pub(super) fn clock(&self) -> Time {
        self.now.after(self.skew)
    }

    /// When the leader's clock will show that.
    pub(super) fn when_it_shows(&self, shown: Time) -> Time {
        Time(shown.0.saturating_sub(u64::try_from(self.skew.as_millis()).unwrap_or(0)))
    }

    pub(super) fn first_round(&mut self) {
        if self.network.is_some() {
            self.queue.push(self.now.after(SAY_AGAIN), Tick::SayAgain);
        }
    }

    /// The node's work has changed. Whether somebody took note of it, so that nobody else needs to.
    pub(super) fn owe(&mut self, node: &NodeName) -> bool {
        match &mut self.network {
            Some(network) => {
                network.owed.insert(node.clone());
                true
            }
            None => false,
        }
    }

    /// Tells every node whose work has changed.
    pub(super) fn post_feeds(&mut self) {
        let Some(network) = &mut self.network else { return };
        for node in std::mem::take(&mut network.owed) {
            let cursor = self.state.index();
            let (due, ended) = (self.due_on(&node), self.to_be_stopped(&node));
            self.post(&node, Content::Feed { cursor, due, ended });
        }
    }

    /// Sends what an agent saw. Gives it back where messages cannot be lost.
    pub(super) fn post_sighting(&mut self, node: &NodeName, report: Report) -> Option<Report> {
        if self.network.is_none() {
            return Some(report);
        }
        let placed_at = self.placed_at(&report.id);
        self.post(node, Content::Seen(report, placed_at));
        None
    }

    /// When the replica that now bears these numbers was placed: a letter that comes late speaks of this one alone.
    fn placed_at(&self, id: &ContainerId) -> Option<Time> {
        let replicas = &self.state.group(&id.group)?.slots.get(&id.slot)?.replicas;
        replicas.iter().find(|replica| replica.generation == id.generation).map(|it| it.assignment.placed_at)
    }

    fn post(&mut self, node: &NodeName, content: Content) {
        let Some(connection) = self.machines.get(node).map(Machine::connection) else { return };
        let Some(network) = &mut self.network else { return };
        let letter = Letter { node: node.clone(), connection, content };
        for at in network.arrivals(self.now) {
            self.queue.push(at, Tick::Letter(Box::new(letter.clone())));
        }
    }

    pub(super) fn arrive(&mut self, letter: Letter) {
        let Letter { node, connection, content } = letter;
        let open = |machine: &&mut Machine| machine.connection() == connection;
        let Some(machine) = self.machines.get_mut(&node).filter(open) else { return };
        match content {
            Content::Feed { cursor, due, ended } => {
                if machine.link() != Link::Up || machine.power() == Power::Off || !machine.reads(cursor) {
                    return;
                }
                let mut out = Outbox::default();
                machine.let_go_of_others(&due, self.now, &mut out);
                out.reports.extend(ended.into_iter().filter(|report| !machine.has(&report.id)));
                machine.adopt(&due, self.now, &mut out);
                self.send(&node, out);
            }
            // A node that is down has no connection: what it sent is said again when it has one.
            Content::Seen(..) if self.state.node(&node).is_none_or(|node| node.health == Health::Down) => {}
            Content::Seen(report, placed_at) => self.take_in(report, placed_at),
        }
        self.deliver();
    }

    pub(super) fn take_in(&mut self, report: Report, placed_at: Option<Time>) {
        self.inbox.push_back(Command::Observe(Observation {
            group: report.id.group,
            slot: report.id.slot,
            generation: report.id.generation,
            attempt: report.attempt,
            placed_at,
            state: report.state,
            code: report.code,
            details: report.details,
            at: self.clock(),
        }));
    }

    /// Everything is said again. Some agents restart instead.
    pub(super) fn say_again(&mut self) {
        let nodes: Vec<NodeName> = self.machines.keys().cloned().collect();
        let Some(network) = &mut self.network else { return };
        self.queue.push(self.now.after(SAY_AGAIN), Tick::SayAgain);
        let mut restarting = Vec::new();
        for node in nodes {
            if network.agents.millionths(network.faults.agent_restart_millionths) {
                restarting.push((node.clone(), network.agents.between(1, LONGEST_RESTART_MS)));
            }
            network.owed.insert(node);
        }
        for (node, takes) in restarting {
            self.restart_agent(&node, takes);
        }
        self.post_feeds();
    }

    fn restart_agent(&mut self, node: &NodeName, takes_ms: u64) {
        let lives = |machine: &Machine| machine.link() == Link::Up && machine.power() == Power::On;
        if !self.machines.get(node).is_some_and(lives) {
            return;
        }
        self.isolate(node);
        if let Some(network) = &mut self.network {
            network.away.insert(node.clone());
        }
        self.queue.push(Time(self.now.0 + takes_ms), Tick::AgentBack(node.clone()));
    }

    /// A cut that somebody else makes is not the agent's to mend.
    pub(super) fn cut_for_good(&mut self, node: &NodeName) {
        if let Some(network) = &mut self.network {
            network.away.remove(node);
        }
    }

    pub(super) fn agent_back(&mut self, node: &NodeName) {
        if self.network.as_mut().is_some_and(|network| network.away.remove(node)) {
            self.heal(node);
        }
    }

    /// Something has happened: perhaps it is another leader who goes on from here, with another clock.
    pub(super) fn perhaps_change_leader(&mut self) {
        let Some(network) = &mut self.network else { return };
        if network.leaders.millionths(network.faults.leader_change_millionths) {
            let most = u64::try_from(network.faults.clock_step.as_millis()).unwrap_or(0);
            self.skew = Duration::from_millis(network.clock.between(0, most));
            self.change_leader();
        }
    }

    /// From now on every message arrives; what was lost is said again.
    pub(super) fn mend_network(&mut self) {
        if self.network.take().is_none() {
            return;
        }
        let nodes: Vec<NodeName> = self.machines.keys().cloned().collect();
        for node in nodes {
            self.heal(&node);
            if self.machines.get(&node).is_some_and(|machine| machine.link() == Link::Up) {
                self.hear_again(&node);
            }
        }
    }
}
