//! A new leader takes over.
//!
//! Owns: what is lost with the old leader: its view, its count of missed heartbeats, the load samples, the scheduled pass.
//! Must not touch: the state, which is all the new leader has.

use longshore_scheduler::rebalance::Rebalancer;

use super::{Engine, passes::Debounce};
use crate::invariants::view_from_state;

impl Engine<'_> {
    /// Rebuilds the view from the state. What else a leader keeps (heartbeats, load, the scheduled pass) stays: it is not
    /// in the state, and a run without it would take another course.
    pub(super) fn rebuild_view(&mut self) {
        self.view = view_from_state(&self.state);
    }

    pub(super) fn change_leader(&mut self) {
        self.rebuild_view();
        self.rebalancer = Rebalancer::new(self.clock());
        for virtual_node in self.virtual_nodes.values_mut() {
            virtual_node.reset_missed_heartbeats();
        }
        self.debounce = Debounce::default();
        self.wake_at = None;
        self.timeline.leader_changed(self.now);
        self.schedule_pass();
    }
}
