//! Observations: what agents report about replicas.
//!
//! Owns: observed states, the failure counts, and the release of a stopped generation.
//! Invariant: an observation of another generation, attempt or incarnation changes nothing.

use std::time::Duration;

use longshore_model::{
    Event, Generation, NodeName, Observation, ReplicaState, RuntimeCode, ServiceKind, ServiceSpec, Slot,
    replica::{DesiredState, Details, Replica, RestartHistory},
    service::RestartCondition,
};

use crate::{State, ended_replicas::is_job, state::Group, state_events::observed, status::is_live};

/// A run that clears the back-off: a process that dies every few seconds is not restarted at full speed for ever, although
/// each of its runs may be long enough to clear its failures.
const LONG_RUN: Duration = Duration::from_mins(10);

impl State {
    pub(crate) fn observe(&mut self, observation: &Observation) -> Vec<Event> {
        let mut events = Vec::new();
        let Some(group) = self.groups.get_mut(&observation.key.group) else {
            return events;
        };
        let spec = group.spec.clone();
        let Some(slot) = group.slots.get_mut(&observation.key.slot) else {
            return events;
        };
        let replaced_by = newest_desired(slot).filter(|newest| *newest > observation.key.generation);
        let Some(replica) = slot.replicas.iter_mut().find(|replica| replica.generation == observation.key.generation)
        else {
            return events;
        };
        if is_of_previous_incarnation(replica, observation) {
            return events;
        }
        match (replica.desired, observation.state) {
            // Any attempt counts here: an agent that was disconnected may have missed the latest one.
            (DesiredState::Stop, ReplicaState::Stopped) => {
                self.release(&observation.key, observation.at, &mut events);
            }
            // Other states of a stopping replica are ignored, so that it cannot appear live again.
            (DesiredState::Stop, _) => {}
            (DesiredState::Run, _) if replica.attempt != observation.attempt => {}
            (DesiredState::Run, _) if is_stale(replica, observation) => {}
            (DesiredState::Run, _) => {
                let node = replica.assignment.node.clone();
                let replica_kind = replica.assignment.reservation.kind;
                let was_lost = replica.state == ReplicaState::Lost;
                let effect = apply_observation(replica, normalised(observation, replica_kind, &spec), &spec);
                if effect == ObservationEffect::Unchanged {
                    return events;
                }
                if was_lost {
                    replica.replaced_by = replaced_by;
                }
                events.push(observed(&observation.key.group, &observation.key.slot, replica));
                if is_live(replica) {
                    // The replica reported again, so the slot no longer waits for a replacement.
                    slot.waiting = None;
                    slot.waiting_details = Details::new();
                }
                // A global replica has no other node to go to, so its failures do not count against the node.
                if effect == ObservationEffect::Failure && !spec.kind.is_per_node() {
                    events.push(count_failure(group, observation, node, self.config.faulty_window));
                }
            }
        }
        events
    }
}

/// The newest generation that should run.
fn newest_desired(slot: &Slot) -> Option<Generation> {
    slot.replicas.iter().rev().find(|replica| replica.desired == DesiredState::Run).map(|replica| replica.generation)
}

/// Whether the observation is of an earlier replica with the same key: a slot that was removed and opened again counts
/// its generations from one, as a node's own slot does when the node takes work again.
fn is_of_previous_incarnation(replica: &Replica, observation: &Observation) -> bool {
    observation.placed_at.is_some_and(|placed_at| placed_at != replica.assignment.placed_at)
}

/// Whether the observation is older than the recorded state. Agents resend everything when they reconnect: the end of
/// an attempt must not be counted twice, nor be undone by an earlier state. A replica that was given up while its
/// process runs can only go back to `Running`.
fn is_stale(replica: &Replica, observation: &Observation) -> bool {
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
    // Giving up changes the code and keeps the details.
    by_code || replica.details.contains_key("exit_code")
}

fn is_given_up(replica: &Replica) -> bool {
    replica.code == Some(RuntimeCode::RestartExhausted)
}

/// Records a failure of the service on the node, and drops failures older than `window`.
fn count_failure(group: &mut Group, seen: &Observation, node: NodeName, window: Duration) -> Event {
    let times = group.failures.entry(node.clone()).or_default();
    times.retain(|time| seen.at.since(*time) < window);
    times.push(seen.at);
    Event::FailureCounted { group: seen.key.group.clone(), node, at: seen.at }
}

/// The observation with its state adjusted. A stop that nobody requested is a failure. So is the completion of a
/// service, unless its restart policy accepts it; a job that completes has not failed.
fn normalised(observation: &Observation, kind: ServiceKind, spec: &ServiceSpec) -> Observation {
    let mut seen = observation.clone();
    let is_missed = !is_job(kind) && spec.restart.condition == RestartCondition::Any;
    if seen.state == ReplicaState::Stopped || (seen.state == ReplicaState::Completed && is_missed) {
        seen.state = ReplicaState::Failed;
        seen.code = seen.code.or(Some(RuntimeCode::Exited));
    }
    seen
}

/// What an observation changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ObservationEffect {
    Unchanged,
    Changed,
    Failure,
}

fn apply_observation(replica: &mut Replica, mut seen: Observation, spec: &ServiceSpec) -> ObservationEffect {
    let with_its_node = ended_with_its_node(replica, &seen);
    if with_its_node && spec.restart.condition == RestartCondition::None {
        seen.code = Some(RuntimeCode::NodeLost);
    }
    if (replica.state, replica.code, &replica.details) == (seen.state, seen.code, &seen.details) {
        return ObservationEffect::Unchanged;
    }
    let mut effect = ObservationEffect::Changed;
    if replica.state != seen.state {
        if counts_as_failure(seen.state) && !counts_as_failure(replica.state) {
            let own = !with_its_node && seen.code.is_none_or(RuntimeCode::is_own_fault);
            count_end(replica, &seen, spec, if own { Fault::Own } else { Fault::Foreign });
            effect = ObservationEffect::Failure;
        }
        let before = replica.before_loss.take().filter(|(state, _)| *state == seen.state);
        replica.since = before.map_or(seen.at, |(_, since)| since);
    }
    replica.state = seen.state;
    replica.code = seen.code;
    replica.details = seen.details;
    effect
}

/// Whether a replica of a lost node is reported as ended without a word on how: it ended with its node.
fn ended_with_its_node(replica: &Replica, seen: &Observation) -> bool {
    let lost = replica.state == ReplicaState::Lost && seen.state == ReplicaState::Failed;
    lost && !seen.details.contains_key("exit_code")
}

/// Whose fault the end of a replica is.
#[derive(Clone, Copy)]
enum Fault {
    Own,
    /// That of its node, engine or registry.
    Foreign,
}

/// Counts an end: against the restarts only if it was the replica's own fault, and for the back-off always.
fn count_end(replica: &mut Replica, seen: &Observation, spec: &ServiceSpec, fault: Fault) {
    let runs = replica.state == ReplicaState::Running;
    let ran = if runs { seen.at.since(replica.since) } else { Duration::ZERO };
    let earlier = if ran >= stable_run(spec) { 0 } else { replica.failures };
    replica.failures = match fault {
        Fault::Own => earlier.saturating_add(1),
        Fault::Foreign => earlier,
    };
    if ran >= LONG_RUN {
        replica.history = RestartHistory::default();
    }
    replica.history.ends = replica.history.ends.saturating_add(1).max(replica.failures);
}

/// How long a replica must have run for its earlier failures to be reset.
fn stable_run(spec: &ServiceSpec) -> Duration {
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
