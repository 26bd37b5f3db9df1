//! When a scheduler pass runs, and what is done with its plan.
//!
//! Owns: the debounce, the wake-up a plan asks for, and the decision time.
//! Must not touch: the plan. It goes to the state machine unchanged.
//! Invariant: after every pass, every desired slot has a node or a reason.

use std::time::{Duration, Instant};

use longshore_model::{AfterDrain, Command, DrainOutcome, NodePlan, Plan, Time, rollout::RolloutChange};

use super::{Engine, Tick};
use crate::invariants;

/// Time without events before a pass, so that one pass decides about a burst of events.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Longest time a pass is put off, so that a steady stream of events cannot starve it.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// When the next pass is due.
#[derive(Debug, Default)]
pub(super) struct Debounce {
    first_event: Option<Time>,
    due: Option<Time>,
}

impl Engine<'_> {
    /// Schedules a pass after an event reached the view.
    pub(super) fn schedule_pass(&mut self) {
        let first = *self.debounce.first_event.get_or_insert(self.now);
        let due = self.now.after(DEBOUNCE).min(first.after(LONGEST_WAIT));
        if self.debounce.due != Some(due) {
            self.debounce.due = Some(due);
            self.queue.push_last(due, Tick::Pass);
        }
    }

    pub(super) fn pass_if_due(&mut self) {
        if self.debounce.due == Some(self.now) {
            self.pass();
        }
    }

    /// The safety pass. It is skipped when a debounced pass is due, so that a step at a whole minute is debounced like any
    /// other.
    pub(super) fn pass_unless_due(&mut self) {
        if self.debounce.due.is_none() {
            self.pass();
        }
    }

    pub(super) fn wake(&mut self) {
        if self.wake_at == Some(self.now) {
            self.pass();
        }
    }

    pub(super) fn pass(&mut self) {
        self.debounce = Debounce::default();
        self.wake_at = None;
        let clock = self.clock();
        let started = Instant::now();
        let plan = longshore_scheduler::plan(&mut self.view, self.state.index(), clock);
        self.stats.decided(started.elapsed());
        // Never the same instant: a plan that asks to be woken now would loop for ever.
        self.wake_at = plan.wake_at.map(|at| self.virtual_time(at).max(Time(self.now.0 + 1)));
        if let Some(at) = self.wake_at {
            self.queue.push_last(at, Tick::Wake);
        }
        if self.scenario.settle.is_some() {
            invariants::check_leader_change(&self.state, &plan, clock, &mut self.violations);
        }
        let needs_another_pass = self.needs_another_pass(&plan);
        if !plan.is_empty() {
            self.commit(plan);
        }
        if !needs_another_pass {
            invariants::check_settled(&self.state, clock, &mut self.violations);
        }
    }

    /// Checks a plan and commits it.
    pub(super) fn commit(&mut self, plan: Plan) {
        if invariants::quiet::is_a_change(&self.state, &plan) {
            self.last_plan = self.now;
        }
        invariants::check_decision(&self.state, &plan, self.now, &mut self.violations);
        self.submit(Command::Commit(Box::new(plan)));
    }

    /// Whether a plan changes its own input, so that only the next pass can settle the cluster: an aborted rollout puts the
    /// previous manifest into force, and a node that is removed takes its ended replicas with it.
    fn needs_another_pass(&self, plan: &Plan) -> bool {
        let leaves = |part: &NodePlan| match part {
            NodePlan::Drain { node, outcome: DrainOutcome::Done, .. } => {
                let drain = self.state.node(node).and_then(|node| node.drain.as_ref());
                drain.is_some_and(|drain| drain.then == AfterDrain::Remove)
            }
            NodePlan::Drain { .. } | NodePlan::Evacuation(_) | NodePlan::Forget { .. } => false,
        };
        let aborts = plan.deployments.iter().any(|part| matches!(part.change, RolloutChange::Abort(_)));
        aborts || plan.nodes.iter().any(leaves)
    }
}
