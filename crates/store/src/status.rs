//! How a deployment does, in one word and with the reasons.
//!
//! Owns: which mixture of replica states makes which deployment state.
//! Must not touch: why a replica is where it is; the reasons are only collected here.
//! Invariant: `active` is said only when every slot is seen running and none lingers.

use std::collections::BTreeSet;

use longshore_model::{
    DeploymentName, DeploymentStatus, GroupKey, NamespaceName, ReplicaState, RolloutState, RuntimeCode, ServiceSpec,
    Slot, SlotKey,
    replica::{Replica, Wanted},
    rollout::StepOutcome,
};

use crate::{
    State,
    conflicts::runs_per_node,
    finished,
    state::{Deployment, Group},
};

/// A deployment's state and what makes it so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusReport {
    /// The word.
    pub status: DeploymentStatus,
    /// Codes, or states where there is no code, that keep it from being active; each once, in order.
    pub reasons: Vec<&'static str>,
}

/// A replica whose step a rollout waits for, and what it does: its code, or its state where it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// Its service.
    pub group: GroupKey,
    /// Which.
    pub slot: SlotKey,
    /// The word.
    pub code: &'static str,
}

/// Whether a generation can be counted on.
pub fn is_live(replica: &Replica) -> bool {
    replica.wanted.is_live(replica.state)
}

impl State {
    /// How a deployment does; `None` where there is none.
    pub fn status(&self, namespace: &NamespaceName, name: &DeploymentName) -> Option<StatusReport> {
        let deployment = self.deployment(namespace, name)?;
        let mut tally = Tally::default();
        for (_, group) in self.groups_of(namespace, name) {
            tally.count_group(group);
        }
        tally.count_rollout(deployment);
        if deployment.wanted == Wanted::Stop {
            return Some(StatusReport { status: DeploymentStatus::Progressing, reasons: vec!["removing"] });
        }
        Some(StatusReport { status: tally.status(), reasons: tally.reasons.into_iter().collect() })
    }
}

impl State {
    /// The replica that the rollout under way waits for: the first whose step has begun and not ended, and of those one that does
    /// not run before one that is only watched. `None` where no step has begun: the next may have no room, which is not the
    /// state's to know.
    pub fn rollout_waits_for(&self, namespace: &NamespaceName, name: &DeploymentName) -> Option<Awaited> {
        let rollout = self.deployment(namespace, name)?.rollout.as_ref().filter(|rollout| rollout.is_live())?;
        let under_way = |slot: &&Slot| {
            let step = slot.step.filter(|step| step.rollout == rollout.number);
            slot.wanted == Wanted::Run && step.is_some_and(|step| step.outcome == StepOutcome::UnderWay)
        };
        let running = ReplicaState::Running.as_str();
        let slots = self.groups_of(namespace, name).filter(|(_, group)| group.wanted == Wanted::Run);
        let slots = slots.flat_map(|(key, group)| group.slots.values().filter(under_way).map(move |slot| (key, slot)));
        let (key, slot) = slots.min_by_key(|(_, slot)| does(slot) == running)?;
        Some(Awaited { group: key.clone(), slot: slot.key.clone(), code: does(slot) })
    }
}

/// What a slot does, by its last word.
fn does(slot: &Slot) -> &'static str {
    let last = slot.replicas.iter().max_by_key(|replica| (is_live(replica), replica.generation));
    match (last, slot.waiting) {
        (Some(replica), _) if is_live(replica) => replica.code.map_or(replica.state.as_str(), RuntimeCode::code),
        (_, Some(reason)) => reason.code(),
        (Some(replica), None) => replica.state.as_str(),
        (None, None) => ReplicaState::Pending.as_str(),
    }
}

/// Told to stop and about to. What is lost with its node is waited for by nobody: it may never be heard of again.
fn lingers(replica: &Replica) -> bool {
    replica.wanted == Wanted::Stop && replica.state != ReplicaState::Lost
}

/// Slots of a deployment by what they do.
#[derive(Default)]
struct Tally {
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

impl Tally {
    /// A change that has not ended keeps a deployment from being converged, whatever its replicas do.
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
        let open: Vec<&Slot> = group.slots.values().filter(|slot| slot.wanted == Wanted::Run).collect();
        let closing = group.slots.values().filter(|slot| slot.wanted == Wanted::Stop);
        self.lingering += closing.filter(|slot| slot.replicas.iter().any(lingers)).count();
        if group.wanted == Wanted::Run && !runs_per_node(&group.spec) {
            let done = group.collected.total();
            self.undecided += open.len().abs_diff(group.spec.replicas.saturating_sub(done) as usize);
        }
        if group.wanted == Wanted::Run {
            self.completed += group.collected.completed as usize;
            self.exhausted += group.collected.failed as usize;
        }
        for slot in open {
            self.count_slot(slot, &group.spec);
        }
    }

    fn count_slot(&mut self, slot: &Slot, spec: &ServiceSpec) {
        let live = slot.replicas.iter().filter(|replica| is_live(replica));
        self.lingering += slot.replicas.iter().filter(|replica| lingers(replica)).count();
        match live.max_by_key(|replica| replica.generation) {
            Some(replica) => {
                self.count_replica(replica, spec);
                // What a failed step left serving serves.
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
            ReplicaState::Failed if finished::ending(spec, replica).is_some() => self.exhausted += 1,
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
