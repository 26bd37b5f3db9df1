//! The rollout of a change of a deployment over its replicas.
//!
//! Owns: the record of a rollout, a slot's step in it, and a group's position in it.
//! Must not touch: when a step may begin or is done; the `scheduler` crate decides.
//! Invariant: a step belongs to one rollout by number; an aborted rollout gets the next number for its way back, so that
//! no forward step counts for it.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    DeploymentName, Generation, NamespaceName, NodeName, ReplicaState, RevisionNumber, RolloutNumber, RuntimeCode,
    ServiceName, ServiceSpec, SlotKey, Time, replica::Details,
};

/// One rollout of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// Counted per deployment; the way back of an aborted rollout has its own number.
    pub number: RolloutNumber,
    /// The revision that was in force before the change.
    pub from: RevisionNumber,
    /// The revision that is rolled out; equal to `from` for a new secret version or a restart.
    pub to: RevisionNumber,
    /// Its progress.
    pub state: RolloutState,
    /// Why it was started.
    pub kind: RolloutKind,
    /// The failure that paused or aborted it.
    pub failure: Option<RolloutFailure>,
    /// When its state began; `Time(0)` where the command that started it carries no time.
    pub since: Time,
    /// The revision a `rollback` would have gone to before this rollout; restored if it is aborted.
    #[serde(rename = "before")]
    pub prior_rollback_target: Option<RevisionNumber>,
    /// Steps by service that no slot records: those of removed slots, and all of them once it has ended or was aborted.
    pub steps: BTreeMap<ServiceName, StepCount>,
}

impl Rollout {
    /// Whether it still changes slots.
    pub const fn is_live(&self) -> bool {
        self.state.is_live()
    }

    /// Whether there is an older revision to roll back to when it fails.
    pub fn can_roll_back(&self) -> bool {
        self.kind == RolloutKind::Forward && self.from != self.to
    }
}

/// Progress of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolloutState {
    /// Slots are changed step by step.
    InProgress,
    /// No new steps until an operator resumes it.
    Paused,
    /// The canary slots have changed and wait for an operator's promotion.
    AwaitingPromotion,
    /// Every slot has changed.
    Completed,
    /// It failed and slots are being rolled back.
    Aborted,
    /// It failed and every slot is rolled back.
    RolledBack,
    /// Another change started before it ended.
    Superseded,
}

impl RolloutState {
    /// The name in JSON and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Paused => "paused",
            Self::AwaitingPromotion => "awaiting_promotion",
            Self::Completed => "completed",
            Self::Aborted => "aborted",
            Self::RolledBack => "rolled_back",
            Self::Superseded => "superseded",
        }
    }

    /// Whether slots are still changed.
    pub const fn is_live(self) -> bool {
        match self {
            Self::InProgress | Self::Paused | Self::AwaitingPromotion | Self::Aborted => true,
            Self::Completed | Self::RolledBack | Self::Superseded => false,
        }
    }
}

/// Why a rollout was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolloutKind {
    /// A new manifest, a new count, a new secret version, or a restart.
    Forward,
    /// An operator requested a rollback.
    Rollback,
}

/// The step failure that paused or aborted a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutFailure {
    /// The service.
    pub service: ServiceName,
    /// The first of its slots whose step failed.
    pub slot: SlotKey,
    /// How it failed.
    pub code: StepFailure,
    /// The last observation of what failed. The state machine fills it in when it records the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<FailedReplica>,
}

/// What was last known of the slot whose step failed; its containers and their logs are removed by the rollback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedReplica {
    /// The generation; 0 if the slot was never placed.
    pub generation: Generation,
    /// Its node; `None` if it had none.
    pub node: Option<NodeName>,
    /// Its last state.
    pub state: ReplicaState,
    /// The code of that state.
    pub code: Option<RuntimeCode>,
    /// Details of the code, such as `exit_code`, `reason` and `last_lines`.
    pub details: Details,
}

/// How a step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepFailure {
    /// The new generation was not running in time.
    StepTimeout,
    /// The new generation exhausted its restarts.
    RestartExhausted,
    /// The new generation ended with an error, and its service is run once.
    Exited,
    /// The new generation had run for the monitor time, and failed before the rollout ended.
    FailedAgain,
    /// The registry does not have its image, or does not give it to the node.
    ImageRefused,
}

impl StepFailure {
    /// Every code, in order.
    pub const ALL: &'static [Self] =
        &[Self::StepTimeout, Self::RestartExhausted, Self::Exited, Self::FailedAgain, Self::ImageRefused];

    /// Stable: operators alert on these strings. Add codes, never rename one.
    pub const fn code(self) -> &'static str {
        match self {
            Self::StepTimeout => "step_timeout",
            Self::RestartExhausted => RuntimeCode::RestartExhausted.code(),
            Self::Exited => RuntimeCode::Exited.code(),
            Self::FailedAgain => "failed_again",
            Self::ImageRefused => RuntimeCode::ImagePullFailed.code(),
        }
    }
}

/// A slot's step in a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The rollout.
    pub rollout: RolloutNumber,
    /// Whether the slot is new.
    pub kind: StepKind,
    /// When it began or, once it has ended, when it ended.
    pub at: Time,
    /// Its progress.
    pub outcome: StepOutcome,
}

/// Whether a step adds or changes a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// The slot was added by the rollout.
    Added,
    /// The slot gets a new generation.
    Changed,
}

/// Progress of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// The new generation has not run for the monitor time yet.
    UnderWay,
    /// The new generation has run for the monitor time.
    Done,
    /// The new generation failed.
    Failed(StepFailure),
}

impl StepOutcome {
    /// Whether a step with this outcome may get that one. One that has ended does not start again, but one that was done
    /// may fail after all.
    pub const fn may_become(self, next: Self) -> bool {
        match (self, next) {
            (Self::UnderWay, Self::Done | Self::Failed(_)) | (Self::Done, Self::Failed(_)) => true,
            (Self::UnderWay | Self::Done, Self::UnderWay) | (Self::Done, Self::Done) | (Self::Failed(_), _) => false,
        }
    }
}

/// Number of steps of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCount {
    /// All steps: slots added, changed and removed.
    pub total: u32,
    /// Steps that are done.
    pub done: u32,
    /// Steps that failed.
    pub failed: u32,
}

/// A group's position in the rollout of its deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutPosition {
    /// The spec of slots whose step has not begun; `None` where it is the group's own.
    #[serde(rename = "held")]
    pub previous: Option<PreviousSpec>,
    /// Since when no node has had room for a second generation of a slot.
    pub no_room_since: Option<Time>,
    /// Since when a step that is due could not begin or be placed; `None` while the rollout makes progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_since: Option<Time>,
    /// Whether its canary slots were promoted.
    #[serde(rename = "promotion", with = "crate::yes_no")]
    pub promoted: bool,
}

impl RolloutPosition {
    /// Whether slots that are opened now get the spec before the rollout: it is paused, or its canaries are not promoted.
    pub fn holds_growth(&self, rollout: &Rollout, spec: &ServiceSpec) -> bool {
        let can_hold = |previous: &PreviousSpec| {
            let is_same_mode = previous.spec.kind.is_per_node() == spec.kind.is_per_node();
            // One volume is for one replica: there can be no second one of that spec.
            let can_grow = spec.kind.is_per_node() || previous.spec.volumes().next().is_none();
            is_same_mode && can_grow && !previous.spec.kind.is_job()
        };
        let unpromoted = rollout.kind == RolloutKind::Forward && spec.canary.count > 0 && !self.promoted;
        let held = match rollout.state {
            RolloutState::Paused | RolloutState::AwaitingPromotion => true,
            RolloutState::InProgress => unpromoted,
            RolloutState::Completed | RolloutState::Aborted | RolloutState::RolledBack | RolloutState::Superseded => {
                false
            }
        };
        held && self.previous.as_ref().is_some_and(can_hold)
    }
}

/// The spec a group had before a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousSpec {
    /// The revision it is from.
    pub revision: RevisionNumber,
    /// The spec.
    pub spec: Arc<ServiceSpec>,
}

/// A decision about the rollout of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentPlan {
    /// The namespace.
    pub namespace: NamespaceName,
    /// The deployment.
    pub deployment: DeploymentName,
    /// The rollout; ignored if it is no longer the deployment's.
    pub rollout: RolloutNumber,
    /// The change.
    pub change: RolloutChange,
}

/// A change of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolloutChange {
    /// Every step is done.
    Complete,
    /// Only slots that wait for the promotion are left.
    AwaitPromotion,
    /// It failed; no new steps until an operator resumes it.
    Pause(RolloutFailure),
    /// It failed; the previous revision is in force again.
    Abort(RolloutFailure),
    /// Every slot is rolled back.
    RolledBack,
}
