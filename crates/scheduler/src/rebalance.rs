//! Moves replicas off a hot node, and rebalances a service's spread after nodes joined, one replica per cycle.
//!
//! ```text
//! samples ─▶ ewma ─▶ hot for two cycles? far from the coolest? ─▶ candidates × destinations
//!                                                                    │ gates (one reason each)
//!                        Plan: next generation on the best ◀─ score ─┴─▶ skips, each reported once
//! ```
//!
//! It is conservative: an idle or evenly busy cluster sees no moves, and nodes without samples are ignored.
//!
//! Owns: the leader's memory: smoothed pressures, how long a node has been hot, which skips were reported.
//! Must not touch: when replicas were placed and moved. The replicated state keeps that, and cooldowns count from it.
//! Invariant: the same samples and the same view give the same moves; a cycle makes at most one move.

mod branch_counts;
mod candidates;
mod ewma;
pub(crate) mod footprint;
mod gates;
mod pressure_rebalance;
mod score;
mod skips;
mod spread_rebalance;

use std::{collections::BTreeMap, time::Duration};

use longshore_model::{
    Node, NodeName, Plan, ReplicaKey, StateIndex, Time,
    rebalance::{PlannedMove, Pressure, Share},
};

use self::{ewma::Ewma, gates::TRIGGER, skips::SkipCounts};
pub use self::{
    footprint::{MeasuredUsage, footprint},
    skips::Skip,
};
use crate::view::View;

/// Time between two cycles.
pub const CYCLE: Duration = Duration::from_secs(30);
/// The least time between two moves, across leaders: a new leader starts its cycles at its election, and the old one
/// may just have made a move. One second less than a cycle, because timers are not exact to the millisecond.
const MIN_MOVE_INTERVAL: Duration = Duration::from_secs(29);
/// A new leader has no history: until its smoothed values settle it relieves no node.
const WARM_UP: Duration = Duration::from_mins(5);
/// Status intervals after which a sample is stale, so that a crashed node soon stops counting.
const STALE_AFTER_INTERVALS: u32 = 3;

/// The leader's memory of how busy the nodes have been.
#[derive(Clone, Debug)]
pub struct Rebalancer {
    leads_since: Time,
    nodes: BTreeMap<NodeName, SmoothedPressure>,
    usage: BTreeMap<ReplicaKey, MeasuredUsage>,
    skip_counts: SkipCounts,
}

/// Smoothed pressure of one node.
#[derive(Clone, Copy, Debug)]
struct SmoothedPressure {
    cpu: Ewma,
    memory: Ewma,
    sampled_at: Time,
    /// Consecutive cycles in which the node was hot.
    hot_cycles: u32,
}

impl SmoothedPressure {
    const fn pressure(&self) -> Pressure {
        Pressure { cpu: self.cpu.value(), memory: self.memory.value() }
    }

    fn shift(&mut self, by: Pressure) {
        self.cpu.shift(by.cpu);
        self.memory.shift(by.memory);
    }
}

/// The result of a cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycle {
    /// At most one move, committed like any plan.
    pub plan: Plan,
    /// Replicas of the hot node that were not moved.
    pub skips: Vec<Skip>,
}

impl Rebalancer {
    /// The empty memory of a leader elected at `leads_since`.
    pub const fn new(leads_since: Time) -> Self {
        Self { leads_since, nodes: BTreeMap::new(), usage: BTreeMap::new(), skip_counts: SkipCounts::new() }
    }

    /// Records a node's pressure sample, clamped to between nothing and the whole node.
    pub fn sample(&mut self, node: &NodeName, at: Time, pressure: Pressure) {
        let clamp = |share: Share| share.clamp(Share::NONE, Share::WHOLE);
        let (cpu, memory) = (clamp(pressure.cpu), clamp(pressure.memory));
        let seeded = || {
            let (cpu, memory) = (Ewma::seeded(cpu, at), Ewma::seeded(memory, at));
            SmoothedPressure { cpu, memory, sampled_at: at, hot_cycles: 0 }
        };
        let smoothed = self.nodes.entry(node.clone()).or_insert_with(seeded);
        smoothed.cpu.update(cpu, at);
        smoothed.memory.update(memory, at);
        smoothed.sampled_at = smoothed.sampled_at.max(at);
    }

    /// Records the measured use of one replica; it takes precedence over what the service declares.
    pub fn usage(&mut self, replica: ReplicaKey, measured: MeasuredUsage) {
        self.usage.insert(replica, measured);
    }

    /// Decides on at most one move. The view is unchanged afterwards.
    pub fn cycle(&mut self, view: &mut View, made_from: StateIndex, now: Time) -> Cycle {
        view.advance(now);
        view.nodes.refresh();
        self.forget_gone(view);
        let fresh = self.update_hot_cycles(view, now);
        let mut cycle = Cycle { plan: Plan { made_from, made_at: now, ..Plan::default() }, skips: Vec::new() };
        if last_move(view).is_some_and(|last| now.since(last) < MIN_MOVE_INTERVAL) {
            return cycle;
        }
        if now.since(self.leads_since) >= WARM_UP {
            pressure_rebalance::rebalance(self, view, &fresh, now, &mut cycle);
        }
        if cycle.plan.is_empty() {
            spread_rebalance::rebalance(self, view, &fresh, now, &mut cycle);
        }
        cycle
    }

    /// The moves that a spread rebalance requested now would make, in order. Consumes the view, so pass one built for
    /// this purpose from the state.
    pub fn preview(&self, mut view: View, now: Time) -> Vec<PlannedMove> {
        view.advance(now);
        view.nodes.refresh();
        let fresh = self.fresh(&view, now);
        spread_rebalance::preview(self, &mut view, &fresh, now)
    }

    /// The pressures of nodes whose last sample is not stale.
    fn fresh(&self, view: &View, now: Time) -> BTreeMap<NodeName, Pressure> {
        let longest = view.config.node_status_interval * STALE_AFTER_INTERVALS;
        let fresh = self.nodes.iter().filter(|(_, smoothed)| now.since(smoothed.sampled_at) <= longest);
        fresh.map(|(name, smoothed)| (name.clone(), smoothed.pressure())).collect()
    }

    /// The share of a node that one replica uses: measured, else declared.
    fn footprint_of(&self, view: &View, replica: &ReplicaKey, node: &Node) -> Pressure {
        if let Some(measured) = self.usage.get(replica) {
            return footprint::measured(*measured, node);
        }
        let group = view.group_ids.get(&replica.group).map(|group| view.group(*group));
        group.map_or_else(Pressure::default, |group| footprint(&group.spec, node))
    }

    /// Updates every node's count of hot cycles; returns the pressures that are not stale.
    fn update_hot_cycles(&mut self, view: &View, now: Time) -> BTreeMap<NodeName, Pressure> {
        let fresh = self.fresh(view, now);
        for (name, smoothed) in &mut self.nodes {
            let is_hot = fresh.get(name).is_some_and(|pressure| pressure.composite() >= TRIGGER);
            smoothed.hot_cycles = if is_hot { smoothed.hot_cycles.saturating_add(1) } else { 0 };
        }
        fresh
    }

    /// Shifts the pressure of a moved replica at once. Samples follow later, and until then the source must not still
    /// count as hot.
    fn shift_pressure(&mut self, src: NodeShare<'_>, dst: NodeShare<'_>) {
        let less = |share: Share| Share::NONE.minus(share);
        if let Some(smoothed) = self.nodes.get_mut(src.node) {
            smoothed.shift(Pressure { cpu: less(src.footprint.cpu), memory: less(src.footprint.memory) });
            smoothed.hot_cycles = 0;
        }
        if let Some(smoothed) = self.nodes.get_mut(dst.node) {
            smoothed.shift(dst.footprint);
        }
    }

    fn forget_gone(&mut self, view: &View) {
        self.nodes.retain(|name, _| view.nodes.by_name.contains_key(name));
        self.usage.retain(|replica, _| skips::exists(view, replica));
        self.skip_counts.forget_gone(view);
    }
}

/// A node and the share of it that a moved replica uses.
#[derive(Clone, Copy)]
struct NodeShare<'a> {
    node: &'a NodeName,
    footprint: Pressure,
}

/// When any leader last moved a replica.
fn last_move(view: &View) -> Option<Time> {
    view.groups.iter().flatten().flat_map(|group| &group.slots).filter_map(|slot| slot.moved_at).max()
}

#[cfg(test)]
pub(crate) mod tests;
