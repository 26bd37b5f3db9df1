//! Decides what runs where: [`View`] + now -> [`Plan`]. The only room that decides anything.
//!
//! Owns: filters, ranking, strategies, addresses, explanations.
//! Must not touch: clock, network, disk, store, randomness. All it knows came in as events.
//! Invariant: the same events give the same plan, and every replica is placed or explained.

use longshore_model::{Event, Explanation, GroupKey, Plan, SlotKey, StateIndex, Time};

/// Everything the scheduler knows, indexed for deciding.
#[derive(Default)]
pub struct View {}

impl View {
    /// Takes one change in. Cost: see `docs/adr`; never a rebuild.
    pub fn apply(&mut self, _event: &Event) {}
}

/// Decides everything that is due. The view is the same after as before: a plan takes effect through its events.
pub fn plan(_view: &mut View, made_from: StateIndex, now: Time) -> Plan {
    Plan { made_from, made_at: now, ..Plan::default() }
}

/// Why the unplaced slots of a group have no node, by the state of the view now; empty where all have one.
pub fn explain(_view: &mut View, _group: &GroupKey, _now: Time) -> Vec<(Vec<SlotKey>, Explanation)> {
    Vec::new()
}
