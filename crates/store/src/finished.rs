//! Work that has ended: what counts as ended for good, and what is no longer kept of it.
//!
//! Owns: the record of a job's replicas that were collected, so that nobody runs them again.
//! Must not touch: when something is collected; the scheduler decides that.
//! Invariant: a replica is counted as collected once, when its slot is told to go.

use longshore_model::{
    Event, Generation, GroupKey, ReplicaState, RuntimeCode, ServiceKind, ServiceSpec, SlotKey,
    replica::{Collected, Ending, Replica, Wanted},
    service::RestartCondition,
};

use crate::{State, state::Group};

impl State {
    /// A job's replica that has ended is no longer kept. An item about anything else is stale, and so is one about work that
    /// is to be done again, from another spec or as a service: nobody would do it if it counted as done.
    pub(crate) fn collect(
        &mut self,
        key: &GroupKey,
        slot_key: &SlotKey,
        generation: Generation,
        events: &mut Vec<Event>,
    ) {
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        let slot = group.slots.get(slot_key).filter(|slot| slot.wanted == Wanted::Run && slot.newest == generation);
        let newest = slot.and_then(|slot| slot.replicas.last()).filter(|replica| is_asked_for(group, replica));
        let Some(ending) = newest.and_then(|replica| ending(&group.spec, replica)) else {
            return;
        };
        match ending {
            Ending::Completed => group.collected.completed += 1,
            Ending::Failed => group.collected.failed += 1,
        }
        if let SlotKey::Node(node) = slot_key {
            group.collected.nodes.insert(node.clone(), ending);
        }
        events.push(told(key, group));
        self.close(key, slot_key, events);
    }
}

/// Whether a generation is a job's, and of the job as it is asked for now.
fn is_asked_for(group: &Group, replica: &Replica) -> bool {
    let (terms, spec) = (&replica.assignment.terms, &group.spec);
    let made = (&terms.spec_hash, terms.kind, terms.restart_epoch);
    is_job(terms.kind) && made == (&spec.spec_hash, spec.kind, group.restart_epoch)
}

/// A job whose spec changed starts from nothing.
pub(crate) fn run_again(key: &GroupKey, group: &mut Group, spec: &ServiceSpec) -> Option<Event> {
    let another = (&group.spec.spec_hash, group.spec.kind) != (&spec.spec_hash, spec.kind);
    if !another || group.collected == Collected::default() {
        return None;
    }
    group.collected = Collected::default();
    Some(told(key, group))
}

/// What was given up may be tried again.
pub(crate) fn forgive(key: &GroupKey, group: &mut Group) -> Option<Event> {
    if group.collected.failed == 0 {
        return None;
    }
    group.collected.failed = 0;
    group.collected.nodes.retain(|_, ending| *ending == Ending::Completed);
    Some(told(key, group))
}

fn told(key: &GroupKey, group: &Group) -> Event {
    Event::Collected { group: key.clone(), collected: group.collected.clone() }
}

/// How a generation ended, if nothing starts it again by itself.
pub(crate) fn ending(spec: &ServiceSpec, replica: &Replica) -> Option<Ending> {
    match replica.state {
        ReplicaState::Completed => {
            let stays_ended = is_job(replica.assignment.terms.kind) || spec.restart.condition != RestartCondition::Any;
            stays_ended.then_some(Ending::Completed)
        }
        ReplicaState::Failed => {
            let given_up = replica.code == Some(RuntimeCode::RestartExhausted);
            (given_up || spec.restart.condition == RestartCondition::None).then_some(Ending::Failed)
        }
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Degraded
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Lost => None,
    }
}

/// Whether a job's generation failed, so that nothing of it is at work wherever it is.
pub(crate) fn is_at_rest(replica: &Replica) -> bool {
    is_job(replica.assignment.terms.kind) && replica.state == ReplicaState::Failed
}

pub(crate) const fn is_job(kind: ServiceKind) -> bool {
    match kind {
        ServiceKind::Batch | ServiceKind::Sysbatch => true,
        ServiceKind::Service | ServiceKind::System => false,
    }
}
