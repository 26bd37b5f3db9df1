//! Runs one scenario: the real state machine and the real scheduler under a virtual clock, with virtual machines.
//!
//! ```text
//! step, heartbeat, timer -> command -> State -> events -> View, nodes, shadow state, timeline log
//!                              ^                   |
//!                              '---- plan <--- pass, 50 ms after the last event
//! ```
//!
//! Owns: the clock, the order of ticks, and the delivery of every event to every consumer.
//! Must not touch: decisions (the scheduler's), the effects of a command (the store's), what a node does.
//! Invariant: the same scenario gives the same run, `decide_us` aside.

mod heartbeats;
mod leaders;
mod network;
mod node_effects;
mod node_return;
mod passes;
mod pressure;
mod quiescence;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use longshore_model::{Command, Event, NodeName, Time};
use longshore_scheduler::{
    View,
    rebalance::{self, Rebalancer},
};
use longshore_store::State;

use self::{
    network::{Message, Network},
    passes::Debounce,
    pressure::NodeLoad,
};
use crate::{
    invariants::{self, ShadowState, Violation, Violations},
    queue::Queue,
    report::{Report, Stats},
    scenario::{Action, Image, Scenario},
    timeline_log::TimelineLog,
    virtual_node::{Timer, VirtualNode},
    why::{self, Why},
};

/// Interval of the passes that run without an event, so that a missed wake-up cannot stall the cluster.
const SAFETY_PASS: Duration = Duration::from_secs(30);

/// An entry of the event queue.
#[derive(Debug)]
enum Tick {
    /// A step of the scenario, by its index.
    Step(usize),
    /// All nodes send a heartbeat.
    Heartbeat,
    /// The debounced pass, unless a later event moved it.
    Pass,
    /// The pass a plan asked for with `wake_at`.
    Wake,
    /// The pass that runs every [`SAFETY_PASS`], with or without an event.
    Safety,
    /// All reachable nodes report their load.
    Sample,
    /// The rebalancer runs a cycle.
    Rebalance,
    /// A timer of a node fires; dropped when the node has been switched off since.
    Timer { node: NodeName, boots: u32, timer: Timer },
    /// A message arrives.
    Message(Box<Message>),
    /// The control plane and all agents send everything again, as some of it may have been lost.
    Resend,
    /// A restarting agent is up again.
    AgentRestarted(NodeName),
}

/// A run in progress.
pub(crate) struct Engine<'s> {
    scenario: &'s Scenario,
    behaviours: Arc<BTreeMap<String, Image>>,
    now: Time,
    queue: Queue<Tick>,
    state: State,
    view: View,
    rebalancer: Rebalancer,
    virtual_nodes: BTreeMap<NodeName, VirtualNode>,
    /// The load the scenario gave each node.
    loads: BTreeMap<NodeName, NodeLoad>,
    /// Commands that follow from events, in order. Kept apart from the queue because they apply at the same instant.
    commands: VecDeque<Command>,
    debounce: Debounce,
    wake_at: Option<Time>,
    leader_changes: LeaderChanges,
    /// Message faults; `None` when every message arrives at once and exactly once.
    network: Option<Network>,
    /// How far the leader's clock is ahead of virtual time.
    skew: Duration,
    /// When a plan that was not empty was last made.
    last_plan: Time,
    shadow: ShadowState,
    violations: Violations,
    timeline: TimelineLog,
    stats: Stats,
}

/// When the leader changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaderChanges {
    /// Only where the scenario says so.
    FromScenario,
    /// After every event; the new leader rebuilds its view from the state.
    AfterEveryEvent,
}

/// Runs a scenario to its end.
pub fn run(scenario: &Scenario) -> Report {
    Engine::run_to_end(scenario, LeaderChanges::FromScenario).finish()
}

/// Runs a scenario to its end with a new leader after every event, so that every decision is made from the replicated state.
/// What a leader keeps in memory only (heartbeats, load, wake-ups) is carried over, so that both runs see the same input.
pub fn run_with_new_leaders(scenario: &Scenario) -> Report {
    Engine::run_to_end(scenario, LeaderChanges::AfterEveryEvent).finish()
}

/// Runs a scenario to its end and explains the placement of one replica at that time. `None` if there is no such replica.
pub fn run_and_explain(scenario: &Scenario, replica: &str) -> (Report, Option<Why>) {
    let mut engine = Engine::run_to_end(scenario, LeaderChanges::FromScenario);
    let why = why::explain(&engine.state, &mut engine.view, engine.now, replica);
    (engine.finish(), why)
}

impl<'s> Engine<'s> {
    fn run_to_end(scenario: &'s Scenario, leader_changes: LeaderChanges) -> Self {
        let mut engine = Self { leader_changes, ..Self::new(scenario) };
        engine.create_cluster();
        engine.schedule_first_resend();
        engine.run_until(scenario.until);
        if let Some(within) = scenario.settle {
            engine.heal_and_settle(within);
        }
        engine
    }

    fn new(scenario: &'s Scenario) -> Self {
        let mut queue = Queue::new();
        // Steps are inserted first, so that they come before other ticks of the same instant.
        for (number, step) in scenario.steps.iter().enumerate() {
            queue.push(step.at, Tick::Step(number));
        }
        queue.push(Time::default().after(scenario.config.heartbeat_interval), Tick::Heartbeat);
        queue.push(Time::default().after(SAFETY_PASS), Tick::Safety);
        if scenario.sets_load() {
            queue.push(Time::default().after(scenario.config.node_status_interval), Tick::Sample);
        }
        queue.push(Time::default().after(rebalance::CYCLE), Tick::Rebalance);
        Self {
            scenario,
            behaviours: Arc::new(scenario.images.clone()),
            now: Time::default(),
            queue,
            state: State::default(),
            view: View::default(),
            rebalancer: Rebalancer::new(Time::default()),
            virtual_nodes: BTreeMap::new(),
            loads: BTreeMap::new(),
            commands: VecDeque::new(),
            debounce: Debounce::default(),
            wake_at: None,
            leader_changes: LeaderChanges::FromScenario,
            network: scenario.faults.as_ref().map(Network::new),
            skew: Duration::ZERO,
            last_plan: Time::default(),
            shadow: ShadowState::default(),
            violations: Violations::default(),
            timeline: TimelineLog::default(),
            stats: Stats::default(),
        }
    }

    /// Configures the cluster and joins its first nodes, before the first step.
    fn create_cluster(&mut self) {
        // The state emits no event for settings that equal the defaults, and an empty view needs them all the same.
        self.view.apply(&Event::Configured(self.scenario.config.clone()));
        self.submit(Command::Configure(self.scenario.config.clone()));
        for node in &self.scenario.nodes {
            self.submit(Command::Join(Box::new(node.clone())));
        }
    }

    fn handle(&mut self, tick: Tick) {
        let before = self.state.index();
        match tick {
            Tick::Step(number) => self.step(number),
            Tick::Heartbeat => self.heartbeats(),
            Tick::Pass => self.pass_if_due(),
            Tick::Wake => self.wake(),
            Tick::Safety => {
                self.queue.push(self.now.after(SAFETY_PASS), Tick::Safety);
                self.pass_unless_due();
            }
            Tick::Sample => self.sample(),
            Tick::Rebalance => self.rebalance(),
            Tick::Timer { node, boots, timer } => self.fire_timer(&node, boots, timer),
            Tick::Message(message) => self.receive(*message),
            Tick::Resend => self.resend_everything(),
            Tick::AgentRestarted(node) => self.agent_restarted(&node),
        }
        if self.state.index() != before {
            self.maybe_change_leader();
            if self.leader_changes == LeaderChanges::AfterEveryEvent {
                self.rebuild_view();
            }
        }
    }

    /// Checks the processes that really run, also on nodes that are cut off. Skipped where no service has data: the
    /// rule is about volumes.
    fn check_virtual_nodes(&mut self) {
        if self.state.groups().any(|(_, group)| group.spec.is_stateful()) {
            invariants::check_virtual_nodes(&self.state, &self.virtual_nodes, self.now, &mut self.violations);
        }
    }

    fn step(&mut self, number: usize) {
        let scenario = self.scenario;
        match &scenario.steps[number].action {
            Action::Command(command) => self.submit(Command::clone(command)),
            Action::Fail(node) => self.power_off(node),
            Action::Return(node) => self.boot(node),
            Action::Isolate(node) => {
                self.cancel_agent_restart(node);
                self.isolate(node);
            }
            Action::Heal(node) => self.heal(node),
            Action::NewLeader => self.change_leader(),
            Action::Degrade(node) => self.degrade(node),
            Action::SetLoad(node, load) => self.set_load(node, *load),
            Action::Preview => self.preview(),
            Action::InjectFault(replica, fault) => self.inject_fault(replica, *fault),
        }
    }

    /// Applies a command and every command that follows from it at this instant.
    fn submit(&mut self, command: Command) {
        self.commands.push_back(command);
        self.apply_commands();
    }

    /// Applies the waiting commands, and those that follow from them.
    fn apply_commands(&mut self) {
        while let Some(command) = self.commands.pop_front() {
            match self.state.apply(command) {
                Ok(events) if events.is_empty() => {}
                Ok(events) => self.dispatch(&events),
                // `check_steps` refused what can be refused without running; the rest gets a timeline entry.
                Err(refused) => self.timeline.refused(self.now, &refused),
            }
        }
    }

    /// Hands events to the view, the shadow state, the timeline log and the nodes.
    fn dispatch(&mut self, events: &[Event]) {
        for event in events {
            self.view.apply(event);
            self.shadow.apply(event, &self.state);
            self.stats.count(event);
            self.timeline.record(self.now, event, &mut self.stats);
        }
        for event in events {
            self.notify_virtual_nodes(event);
        }
        self.send_due_feeds();
        // Rules about time use the leader's clock: it is the one that stamped the state.
        let clock = self.clock();
        self.shadow.check(&self.state, clock, &mut self.violations);
        self.schedule_pass();
    }

    fn finish(mut self) -> Report {
        let clock = self.clock();
        invariants::check_rebuilt(&self.state, &mut self.view, clock, &mut self.violations);
        self.shadow.check_everything(&self.state, self.now, &mut self.violations);
        let violations: Vec<Violation> = self.violations.into_list();
        Report::new(&self.state, &mut self.view, self.now, self.timeline.into_entries(), self.stats, violations)
    }
}
