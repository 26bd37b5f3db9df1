//! What agents saw.
//!
//! Owns: observed states, the failure count, and the end of a generation that was told to stop.
//! Invariant: an observation of another generation, attempt or life changes nothing.

use std::time::Duration;

use longshore_model::{
    Event, Generation, NodeName, Observation, ReplicaState, RuntimeCode, ServiceKind, ServiceSpec, Slot,
    replica::{Details, Replica, Wanted},
    service::RestartCondition,
};

use crate::{State, finished::is_job, replay::observed, state::Group, status::is_live};

impl State {
    pub(crate) fn observe(&mut self, observation: Observation) -> Vec<Event> {
        let mut events = Vec::new();
        let Some(group) = self.groups.get_mut(&observation.group) else {
            return events;
        };
        let spec = group.spec.clone();
        let Some(slot) = group.slots.get_mut(&observation.slot) else {
            return events;
        };
        let rival = newest_wanted(slot).filter(|newest| *newest > observation.generation);
        let Some(replica) = slot.replicas.iter_mut().find(|replica| replica.generation == observation.generation)
        else {
            return events;
        };
        if is_of_a_former_life(replica, &observation) {
            return events;
        }
        match (replica.wanted, observation.state) {
            // It must stop whichever attempt the agent last heard of: a machine that was away may have missed one.
            (Wanted::Stop, ReplicaState::Stopped) => {
                let Observation { group, slot, generation, at, .. } = observation;
                self.release(&group, &slot, generation, at, &mut events);
            }
            // What it does until then no longer matters, and must not look like life.
            (Wanted::Stop, _) => {}
            (Wanted::Run, _) if replica.attempt != observation.attempt => {}
            (Wanted::Run, _) if is_old_news(replica, &observation) => {}
            (Wanted::Run, _) => {
                let node = replica.assignment.node.clone();
                let replica_kind = replica.assignment.terms.kind;
                let was_lost = replica.state == ReplicaState::Lost;
                let news = take_in(replica, as_it_counts(&observation, replica_kind, &spec), &spec);
                if news == News::None {
                    return events;
                }
                if was_lost {
                    replica.rival = rival;
                }
                events.push(observed(&observation.group, &observation.slot, replica));
                if is_live(replica) {
                    // It was heard of: whatever it waited for while it was lost, it waits no longer.
                    slot.waiting = None;
                    slot.waiting_details = Details::new();
                }
                // A global replica has nowhere else to go: its failures say nothing about where to place the service.
                if news == News::Failure && !spec.kind.is_per_node() {
                    events.push(count_failure(group, &observation, node, self.config.faulty_window));
                }
            }
        }
        events
    }
}

/// The newest generation that shall run.
fn newest_wanted(slot: &Slot) -> Option<Generation> {
    slot.replicas.iter().rev().find(|replica| replica.wanted == Wanted::Run).map(|replica| replica.generation)
}

/// Whether it is about a replica that bore the same numbers before: a slot that has gone counts from one when it is opened
/// anew, as a node's own does when the node takes work again.
fn is_of_a_former_life(replica: &Replica, observation: &Observation) -> bool {
    observation.placed_at.is_some_and(|placed_at| placed_at != replica.assignment.placed_at)
}

/// Whether it was sent before what is known already. An attempt that has ended is over, and agents say everything again
/// whenever they connect: the end must not be counted twice, nor undone by what came before it. What was given up while
/// its process goes on can only recover.
fn is_old_news(replica: &Replica, observation: &Observation) -> bool {
    match replica.state {
        ReplicaState::Completed => true,
        ReplicaState::Failed => {
            has_exited(replica) || is_given_up(replica) && observation.state != ReplicaState::Running
        }
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Degraded
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Lost => false,
    }
}

fn has_exited(replica: &Replica) -> bool {
    let by_code = matches!(replica.code, Some(RuntimeCode::Exited | RuntimeCode::OomKilled));
    // Giving up changes the code and keeps the particulars.
    by_code || replica.details.contains_key("exit_code")
}

fn is_given_up(replica: &Replica) -> bool {
    replica.code == Some(RuntimeCode::RestartExhausted)
}

/// Notes that the service failed on the node, and forgets what happened too long ago to matter.
fn count_failure(group: &mut Group, seen: &Observation, node: NodeName, window: Duration) -> Event {
    let times = group.failures.entry(node.clone()).or_default();
    times.retain(|time| seen.at.since(*time) < window);
    times.push(seen.at);
    Event::FailureCounted { group: seen.group.clone(), node, at: seen.at }
}

/// What was seen, as it counts. Nobody asked it to stop, so that it has stopped is a failure. A service that ends has
/// failed, however politely, unless its policy is content with a good end; a job that ends well has not.
fn as_it_counts(observation: &Observation, kind: ServiceKind, spec: &ServiceSpec) -> Observation {
    let mut seen = observation.clone();
    let is_missed = !is_job(kind) && spec.restart.condition == RestartCondition::Any;
    if seen.state == ReplicaState::Stopped || (seen.state == ReplicaState::Completed && is_missed) {
        seen.state = ReplicaState::Failed;
        seen.code = seen.code.or(Some(RuntimeCode::Exited));
    }
    seen
}

/// What an observation adds to what was known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum News {
    None,
    Change,
    Failure,
}

fn take_in(replica: &mut Replica, seen: Observation, spec: &ServiceSpec) -> News {
    if (replica.state, replica.code, &replica.details) == (seen.state, seen.code, &seen.details) {
        return News::None;
    }
    let mut news = News::Change;
    if replica.state != seen.state {
        if counts_as_failure(seen.state) && !counts_as_failure(replica.state) {
            let well = replica.state == ReplicaState::Running && seen.at.since(replica.since) >= good_run(spec);
            replica.failures = if well { 1 } else { replica.failures + 1 };
            news = News::Failure;
        }
        let before = replica.before_loss.take().filter(|(state, _)| *state == seen.state);
        replica.since = before.map_or(seen.at, |(_, since)| since);
    }
    replica.state = seen.state;
    replica.code = seen.code;
    replica.details = seen.details;
    news
}

/// How long it must have run for earlier failures to be forgiven.
fn good_run(spec: &ServiceSpec) -> Duration {
    spec.restart.window.unwrap_or(spec.update.monitor)
}

const fn counts_as_failure(state: ReplicaState) -> bool {
    match state {
        ReplicaState::Failed | ReplicaState::Degraded => true,
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Completed
        | ReplicaState::Lost => false,
    }
}
