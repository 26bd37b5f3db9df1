//! What would become of a state, if everything that is started starts and everything that is told to stop stops.
//!
//! The real scheduler and the real state machine decide on a copy, under a clock that leaps from one thing to do to the
//! next. Nodes are the only pretence: they do at once what they are told.
//!
//! Owns: that pretence, and when there is nothing more to see. Must not touch: the state it was given.
//! Invariant: the same state and time give the same future; a plan made here is the plan the leader would make.

use std::time::Duration;

use longshore_api::Rest;
use longshore_model::{
    Command, Health, Observation, ReplicaState, RolloutState, Time,
    replica::{Details, Replica, Wanted},
};
use longshore_scheduler::View;
use longshore_store::{CommandError, State, recheck};

use crate::leader::view_of;

/// Looked ahead at most. Longer pauses are the manifest's own wish, and nobody waits for the answer that long.
const HORIZON: Duration = Duration::from_hours(6);
/// Once nothing has happened for so long, nothing will but the tidying up of what has ended.
const QUIET: Duration = Duration::from_mins(15);
/// Passes at most, so that no manifest can keep a daemon busy by asking.
const MOST_PASSES: usize = 20_000;

/// A state to come.
pub(crate) struct Future {
    pub(crate) state: State,
    pub(crate) at: Time,
    pub(crate) rest: Rest,
}

/// Does what is supposed, and plays on until nothing more would happen.
pub(crate) fn after(present: &State, supposed: Vec<Command>, now: Time) -> Result<Future, CommandError> {
    let mut play = Play { state: present.clone(), view: view_of(present), at: now };
    for command in supposed {
        play.state.admits(&command)?;
        play.tell(command)?;
    }
    let rest = play.play_on(now);
    Ok(Future { state: play.state, at: play.at, rest })
}

struct Play {
    state: State,
    view: View,
    at: Time,
}

impl Play {
    fn tell(&mut self, command: Command) -> Result<(), CommandError> {
        let events = self.state.apply(command)?;
        for event in &events {
            self.view.apply(event);
        }
        Ok(())
    }

    fn play_on(&mut self, began: Time) -> Rest {
        let mut last_event = began;
        for _ in 0..MOST_PASSES {
            let mut plan = longshore_scheduler::plan(&mut self.view, self.state.index(), self.at);
            let wake = plan.wake_at;
            let decided = !plan.is_empty();
            if decided {
                recheck::recheck(&self.state, &mut plan);
                // A plan is never refused, only dropped in part.
                let _ = self.tell(Command::Commit(Box::new(plan)));
            }
            let seen = self.seen();
            if decided || !seen.is_empty() {
                last_event = self.at;
            }
            let acted = !seen.is_empty();
            for observation in seen {
                let _ = self.tell(Command::Observe(observation));
            }
            if decided || acted {
                continue;
            }
            match wake.filter(|at| *at > self.at && at.since(last_event) <= QUIET) {
                Some(at) if at.since(began) > HORIZON => return Rest::TooFar,
                Some(at) => self.at = at,
                None => return self.at_rest(),
            }
        }
        Rest::TooFar
    }

    /// What every node would say now.
    fn seen(&self) -> Vec<Observation> {
        let all = self.state.replicas().filter_map(|(group, slot, replica)| {
            let node = self.state.node(&replica.assignment.node)?;
            let heard_of = matches!(node.health, Health::Ready | Health::Degraded);
            let state = heard_of.then(|| next(replica)).flatten()?;
            Some(Observation {
                group: group.clone(),
                slot: slot.key.clone(),
                generation: replica.generation,
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

    fn at_rest(&self) -> Rest {
        let held = self.state.deployments().any(|(_, _, deployment)| {
            let state = deployment.rollout.as_ref().map(|rollout| rollout.state);
            matches!(state, Some(RolloutState::Paused | RolloutState::AwaitingPromotion))
        });
        if held { Rest::Held } else { Rest::Reached }
    }
}

/// What a replica would be seen doing next; nothing where it does that already.
fn next(replica: &Replica) -> Option<ReplicaState> {
    let is_job = replica.assignment.terms.kind.is_job();
    match replica.wanted {
        Wanted::Stop => (replica.state != ReplicaState::Stopped).then_some(ReplicaState::Stopped),
        Wanted::Run => match replica.state {
            ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Starting => Some(ReplicaState::Running),
            ReplicaState::Running => is_job.then_some(ReplicaState::Completed),
            // What does badly is left to do badly: whether it mends is not for us to say.
            ReplicaState::Degraded
            | ReplicaState::Draining
            | ReplicaState::Stopped
            | ReplicaState::Failed
            | ReplicaState::Completed
            | ReplicaState::Lost => None,
        },
    }
}
