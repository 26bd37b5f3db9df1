//! Dry run (`plan`, `whatif`): what a state would become if every start and every stop succeeded at once.
//!
//! The real scheduler and the real state machine work on a copy, with a clock that jumps to the next wake-up. Only the
//! nodes are simulated: they do at once what they are told.
//!
//! Owns: the simulated nodes, and when the simulation ends; `plan_diff` compares the result. Must not touch: the given
//! state.
//! Invariant: the same state and time give the same result, and its plans are those the leader would make.

pub(crate) mod plan_diff;

use std::time::Duration;

use longshore_api::Convergence;
use longshore_model::{
    Command, Health, Observation, ReplicaState, RolloutState, Time,
    replica::{DesiredState, Details, Replica},
};
use longshore_scheduler::View;
use longshore_store::{CommandError, State, plan_check};

use crate::control::leader::view_of;

/// Longest simulated time. Longer pauses are configured by the manifest, and nobody waits for them in a dry run.
const HORIZON: Duration = Duration::from_hours(6);
/// Simulated time without an event after which only garbage collection would follow.
const QUIET_TIME: Duration = Duration::from_mins(15);
/// Passes at most, so that no manifest can occupy a daemon.
const MAX_PASSES: usize = 20_000;

/// Replicas that a dry run may add to those of the cluster.
const MAX_SIMULATED_REPLICAS: u64 = 100_000;

/// The state at the end of a dry run.
pub(crate) struct SimulatedState {
    pub(crate) state: State,
    pub(crate) at: Time,
    pub(crate) convergence: Convergence,
}

/// Applies the commands and simulates until nothing more would happen.
pub(crate) fn simulate(present: &State, commands: Vec<Command>, now: Time) -> Result<SimulatedState, CommandError> {
    let before = present.desired_replicas();
    let mut simulation = Simulation { state: present.clone(), view: view_of(present), at: now };
    for command in commands {
        simulation.state.admits(&command)?;
        simulation.apply(command)?;
    }
    // More than the cluster has is asked of a copy that a caller with the role `view` pays nothing for.
    let (asked, limit) = (simulation.state.desired_replicas(), before.saturating_add(MAX_SIMULATED_REPLICAS));
    if asked > limit {
        return Err(CommandError::TooManyForCluster { asked, limit });
    }
    let convergence = simulation.run(now);
    Ok(SimulatedState { state: simulation.state, at: simulation.at, convergence })
}

struct Simulation {
    state: State,
    view: View,
    at: Time,
}

impl Simulation {
    fn apply(&mut self, command: Command) -> Result<(), CommandError> {
        let events = self.state.apply(command)?;
        for event in &events {
            self.view.apply(event);
        }
        Ok(())
    }

    fn run(&mut self, began: Time) -> Convergence {
        let mut last_event = began;
        for _ in 0..MAX_PASSES {
            let mut plan = longshore_scheduler::plan(&mut self.view, self.state.index(), self.at);
            let wake = plan.wake_at;
            let decided = !plan.is_empty();
            if decided {
                plan_check::drop_stale_placements(&self.state, &mut plan);
                // A plan is never refused; parts of it may be dropped.
                let _ = self.apply(Command::Commit(Box::new(plan)));
            }
            let seen = self.observations();
            if decided || !seen.is_empty() {
                last_event = self.at;
            }
            let acted = !seen.is_empty();
            for observation in seen {
                let _ = self.apply(Command::Observe(observation));
            }
            if decided || acted {
                continue;
            }
            match wake.filter(|at| *at > self.at && at.since(last_event) <= QUIET_TIME) {
                Some(at) if at.since(began) > HORIZON => return Convergence::HorizonExceeded,
                Some(at) => self.at = at,
                None => return self.convergence_now(),
            }
        }
        Convergence::HorizonExceeded
    }

    /// What every reachable node would report now.
    fn observations(&self) -> Vec<Observation> {
        let all = self.state.replicas().filter_map(|(group, slot, replica)| {
            let node = self.state.node(&replica.assignment.node)?;
            let is_reachable = matches!(node.health, Health::Ready | Health::Degraded);
            let state = is_reachable.then(|| next(replica)).flatten()?;
            Some(Observation {
                key: group.replica(&slot.key, replica.generation),
                attempt: replica.attempt,
                placed_at: Some(replica.assignment.placed_at),
                state,
                code: None,
                details: Details::new(),
                at: self.at,
            })
        });
        all.collect()
    }

    fn convergence_now(&self) -> Convergence {
        let is_held = self.state.deployments().any(|(_, _, deployment)| {
            let state = deployment.rollout.as_ref().map(|rollout| rollout.state);
            matches!(state, Some(RolloutState::Paused | RolloutState::AwaitingPromotion))
        });
        if is_held { Convergence::Waiting } else { Convergence::Converged }
    }
}

/// The next state of a replica; `None` if it stays as it is.
fn next(replica: &Replica) -> Option<ReplicaState> {
    let is_job = replica.assignment.reservation.kind.is_job();
    match replica.desired {
        DesiredState::Stop => (replica.state != ReplicaState::Stopped).then_some(ReplicaState::Stopped),
        DesiredState::Run => match replica.state {
            ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Starting => Some(ReplicaState::Running),
            ReplicaState::Running => is_job.then_some(ReplicaState::Completed),
            // A replica in trouble stays in trouble: a dry run cannot know whether it recovers.
            ReplicaState::Degraded
            | ReplicaState::Draining
            | ReplicaState::Stopped
            | ReplicaState::Failed
            | ReplicaState::Completed
            | ReplicaState::Lost => None,
        },
    }
}
