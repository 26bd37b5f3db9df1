//! The end of a run that must come to rest: every machine is on and heard of, nothing happens any more, and what is left
//! to do must get done.
//!
//! Owns: what is mended when the time has come.
//! Must not touch: what the cluster makes of it.
//! Invariant: after this, whatever still changes was decided by the cluster itself.

use std::time::Duration;

use longshore_model::{NodeName, Time};

use super::Engine;
use crate::invariants;

impl Engine<'_> {
    /// Mends everything, waits, and looks at what has become of it.
    pub(super) fn come_to_rest(&mut self, within: Duration) {
        let mended = self.now;
        self.mend_network();
        let nodes: Vec<NodeName> = self.machines.keys().cloned().collect();
        for node in &nodes {
            self.boot(node);
            self.heal(node);
        }
        self.run_until(mended.after(within));
        let quiet_since = mended.after(within * 3 / 4);
        invariants::check_rest(&self.state, &self.machines, self.now, &mut self.violations);
        if self.last_plan >= quiet_since {
            invariants::not_quiet(self.last_plan, self.now, &mut self.violations);
        }
    }

    pub(super) fn run_until(&mut self, until: Time) {
        while let Some((at, tick)) = self.queue.pop_until(until) {
            self.now = at;
            self.happen(tick);
            self.check_machines();
        }
        self.now = until;
    }
}
