//! When the scheduler is asked, and what becomes of its answer.
//!
//! Owns: the debounce, the wake-up a plan asks for, and the time deciding takes.
//! Must not touch: the answer. It goes to the state machine as it is.
//! Invariant: after every pass, every slot that is wanted has a node or a reason.

use std::time::{Duration, Instant};

use longshore_model::{AfterDrain, Command, DrainOutcome, NodePlan, Plan, Time, rollout::RolloutChange};

use super::{Engine, Tick};
use crate::invariants;

/// Quiet time before a pass, so that what happens together is decided together.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Longest a pass is put off, so that a busy cluster is decided at all.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// When the next pass is due.
#[derive(Debug, Default)]
pub(super) struct Debounce {
    first_event: Option<Time>,
    due: Option<Time>,
}

impl Engine<'_> {
    /// Something reached the view: a pass is due soon.
    pub(super) fn arm(&mut self) {
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

    /// A pass for safety's sake. One that is due anyway is left alone, so that a step at a whole minute is debounced
    /// like any other.
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
        // Never the same instant again: a plan that asks to be woken now would be asked for ever.
        self.wake_at = plan.wake_at.map(|at| self.when_it_shows(at).max(Time(self.now.0 + 1)));
        if let Some(at) = self.wake_at {
            self.queue.push_last(at, Tick::Wake);
        }
        if self.scenario.settle.is_some() {
            invariants::check_succession(&self.state, &plan, clock, &mut self.violations);
        }
        let turned = self.changes_the_premises(&plan);
        if !plan.is_empty() {
            self.last_plan = self.now;
            invariants::check_decision(&self.state, &plan, self.now, &mut self.violations);
            self.tell(Command::Commit(Box::new(plan)));
        }
        if !turned {
            invariants::check_settled(&self.state, clock, &mut self.violations);
        }
    }

    /// Whether what a plan was made from is not what it leaves, so that only the next pass can settle it: a rollout that
    /// turns around brings another manifest into force, and a node that leaves for good takes along what had ended on it.
    fn changes_the_premises(&self, plan: &Plan) -> bool {
        let leaves = |part: &NodePlan| match part {
            NodePlan::Drain { node, outcome: DrainOutcome::Done, .. } => {
                let drain = self.state.node(node).and_then(|node| node.drain.as_ref());
                drain.is_some_and(|drain| drain.then == AfterDrain::Remove)
            }
            NodePlan::Drain { .. } | NodePlan::Evacuation(_) | NodePlan::Forget { .. } => false,
        };
        let turns = plan.deployments.iter().any(|part| matches!(part.change, RolloutChange::Abort(_)));
        turns || plan.nodes.iter().any(leaves)
    }
}
