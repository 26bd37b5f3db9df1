//! Moves load off a hot node, and evens a service out over nodes that came, one replica at a time.
//!
//! ```text
//! samples ─▶ ewma ─▶ hot for two cycles? far from the coolest? ─▶ candidates × destinations
//!                                                                    │ gates (one reason each)
//!                        Plan: next generation on the best ◀─ score ─┴─▶ skips, each told once
//! ```
//!
//! It would rather do nothing: on an idle or evenly busy cluster no move is ever made, and no data is silence.
//!
//! Owns: what only a leader remembers: smoothed pressures, how long a node has been hot, which skips were told.
//! Must not touch: what the state remembers: when replicas were placed and moved. Cooldowns are counted from that.
//! Invariant: the same samples and the same view give the same moves; at most one move comes of a cycle.

mod candidates;
mod even_out;
mod ewma;
pub(crate) mod footprint;
mod gates;
mod relieve;
mod score;
mod skips;
mod spread;

use std::{collections::BTreeMap, time::Duration};

use longshore_model::{
    Node, NodeName, Plan, StateIndex, Time,
    rebalance::{PlannedMove, Pressure, Share},
};

use self::{ewma::Ewma, gates::TRIGGER, skips::Told};
pub use self::{
    footprint::{Measured, footprint},
    skips::{Skip, Subject},
};
use crate::view::View;

/// Time between two cycles.
pub const CYCLE: Duration = Duration::from_secs(30);
/// The least time between two moves, whoever leads: a new leader begins its cycles when it begins to lead, and the old one may
/// just have made a move. A second less than a cycle, as clocks that tick every thirty seconds do not do so to the millisecond.
const APART: Duration = Duration::from_secs(29);
/// A new leader knows little of the past: until its smoothed values mean something it moves nothing.
const SILENCE: Duration = Duration::from_mins(5);
/// Intervals after which a sample says nothing any more: a machine that crashed stops to count within a few.
const FRESH_INTERVALS: u32 = 3;

/// The leader's memory of how busy the machines have been.
#[derive(Clone, Debug)]
pub struct Rebalancer {
    leads_since: Time,
    machines: BTreeMap<NodeName, Machine>,
    usage: BTreeMap<Subject, Measured>,
    told: Told,
}

/// What is known of one machine.
#[derive(Clone, Copy, Debug)]
struct Machine {
    cpu: Ewma,
    memory: Ewma,
    sampled_at: Time,
    /// Cycles in a row it was hot.
    hot_cycles: u32,
}

impl Machine {
    const fn pressure(&self) -> Pressure {
        Pressure { cpu: self.cpu.value(), memory: self.memory.value() }
    }

    fn shift(&mut self, by: Pressure) {
        self.cpu.shift(by.cpu);
        self.memory.shift(by.memory);
    }
}

/// What came of a cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycle {
    /// At most one move, to be committed like any plan.
    pub plan: Plan,
    /// Replicas left where they are.
    pub skips: Vec<Skip>,
}

impl Rebalancer {
    /// The memory of a leader that begins to lead.
    pub const fn new(leads_since: Time) -> Self {
        Self { leads_since, machines: BTreeMap::new(), usage: BTreeMap::new(), told: Told::new() }
    }

    /// Takes a machine's report of how busy it is.
    pub fn sample(&mut self, node: &NodeName, at: Time, pressure: Pressure) {
        let clamp = |share: Share| share.clamp(Share::NONE, Share::WHOLE);
        let (cpu, memory) = (clamp(pressure.cpu), clamp(pressure.memory));
        let seeded = || {
            let (cpu, memory) = (Ewma::seeded(cpu, at), Ewma::seeded(memory, at));
            Machine { cpu, memory, sampled_at: at, hot_cycles: 0 }
        };
        let machine = self.machines.entry(node.clone()).or_insert_with(seeded);
        machine.cpu.take(cpu, at);
        machine.memory.take(memory, at);
        machine.sampled_at = machine.sampled_at.max(at);
    }

    /// Takes a driver's report of what one replica uses; it replaces what its service declares.
    pub fn usage(&mut self, subject: Subject, measured: Measured) {
        self.usage.insert(subject, measured);
    }

    /// Looks at the cluster and decides on at most one move. The view is the same after as before.
    pub fn cycle(&mut self, view: &mut View, made_from: StateIndex, now: Time) -> Cycle {
        view.advance(now);
        view.fleet.refresh();
        self.forget_gone(view);
        let fresh = self.take_temperatures(view, now);
        let mut cycle = Cycle { plan: Plan { made_from, made_at: now, ..Plan::default() }, skips: Vec::new() };
        if last_move(view).is_some_and(|last| now.since(last) < APART) {
            return cycle;
        }
        if now.since(self.leads_since) >= SILENCE {
            relieve::relieve(self, view, &fresh, now, &mut cycle);
        }
        if cycle.plan.is_empty() {
            even_out::even_out(self, view, &fresh, now, &mut cycle);
        }
        cycle
    }

    /// The moves that evening out would make if it were asked for now, in order. The view is used up: give it one of its own,
    /// made from the state.
    pub fn preview(&self, mut view: View, now: Time) -> Vec<PlannedMove> {
        view.advance(now);
        view.fleet.refresh();
        let fresh = self.fresh(&view, now);
        even_out::preview(self, &mut view, &fresh, now)
    }

    /// The pressures that mean something.
    fn fresh(&self, view: &View, now: Time) -> BTreeMap<NodeName, Pressure> {
        let longest = view.config.node_status_interval * FRESH_INTERVALS;
        let fresh = self.machines.iter().filter(|(_, machine)| now.since(machine.sampled_at) <= longest);
        fresh.map(|(name, machine)| (name.clone(), machine.pressure())).collect()
    }

    /// What one replica makes up of a machine.
    fn footprint_of(&self, view: &View, subject: &Subject, node: &Node) -> Pressure {
        if let Some(measured) = self.usage.get(subject) {
            return footprint::measured(*measured, node);
        }
        let group = view.group_ids.get(&subject.group).map(|group| view.group(*group));
        group.map_or_else(Pressure::default, |group| footprint(&group.spec, node))
    }

    /// Counts who is hot for how long; gives back the pressures that mean something.
    fn take_temperatures(&mut self, view: &View, now: Time) -> BTreeMap<NodeName, Pressure> {
        let fresh = self.fresh(view, now);
        for (name, machine) in &mut self.machines {
            let is_hot = fresh.get(name).is_some_and(|pressure| pressure.composite() >= TRIGGER);
            machine.hot_cycles = if is_hot { machine.hot_cycles.saturating_add(1) } else { 0 };
        }
        fresh
    }

    /// The load moves with the replica at once: the samples will follow, and until they do a relieved node must not be
    /// taken for a hot one.
    fn suppose_moved(&mut self, (src, leaves): (&NodeName, Pressure), (dst, comes): (&NodeName, Pressure)) {
        let less = |share: Share| Share::NONE.minus(share);
        if let Some(machine) = self.machines.get_mut(src) {
            machine.shift(Pressure { cpu: less(leaves.cpu), memory: less(leaves.memory) });
            machine.hot_cycles = 0;
        }
        if let Some(machine) = self.machines.get_mut(dst) {
            machine.shift(comes);
        }
    }

    fn forget_gone(&mut self, view: &View) {
        self.machines.retain(|name, _| view.fleet.by_name.contains_key(name));
        self.usage.retain(|subject, _| skips::exists(view, subject));
        self.told.forget_gone(view);
    }
}

/// When anything was last moved, by whichever leader.
fn last_move(view: &View) -> Option<Time> {
    view.groups.iter().flatten().flat_map(|group| &group.slots).filter_map(|slot| slot.moved_at).max()
}

#[cfg(test)]
pub(crate) mod stories;
