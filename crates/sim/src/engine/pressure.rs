//! The load of nodes, its samples, and the cycles of the rebalancer.
//!
//! The scenario sets a node's total load; from then on it changes with the footprints of replicas that start and end
//! there. Without a step of the scenario the load is the sum of the footprints.
//!
//! Owns: the virtual load and the intervals of samples and cycles.
//! Must not touch: which replica is moved. Invariant: an unreachable node sends no sample.

use std::collections::BTreeMap;

use longshore_model::{
    NodeName, ReplicaState,
    rebalance::{Pressure, Share},
};
use longshore_scheduler::rebalance::{self, Cycle};

use super::{Engine, Tick};
use crate::{
    invariants,
    scenario::{Load, LoadMode},
};

/// The load of a node, without that of its replicas.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeLoad {
    cpu: BaseLoad,
    memory: BaseLoad,
}

/// The load of one resource.
#[derive(Clone, Copy, Debug)]
enum BaseLoad {
    /// Added to the footprints of the replicas. Negative if the scenario's total is less than their sum.
    BesideReplicas(Share),
    /// The total, whatever replicas run.
    Fixed(Share),
}

impl Default for BaseLoad {
    fn default() -> Self {
        Self::BesideReplicas(Share::NONE)
    }
}

impl BaseLoad {
    fn new(total: Share, replicas: Share, mode: LoadMode) -> Self {
        match mode {
            LoadMode::FollowsReplicas => Self::BesideReplicas(total.minus(replicas)),
            LoadMode::Fixed => Self::Fixed(total),
        }
    }

    fn total(self, replicas: Share) -> Share {
        match self {
            Self::BesideReplicas(rest) => rest.plus(replicas).clamp(Share::NONE, Share::WHOLE),
            Self::Fixed(total) => total,
        }
    }
}

impl Engine<'_> {
    /// Sets a node's total load.
    pub(super) fn set_load(&mut self, node: &NodeName, load: Load) {
        let replicas = self.footprints().remove(node).unwrap_or_default();
        let known = self.loads.entry(node.clone()).or_default();
        if let Some(cpu) = load.cpu {
            known.cpu = BaseLoad::new(cpu, replicas.cpu, load.mode);
        }
        if let Some(memory) = load.memory {
            known.memory = BaseLoad::new(memory, replicas.memory, load.mode);
        }
    }

    /// Every reachable node sends a load sample.
    pub(super) fn sample(&mut self) {
        self.queue.push(self.now.after(self.state.config().node_status_interval), Tick::Sample);
        let (footprints, clock) = (self.footprints(), self.clock());
        for name in
            self.virtual_nodes.iter().filter(|(_, virtual_node)| virtual_node.is_reachable()).map(|(name, _)| name)
        {
            let replicas = footprints.get(name).copied().unwrap_or_default();
            let load = self.loads.get(name).copied().unwrap_or_default();
            let pressure = Pressure { cpu: load.cpu.total(replicas.cpu), memory: load.memory.total(replicas.memory) };
            self.rebalancer.sample(name, clock, pressure);
        }
    }

    /// Runs a cycle of the rebalancer. Its plan is committed like any other.
    pub(super) fn rebalance(&mut self) {
        self.queue.push(self.now.after(rebalance::CYCLE), Tick::Rebalance);
        let clock = self.clock();
        let Cycle { plan, skips } = self.rebalancer.cycle(&mut self.view, self.state.index(), clock);
        for skip in &skips {
            self.timeline.skipped(self.now, skip);
        }
        if !plan.is_empty() {
            self.commit(plan);
        }
    }

    /// Writes the moves of a spread rebalance to the timeline without making them.
    pub(super) fn preview(&mut self) {
        let view = invariants::view_from_state(&self.state);
        let moves = self.rebalancer.preview(view, self.clock());
        self.timeline.previewed(self.now, &moves);
    }

    /// The load of the replicas that have a process, by node.
    fn footprints(&self) -> BTreeMap<NodeName, Pressure> {
        let mut sums: BTreeMap<NodeName, Pressure> = BTreeMap::new();
        for (key, _, replica) in self.state.replicas().filter(|(_, _, replica)| has_process(replica.state)) {
            let name = &replica.assignment.node;
            let spec = self.spec_of(key, replica.assignment.reservation.revision);
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
