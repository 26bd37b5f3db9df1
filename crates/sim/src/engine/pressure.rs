//! How busy machines are, what they say of it, and what the rebalancer makes of that.
//!
//! A machine's load is what the scenario says it is in total; from then on it follows the footprints of replicas that
//! start and end there. One that was given no total carries what its replicas make up.
//!
//! Owns: the virtual load and the rhythm of samples and cycles.
//! Must not touch: which replica is moved. Invariant: a machine that cannot be reached says nothing.

use std::collections::BTreeMap;

use longshore_model::{
    Command, NodeName, ReplicaState,
    rebalance::{Pressure, Share},
};
use longshore_scheduler::rebalance::{self, Cycle};

use super::{Engine, Tick};
use crate::{
    invariants,
    scenario::{Course, Load},
};

/// The load of a machine, beside what replicas bring and take.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gauge {
    cpu: Reading,
    memory: Reading,
}

/// One dimension of a load.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// So much beside the replicas; less than nothing where they use less than they make up.
    Beside(Share),
    /// So much whatever happens.
    Fixed(Share),
}

impl Default for Reading {
    fn default() -> Self {
        Self::Beside(Share::NONE)
    }
}

impl Reading {
    fn new(total: Share, replicas: Share, course: Course) -> Self {
        match course {
            Course::Follows => Self::Beside(total.minus(replicas)),
            Course::Fixed => Self::Fixed(total),
        }
    }

    fn total(self, replicas: Share) -> Share {
        match self {
            Self::Beside(rest) => rest.plus(replicas).clamp(Share::NONE, Share::WHOLE),
            Self::Fixed(total) => total,
        }
    }
}

impl Engine<'_> {
    /// A machine is as busy as the scenario says.
    pub(super) fn press(&mut self, node: &NodeName, load: Load) {
        let replicas = self.footprints().remove(node).unwrap_or_default();
        let gauge = self.gauges.entry(node.clone()).or_default();
        if let Some(cpu) = load.cpu {
            gauge.cpu = Reading::new(cpu, replicas.cpu, load.course);
        }
        if let Some(memory) = load.memory {
            gauge.memory = Reading::new(memory, replicas.memory, load.course);
        }
    }

    /// Every machine that can be reached says how busy it is.
    pub(super) fn sample(&mut self) {
        self.queue.push(self.now.after(self.state.config().node_status_interval), Tick::Sample);
        let (footprints, clock) = (self.footprints(), self.clock());
        for name in self.machines.iter().filter(|(_, machine)| machine.is_reachable()).map(|(name, _)| name) {
            let replicas = footprints.get(name).copied().unwrap_or_default();
            let gauge = self.gauges.get(name).copied().unwrap_or_default();
            let pressure = Pressure { cpu: gauge.cpu.total(replicas.cpu), memory: gauge.memory.total(replicas.memory) };
            self.rebalancer.sample(name, clock, pressure);
        }
    }

    /// The rebalancer looks at the cluster, and what it decides is committed like any plan.
    pub(super) fn rebalance(&mut self) {
        self.queue.push(self.now.after(rebalance::CYCLE), Tick::Rebalance);
        let clock = self.clock();
        let Cycle { plan, skips } = self.rebalancer.cycle(&mut self.view, self.state.index(), clock);
        for skip in &skips {
            self.chronicle.skipped(self.now, skip);
        }
        if !plan.is_empty() {
            self.last_plan = self.now;
            invariants::check_decision(&self.state, &plan, self.now, &mut self.violations);
            self.tell(Command::Commit(Box::new(plan)));
        }
    }

    /// The moves that evening out would make are told, and none is made.
    pub(super) fn preview(&mut self) {
        let view = invariants::from_state(&self.state);
        let moves = self.rebalancer.preview(view, self.clock());
        self.chronicle.previewed(self.now, &moves);
    }

    /// What the replicas with a process make up of each machine.
    fn footprints(&self) -> BTreeMap<NodeName, Pressure> {
        let mut sums: BTreeMap<NodeName, Pressure> = BTreeMap::new();
        for (key, _, replica) in self.state.replicas().filter(|(_, _, replica)| has_process(replica.state)) {
            let name = &replica.assignment.node;
            let spec = self.spec_of(key, replica.assignment.terms.revision);
            let (Some(spec), Some(node)) = (spec, self.state.node(name)) else { continue };
            let part = rebalance::footprint(&spec, node);
            let sum = sums.entry(name.clone()).or_default();
            *sum = Pressure { cpu: sum.cpu.plus(part.cpu), memory: sum.memory.plus(part.memory) };
        }
        sums
    }
}

const fn has_process(state: ReplicaState) -> bool {
    match state {
        ReplicaState::Starting | ReplicaState::Running | ReplicaState::Degraded | ReplicaState::Draining => true,
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Stopped
        | ReplicaState::Failed
        | ReplicaState::Completed
        | ReplicaState::Lost => false,
    }
}
