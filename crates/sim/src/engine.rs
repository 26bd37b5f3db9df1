//! One run: the real state machine and the real scheduler under a virtual clock, with virtual machines.
//!
//! ```text
//! step, beat, alarm -> command -> State -> events -> View, machines, ledger, chronicle
//!                         ^                   |
//!                         '---- plan <--- pass, 50 ms after the last event
//! ```
//!
//! Owns: the clock, what happens when, and that every event reaches everybody.
//! Must not touch: decisions (the scheduler's), what follows a command (the store's), what a machine does.
//! Invariant: the same scenario gives the same run, `decide_us` aside.

mod beats;
mod leaders;
mod network;
mod passes;
mod pressure;
mod reactions;
mod rest;
mod returning;

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
    network::{Letter, Network},
    passes::Debounce,
    pressure::Gauge,
};
use crate::{
    chronicle::Chronicle,
    invariants::{self, Ledger, Violation, Violations},
    machine::{Alarm, Machine},
    queue::Queue,
    report::{Report, Stats},
    scenario::{Action, Image, Scenario},
    why::{self, Why},
};

/// Passes that run whatever happens, so that nothing overlooked stays overlooked.
const SAFETY_PASS: Duration = Duration::from_secs(30);

/// Something whose time has come.
#[derive(Debug)]
enum Tick {
    /// A step of the scenario, by number.
    Step(usize),
    /// All nodes are due to send a heartbeat.
    Beat,
    /// Something happened and a pass is due, unless more happened since.
    Pass,
    /// The time a plan asked to be woken at.
    Wake,
    /// A pass is due although nothing happened.
    Safety,
    /// All machines are due to say how busy they are.
    Sample,
    /// The rebalancer is due to look at the cluster.
    Rebalance,
    /// A machine waited for this, in that life.
    Alarm { node: NodeName, boots: u32, alarm: Alarm },
    /// A message arrives.
    Letter(Box<Letter>),
    /// Control plane and agents say everything again, in case some of it was lost.
    SayAgain,
    /// An agent has restarted.
    AgentBack(NodeName),
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
    machines: BTreeMap<NodeName, Machine>,
    /// How busy machines were said to be.
    gauges: BTreeMap<NodeName, Gauge>,
    /// Commands that follow from events, in order. Kept apart from the queue as they happen at the same instant.
    inbox: VecDeque<Command>,
    debounce: Debounce,
    wake_at: Option<Time>,
    /// Who goes on after something has happened.
    succession: Succession,
    /// What befalls messages; nothing where they are reliable.
    network: Option<Network>,
    /// How far the leader's clock is ahead.
    skew: Duration,
    /// When something was last decided.
    last_plan: Time,
    ledger: Ledger,
    violations: Violations,
    chronicle: Chronicle,
    stats: Stats,
}

/// Who goes on after something has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Succession {
    /// Whoever it was, unless the scenario says otherwise.
    Settled,
    /// Each time somebody who knows the state and nothing else.
    AtEveryEvent,
}

/// Runs a scenario to its end.
pub fn run(scenario: &Scenario) -> Report {
    Engine::at_the_end_of(scenario, Succession::Settled).finish()
}

/// Runs a scenario to its end with a new leader after every event: all that is decided is decided from the replicated state.
/// What no leader writes down (beats, load, when it meant to look again) is handed over, so that both runs see the same.
pub fn run_with_new_leaders(scenario: &Scenario) -> Report {
    Engine::at_the_end_of(scenario, Succession::AtEveryEvent).finish()
}

/// Runs a scenario to its end and asks why a replica is where it is then; nothing where there is no such replica.
pub fn run_and_ask(scenario: &Scenario, replica: &str) -> (Report, Option<Why>) {
    let mut engine = Engine::at_the_end_of(scenario, Succession::Settled);
    let why = why::of(&engine.state, &mut engine.view, engine.now, replica);
    (engine.finish(), why)
}

impl<'s> Engine<'s> {
    fn at_the_end_of(scenario: &'s Scenario, succession: Succession) -> Self {
        let mut engine = Self { succession, ..Self::new(scenario) };
        engine.found();
        engine.first_round();
        engine.run_until(scenario.until);
        if let Some(within) = scenario.settle {
            engine.come_to_rest(within);
        }
        engine
    }

    fn new(scenario: &'s Scenario) -> Self {
        let mut queue = Queue::new();
        // Steps go in first, so that at any instant they come before ticks.
        for (number, step) in scenario.steps.iter().enumerate() {
            queue.push(step.at, Tick::Step(number));
        }
        queue.push(Time::default().after(scenario.config.heartbeat_interval), Tick::Beat);
        queue.push(Time::default().after(SAFETY_PASS), Tick::Safety);
        if scenario.speaks_of_pressure() {
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
            machines: BTreeMap::new(),
            gauges: BTreeMap::new(),
            inbox: VecDeque::new(),
            debounce: Debounce::default(),
            wake_at: None,
            succession: Succession::Settled,
            network: scenario.faults.as_ref().map(Network::new),
            skew: Duration::ZERO,
            last_plan: Time::default(),
            ledger: Ledger::default(),
            violations: Violations::default(),
            chronicle: Chronicle::default(),
            stats: Stats::default(),
        }
    }

    /// The cluster as it is before the first step.
    fn found(&mut self) {
        // An empty view knows the defaults only; it must hear of the settings even where they are the defaults.
        self.view.apply(&Event::Configured(self.scenario.config.clone()));
        self.tell(Command::Configure(self.scenario.config.clone()));
        for node in &self.scenario.nodes {
            self.tell(Command::Join(Box::new(node.clone())));
        }
    }

    fn happen(&mut self, tick: Tick) {
        let before = self.state.index();
        match tick {
            Tick::Step(number) => self.step(number),
            Tick::Beat => self.beat(),
            Tick::Pass => self.pass_if_due(),
            Tick::Wake => self.wake(),
            Tick::Safety => {
                self.queue.push(self.now.after(SAFETY_PASS), Tick::Safety);
                self.pass_unless_due();
            }
            Tick::Sample => self.sample(),
            Tick::Rebalance => self.rebalance(),
            Tick::Alarm { node, boots, alarm } => self.alarm(&node, boots, alarm),
            Tick::Letter(letter) => self.arrive(*letter),
            Tick::SayAgain => self.say_again(),
            Tick::AgentBack(node) => self.agent_back(&node),
        }
        if self.state.index() != before {
            self.perhaps_change_leader();
            if self.succession == Succession::AtEveryEvent {
                self.learn_the_view_anew();
            }
        }
    }

    /// Asks the machines themselves, cut off or not; only what has data can be wrong there.
    fn check_machines(&mut self) {
        if self.state.groups().any(|(_, group)| group.spec.is_stateful()) {
            invariants::check_machines(&self.state, &self.machines, self.now, &mut self.violations);
        }
    }

    fn step(&mut self, number: usize) {
        let scenario = self.scenario;
        match &scenario.steps[number].action {
            Action::Ask(command) => self.tell(Command::clone(command)),
            Action::Fail(node) => self.fail(node),
            Action::Return(node) => self.boot(node),
            Action::Isolate(node) => {
                self.cut_for_good(node);
                self.isolate(node);
            }
            Action::Heal(node) => self.heal(node),
            Action::NewLeader => self.change_leader(),
            Action::Degrade(node) => self.degrade(node),
            Action::Press(node, load) => self.press(node, *load),
            Action::Preview => self.preview(),
            Action::Befall(replica, mishap) => self.befall(replica, *mishap),
        }
    }

    /// Carries out a command and everything that follows from it at this instant.
    fn tell(&mut self, command: Command) {
        self.inbox.push_back(command);
        self.deliver();
    }

    /// Carries out what is waiting, and what follows from that.
    fn deliver(&mut self) {
        while let Some(command) = self.inbox.pop_front() {
            match self.state.apply(command) {
                Ok(events) if events.is_empty() => {}
                Ok(events) => self.spread(&events),
                // A rehearsal found every refusal that does not depend on the run; what is left is worth a line.
                Err(refused) => self.chronicle.refused(self.now, &refused),
            }
        }
    }

    /// Everybody hears of what happened.
    fn spread(&mut self, events: &[Event]) {
        for event in events {
            self.view.apply(event);
            self.ledger.take(event, &self.state);
            self.stats.count(event);
            self.chronicle.record(self.now, event, &mut self.stats);
        }
        for event in events {
            self.react(event);
        }
        self.post_feeds();
        // Promises of time are kept by the leader's clock, as there is no other that everybody shares.
        let clock = self.clock();
        self.ledger.check(&self.state, clock, &mut self.violations);
        self.arm();
    }

    fn finish(mut self) -> Report {
        let clock = self.clock();
        invariants::check_rebuilt(&self.state, &mut self.view, clock, &mut self.violations);
        self.ledger.check_everything(&self.state, self.now, &mut self.violations);
        let violations: Vec<Violation> = self.violations.into_list();
        Report::new(&self.state, &mut self.view, self.now, self.chronicle.into_entries(), self.stats, violations)
    }
}
