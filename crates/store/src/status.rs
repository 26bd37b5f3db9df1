//! The status of a deployment and the reasons for it.
//!
//! Owns: which combination of replica states gives which deployment status.
//! Must not touch: why a replica is in its state; the reasons are only collected here.
//! Invariant: `active` means that every slot is running and no replica is stopping.

use std::collections::BTreeSet;

use longshore_model::{
    DeploymentName, DeploymentStatus, GroupKey, NamespaceName, ReplicaState, RolloutState, RuntimeCode, ServiceSpec,
    Slot, SlotKey,
    replica::{DesiredState, Replica},
    rollout::StepOutcome,
};

use crate::{
    State,
    conflicts::runs_per_node,
    ended_replicas,
    state::{Deployment, Group},
};

/// A deployment's status and the reasons for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusReport {
    /// The status.
    pub status: DeploymentStatus,
    /// The codes, or states of replicas without a code, that keep it from being active, deduplicated and sorted.
    pub reasons: Vec<&'static str>,
}

/// The replica whose step a rollout waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedReplica {
    /// Its service.
    pub group: GroupKey,
    /// Its slot.
    pub slot: SlotKey,
    /// Its code, or its state if it has no code.
    pub code: &'static str,
}

/// Whether a generation should run and is in a live state.
pub fn is_live(replica: &Replica) -> bool {
    replica.desired.is_live(replica.state)
}

impl State {
    /// The status of a deployment, or `None` if there is no such deployment.
    pub fn status(&self, namespace: &NamespaceName, name: &DeploymentName) -> Option<StatusReport> {
        let deployment = self.deployment(namespace, name)?;
        let mut counts = StatusCounts::default();
        for (_, group) in self.groups_of(namespace, name) {
            counts.count_group(group);
        }
        counts.count_rollout(deployment);
        if deployment.desired == DesiredState::Stop {
            return Some(StatusReport { status: DeploymentStatus::Progressing, reasons: vec!["removing"] });
        }
        if deployment.is_stopped() {
            return Some(self.stopped_status(namespace, name));
        }
        Some(StatusReport { status: counts.status(), reasons: counts.reasons.into_iter().collect() })
    }
}

impl State {
    /// The status of a stopped deployment: `stopped` once none of its replicas is left that an agent still has to stop.
    fn stopped_status(&self, namespace: &NamespaceName, name: &DeploymentName) -> StatusReport {
        let slots = self.groups_of(namespace, name).flat_map(|(_, group)| group.slots.values());
        let mut replicas = slots.flat_map(|slot| &slot.replicas);
        let runs = |replica: &Replica| match replica.desired {
            DesiredState::Run => replica.state != ReplicaState::Completed,
            DesiredState::Stop => is_stopping(replica),
        };
        if replicas.any(runs) {
            StatusReport { status: DeploymentStatus::Progressing, reasons: vec!["stopping"] }
        } else {
            StatusReport { status: DeploymentStatus::Stopped, reasons: Vec::new() }
        }
    }

    /// The replica that the live rollout waits for: the first whose step is under way, preferring one that is not
    /// running yet. `None` if no step is under way; the next step may then lack capacity, which only the scheduler
    /// knows.
    pub fn rollout_waits_for(&self, namespace: &NamespaceName, name: &DeploymentName) -> Option<AwaitedReplica> {
        let known = self.deployment(namespace, name).filter(|known| !known.is_stopped())?;
        let rollout = known.rollout.as_ref().filter(|rollout| rollout.is_live())?;
        let under_way = |slot: &&Slot| {
            let step = slot.step.filter(|step| step.rollout == rollout.number);
            slot.desired == DesiredState::Run && step.is_some_and(|step| step.outcome == StepOutcome::UnderWay)
        };
        let running = ReplicaState::Running.as_str();
        let slots = self.groups_of(namespace, name).filter(|(_, group)| group.desired == DesiredState::Run);
        let slots = slots.flat_map(|(key, group)| group.slots.values().filter(under_way).map(move |slot| (key, slot)));
        let (key, slot) = slots.min_by_key(|(_, slot)| slot_code(slot) == running)?;
        Some(AwaitedReplica { group: key.clone(), slot: slot.key.clone(), code: slot_code(slot) })
    }
}

/// The code or state of a slot's newest live generation, else the reason why the slot waits.
fn slot_code(slot: &Slot) -> &'static str {
    let last = slot.replicas.iter().max_by_key(|replica| (is_live(replica), replica.generation));
    match (last, slot.waiting) {
        (Some(replica), _) if is_live(replica) => replica.code.map_or(replica.state.as_str(), RuntimeCode::code),
        (_, Some(reason)) => reason.code(),
        (Some(replica), None) => replica.state.as_str(),
        (None, None) => ReplicaState::Pending.as_str(),
    }
}

/// Whether a replica is being stopped. A lost one does not count: its node may never report again.
fn is_stopping(replica: &Replica) -> bool {
    replica.desired == DesiredState::Stop && replica.state != ReplicaState::Lost
}

/// Slots of a deployment by state.
#[derive(Default)]
struct StatusCounts {
    running: usize,
    starting: usize,
    unplaced: usize,
    failed: usize,
    exhausted: usize,
    completed: usize,
    lingering: usize,
    unseen: usize,
    undecided: usize,
    reasons: BTreeSet<&'static str>,
}

impl StatusCounts {
    /// A rollout that has not ended keeps its deployment from being active.
    fn count_rollout(&mut self, deployment: &Deployment) {
        let state = deployment.rollout.as_ref().map(|rollout| rollout.state);
        let reason = match state {
            Some(RolloutState::InProgress) => "rollout_in_progress",
            Some(RolloutState::Paused) => "rollout_paused",
            Some(RolloutState::AwaitingPromotion) => "rollout_awaiting_promotion",
            Some(RolloutState::Aborted) => "rollout_aborted",
            Some(RolloutState::Completed | RolloutState::RolledBack | RolloutState::Superseded) | None => return,
        };
        self.undecided += 1;
        self.reasons.insert(reason);
    }

    fn count_group(&mut self, group: &Group) {
        let open: Vec<&Slot> = group.slots.values().filter(|slot| slot.desired == DesiredState::Run).collect();
        let closing = group.slots.values().filter(|slot| slot.desired == DesiredState::Stop);
        self.lingering += closing.filter(|slot| slot.replicas.iter().any(is_stopping)).count();
        if group.desired == DesiredState::Run && !runs_per_node(&group.spec) {
            let done = group.collected.total();
            self.undecided += open.len().abs_diff(group.spec.replicas.saturating_sub(done) as usize);
        }
        if group.desired == DesiredState::Run {
            self.completed += group.collected.completed as usize;
            self.exhausted += group.collected.failed as usize;
        }
        for slot in open {
            self.count_slot(slot, &group.spec);
        }
    }

    fn count_slot(&mut self, slot: &Slot, spec: &ServiceSpec) {
        let live = slot.replicas.iter().filter(|replica| is_live(replica));
        self.lingering += slot.replicas.iter().filter(|replica| is_stopping(replica)).count();
        match live.max_by_key(|replica| replica.generation) {
            Some(replica) => {
                self.count_replica(replica, spec);
                // An older generation that still runs after a failed step serves requests.
                let older = |other: &&Replica| other.generation < replica.generation && is_live(other);
                let serving = slot.replicas.iter().filter(older);
                self.running += serving.filter(|other| other.state == ReplicaState::Running).count().min(1);
            }
            None => match slot.waiting {
                Some(reason) => {
                    self.unplaced += 1;
                    self.reasons.insert(reason.code());
                }
                None if slot.replicas.is_empty() => self.undecided += 1,
                None => {
                    self.unplaced += 1;
                    self.reasons.insert(RuntimeCode::NodeLost.code());
                }
            },
        }
    }

    fn count_replica(&mut self, replica: &Replica, spec: &ServiceSpec) {
        match replica.state {
            ReplicaState::Running => self.running += 1,
            ReplicaState::Completed => self.completed += 1,
            ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Starting => self.starting += 1,
            // One that will return by itself has exhausted its restarts for now.
            ReplicaState::Failed
                if replica.code == Some(RuntimeCode::RestartExhausted)
                    || ended_replicas::terminal_outcome(spec, replica).is_some() =>
            {
                self.exhausted += 1;
            }
            ReplicaState::Failed
            | ReplicaState::Degraded
            | ReplicaState::Draining
            | ReplicaState::Stopped
            | ReplicaState::Lost => self.failed += 1,
        }
        let unseen = replica.code == Some(RuntimeCode::EngineUnreachable);
        self.unseen += usize::from(unseen);
        if unseen || !matches!(replica.state, ReplicaState::Running | ReplicaState::Completed) {
            self.reasons.insert(replica.code.map_or(replica.state.as_str(), RuntimeCode::code));
        }
    }

    fn status(&self) -> DeploymentStatus {
        let trouble = self.unplaced + self.failed + self.exhausted + self.unseen;
        let under_way = self.starting + self.lingering + self.undecided;
        let ended = self.completed + self.exhausted;
        if self.running + self.starting + self.unplaced + self.failed == 0 && self.exhausted > 0 {
            DeploymentStatus::Failed
        } else if self.running == 0 && self.unplaced > 0 {
            DeploymentStatus::Pending
        } else if self.running + self.completed > 0 && trouble > 0 {
            DeploymentStatus::Degraded
        } else if trouble + under_way > 0 {
            DeploymentStatus::Progressing
        } else if ended > 0 && self.running == 0 {
            DeploymentStatus::Completed
        } else {
            DeploymentStatus::Active
        }
    }
}
