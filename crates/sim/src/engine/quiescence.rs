//! The end of a run with `settle`: every node is healed, no more steps come, and the cluster must come to rest in time.
//!
//! Owns: what is healed, and when.
//! Must not touch: how the cluster reacts to it.
//! Invariant: after this, whatever still changes was decided by the cluster itself.

use std::time::Duration;

use longshore_model::{NodeName, Time};

use super::Engine;
use crate::invariants;

impl Engine<'_> {
    /// Heals the network and every node, runs on for `within`, and checks that nothing was decided in its last quarter.
    pub(super) fn heal_and_settle(&mut self, within: Duration) {
        let healed_at = self.now;
        self.heal_network();
        let nodes: Vec<NodeName> = self.virtual_nodes.keys().cloned().collect();
        for node in &nodes {
            self.boot(node);
            self.heal(node);
        }
        self.run_until(healed_at.after(within));
        let quiet_since = healed_at.after(within * 3 / 4);
        invariants::check_rest(&self.state, &self.virtual_nodes, self.now, &mut self.violations);
        if self.last_plan >= quiet_since {
            invariants::report_not_quiet(self.last_plan, self.now, &mut self.violations);
        }
    }

    pub(super) fn run_until(&mut self, until: Time) {
        while let Some((at, tick)) = self.queue.pop_until(until) {
            self.now = at;
            self.handle(tick);
            self.check_virtual_nodes();
        }
        self.now = until;
    }
}
