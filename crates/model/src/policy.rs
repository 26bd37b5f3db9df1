//! Policies of a service: updates, restarts, rescheduling, and lost nodes.
//!
//! Owns: the policies a manifest can set, with their defaults.
//! Must not touch: how they are carried out; the `scheduler` crate decides.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How a rollout proceeds over the replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdatePolicy {
    /// Slots changed at the same time, as the manifest says it; 0 is all. `None` is one at a time, and with start-first
    /// order as many monitored at the same time as [`UpdatePolicy::surge`] allows.
    pub parallelism: Option<u32>,
    /// Pause between steps.
    pub delay: Duration,
    /// Order of start and stop; `None` is start-first where both generations can coexist.
    pub order: Option<UpdateOrder>,
    /// How long a new generation must run for its step to be done.
    pub monitor: Duration,
    /// Reaction to too many failed steps.
    pub failure_action: FailureAction,
    /// Share of failed slots tolerated, in millionths.
    pub max_failure_ratio_millionths: u32,
    /// Time a step may take; `None` is derived from the health check.
    #[serde(default)]
    pub step_timeout: Option<Duration>,
    /// Slots with two generations at the same time; `None` is a quarter of the replicas and at least
    /// [`UpdatePolicy::LEAST_SURGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surge: Option<u32>,
}

impl UpdatePolicy {
    /// The default surge of a small service: few enough that a host has room for them, enough that monitor times overlap.
    pub const LEAST_SURGE: u32 = 3;

    /// Slots that may be short or on their way up at the same time; `None` is all.
    pub fn slots_at_once(&self) -> Option<u32> {
        Some(self.parallelism.unwrap_or(1)).filter(|limit| *limit > 0)
    }

    /// Slots of a service with that many replicas that may have two generations at the same time; `None` is all. A written
    /// `parallelism` limits them too.
    pub fn slots_with_two_generations(&self, replicas: usize) -> Option<usize> {
        let default = replicas.div_ceil(4).max(Self::LEAST_SURGE as usize);
        match (self.parallelism, self.surge.map(|surge| surge as usize)) {
            (None, surge) => Some(surge.unwrap_or(default)),
            (Some(0), surge) => surge,
            (Some(limit), surge) => Some(surge.map_or(limit as usize, |surge| surge.min(limit as usize))),
        }
    }
}

impl Default for UpdatePolicy {
    fn default() -> Self {
        Self {
            parallelism: None,
            delay: Duration::ZERO,
            order: None,
            monitor: Duration::from_secs(5),
            failure_action: FailureAction::Rollback,
            max_failure_ratio_millionths: 0,
            step_timeout: None,
            surge: None,
        }
    }
}

/// Order of start and stop in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateOrder {
    /// The new one starts before the old one stops.
    StartFirst,
    /// The old one stops before the new one starts.
    StopFirst,
}

/// Reaction to too many failed steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureAction {
    /// Roll back to the previous revision.
    #[default]
    Rollback,
    /// Pause the rollout until an operator resumes it.
    Pause,
    /// Continue with the next steps.
    Continue,
}

/// What happens when a replica ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartPolicy {
    /// Which exits lead to a restart.
    pub condition: RestartCondition,
    /// Delay before a restart; `None` is the back-off 0 s, 5 s, 10 s, 20 s … 5 min.
    pub delay: Option<Duration>,
    /// Consecutive failures after which it is not restarted again; `None` is three.
    pub max_attempts: Option<u32>,
    /// How long it must run for the count to be reset; `None` is the monitor time.
    pub window: Option<Duration>,
    /// What follows once its restarts are exhausted, where the service has no `reschedule`.
    #[serde(default, skip_serializing_if = "AfterExhaustion::is_give_up")]
    pub after_exhaustion: AfterExhaustion,
}

impl RestartPolicy {
    /// Whether an exit with code 0 is the replica's end.
    pub const fn may_complete(&self) -> bool {
        !matches!(self.condition, RestartCondition::Any)
    }
}

/// What follows once a replica's restarts are exhausted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterExhaustion {
    /// It stays failed until the next apply or restart.
    #[default]
    GiveUp,
    /// It stays failed for 30 s, then 60 s … at most 5 min, and each time gets its restarts anew.
    Return,
}

impl AfterExhaustion {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands the field in by reference")]
    const fn is_give_up(&self) -> bool {
        matches!(self, Self::GiveUp)
    }
}

/// Which exits lead to a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartCondition {
    /// All of them.
    #[default]
    Any,
    /// Only failures.
    OnFailure,
    /// None.
    None,
}

/// Slots that are changed first; the others wait for their promotion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    /// Number of canary slots; 0 is none.
    pub count: u32,
    /// Who promotes them.
    pub promotion: Promotion,
}

/// Who promotes canary slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Promotion {
    /// An operator.
    #[default]
    Manual,
    /// The scheduler, once they were healthy for the monitor time.
    Automatic,
}

/// What happens to replicas on a node that is unreachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disconnect {
    /// Time after its node went down until a replica is lost; `None` is at once, or never where it is not replaced.
    pub lost_after: Option<Duration>,
    /// Whether it is replaced while the node is unreachable.
    pub replace: Replace,
    /// Which replica stays when the node returns.
    pub reconcile: Reconcile,
}

/// Whether a lost replica is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replace {
    /// It is replaced on another node.
    #[default]
    #[serde(rename = "yes")]
    WhenLost,
    /// It is not; its slot waits for the node.
    #[serde(rename = "no")]
    Never,
}

/// Which replica stays when a lost one returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reconcile {
    /// The replacement.
    #[default]
    KeepReplacement,
    /// The returned one.
    KeepOriginal,
    /// The one with the better health, the replacement on a tie.
    BestScore,
    /// The one that has run longer.
    LongestRunning,
}

/// How a replica that exhausted its restarts is rescheduled to another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reschedule {
    /// Moves allowed within the interval; `None` is unlimited.
    pub attempts: Option<u32>,
    /// The interval.
    pub interval: Duration,
    /// Delay before the first move.
    pub delay: Duration,
    /// How the delay grows.
    pub delay_function: DelayFunction,
    /// Longest delay.
    pub max_delay: Duration,
}

impl Default for Reschedule {
    fn default() -> Self {
        Self {
            attempts: None,
            interval: Duration::from_hours(24),
            delay: Duration::from_secs(30),
            delay_function: DelayFunction::Exponential,
            max_delay: Duration::from_hours(1),
        }
    }
}

/// How a delay grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DelayFunction {
    /// Not at all.
    Constant,
    /// Doubles.
    #[default]
    Exponential,
    /// As the sum of the last two.
    Fibonacci,
}

/// Whether a rebalance may move running replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rebalance {
    /// Off nodes under pressure.
    #[default]
    On,
    /// Never.
    Off,
    /// Off nodes under pressure, and to restore an even spread when a node joins.
    OnJoin,
}
