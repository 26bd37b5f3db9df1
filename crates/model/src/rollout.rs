//! A change of a deployment on its way through the replicas.
//!
//! Owns: the record of a rollout, a slot's step in it, and how a group stands in it.
//! Must not touch: when a step may begin or counts as done; the `scheduler` room decides.
//! Invariant: a step belongs to one rollout by number; a rollout that turns around gets the next number, so that no step
//! forward counts on the way back.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    DeploymentName, NamespaceName, RevisionNumber, RolloutNumber, RuntimeCode, ServiceName, ServiceSpec, SlotKey, Time,
};

/// One change of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// Counted per deployment; the way back of an aborted one has a number of its own.
    pub number: RolloutNumber,
    /// The manifest that is left: the last one that was in force before the change.
    pub from: RevisionNumber,
    /// The manifest that is rolled to; the same one where only a secret's version or a restart is rolled.
    pub to: RevisionNumber,
    /// How far it is.
    pub state: RolloutState,
    /// Why it was begun.
    pub kind: RolloutKind,
    /// What went wrong, if anything did.
    pub failure: Option<RolloutFailure>,
    /// When its state began; the beginning of time where the command that began it carries none.
    pub since: Time,
    /// The manifest that `rollback` would have gone to before it, and goes to again if it is aborted.
    pub before: Option<RevisionNumber>,
    /// Steps by service that no slot tells of: slots taken away, and all of them once it has ended or turned around.
    pub steps: BTreeMap<ServiceName, StepCount>,
}

impl Rollout {
    /// Whether slots still change for it.
    pub const fn is_live(&self) -> bool {
        self.state.is_live()
    }

    /// Whether there is an older manifest to go back to when it fails.
    pub fn can_go_back(&self) -> bool {
        self.kind == RolloutKind::Forward && self.from != self.to
    }
}

/// How far a rollout is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolloutState {
    /// Step by step.
    InProgress,
    /// No new steps until an operator says so.
    Paused,
    /// The first slots have changed and wait for an operator's word.
    AwaitingPromotion,
    /// Every slot has changed.
    Completed,
    /// It failed and is on its way back.
    Aborted,
    /// It failed and every slot is back.
    RolledBack,
    /// Another change came before it ended.
    Superseded,
}

impl RolloutState {
    /// The word in JSON and tables.
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

    /// Whether slots still change.
    pub const fn is_live(self) -> bool {
        match self {
            Self::InProgress | Self::Paused | Self::AwaitingPromotion | Self::Aborted => true,
            Self::Completed | Self::RolledBack | Self::Superseded => false,
        }
    }
}

/// Why a rollout was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolloutKind {
    /// Another manifest, another count, another version of a secret, or a restart.
    Forward,
    /// An operator wants an older manifest back.
    Rollback,
}

/// What a rollout stumbled over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutFailure {
    /// The service.
    pub service: ServiceName,
    /// The first of its slots whose step failed.
    pub slot: SlotKey,
    /// How.
    pub code: StepFailure,
}

/// How a step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepFailure {
    /// The new generation did not come to run in time.
    StepTimeout,
    /// The new generation failed too often in a row.
    RestartExhausted,
}

impl StepFailure {
    /// Every code, in order.
    pub const ALL: &'static [Self] = &[Self::StepTimeout, Self::RestartExhausted];

    /// Stable: operators alert on these strings. Add codes, never rename one.
    pub const fn code(self) -> &'static str {
        match self {
            Self::StepTimeout => "step_timeout",
            Self::RestartExhausted => RuntimeCode::RestartExhausted.code(),
        }
    }
}

/// A slot's part in a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Of which.
    pub rollout: RolloutNumber,
    /// What changes.
    pub kind: StepKind,
    /// When it began, or ended if it has.
    pub at: Time,
    /// How it goes.
    pub outcome: StepOutcome,
}

/// What a step changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// The slot was made for the rollout.
    Added,
    /// The slot gets another generation.
    Changed,
}

/// How a step goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// The new generation has not proved itself yet.
    UnderWay,
    /// The new generation has run for the monitor time.
    Done,
    /// It was given up.
    Failed(StepFailure),
}

/// Steps of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCount {
    /// All of them: slots added, changed and taken away.
    pub total: u32,
    /// Those that are done.
    pub done: u32,
    /// Those that failed.
    pub failed: u32,
}

/// How a group stands in the rollout of its deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rolling {
    /// What slots follow whose step has not come; `None` where that is the group's spec itself.
    pub held: Option<Held>,
    /// Since when there has been no room for two generations of a slot at once.
    pub no_room_since: Option<Time>,
    /// Whether its first slots may be followed by the others.
    pub promotion: Promoted,
}

/// The spec a group had before a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The manifest it is from.
    pub revision: RevisionNumber,
    /// The spec.
    pub spec: Arc<ServiceSpec>,
}

/// Whether a canary was let go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Promoted {
    /// Not yet.
    #[default]
    No,
    /// It was.
    Yes,
}

/// What a pass decided about the rollout of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentPlan {
    /// Scope.
    pub namespace: NamespaceName,
    /// Which deployment.
    pub deployment: DeploymentName,
    /// The rollout it is about; another one is none of its business.
    pub rollout: RolloutNumber,
    /// What becomes of it.
    pub change: RolloutChange,
}

/// What becomes of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolloutChange {
    /// Every step is done.
    Complete,
    /// Only slots that wait for promotion are left.
    AwaitPromotion,
    /// It failed; no new steps until an operator looked.
    Pause(RolloutFailure),
    /// It failed; the manifest it came from is in force again.
    Abort(RolloutFailure),
    /// Every slot is back.
    RolledBack,
}
