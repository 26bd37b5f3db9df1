//! How a service changes over time: updates, restarts, moves, and what a lost node means for it.
//!
//! Owns: the policies a user can write, with their defaults.
//! Must not touch: how they are carried out; the `scheduler` room decides.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How a change rolls over the replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdatePolicy {
    /// Slots changed at once; 0 is all.
    pub parallelism: u32,
    /// Pause between steps.
    pub delay: Duration,
    /// Which generation goes first; `None` is start-first where both can coexist.
    pub order: Option<UpdateOrder>,
    /// How long a new generation must run before it counts.
    pub monitor: Duration,
    /// What a failure leads to.
    pub failure_action: FailureAction,
    /// Share of failed slots tolerated, in millionths.
    pub max_failure_ratio_millionths: u32,
    /// Time a step may take; `None` is derived from the health check.
    #[serde(default)]
    pub step_timeout: Option<Duration>,
}

impl Default for UpdatePolicy {
    fn default() -> Self {
        Self {
            parallelism: 1,
            delay: Duration::ZERO,
            order: None,
            monitor: Duration::from_secs(5),
            failure_action: FailureAction::Rollback,
            max_failure_ratio_millionths: 0,
            step_timeout: None,
        }
    }
}

/// Which generation goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateOrder {
    /// The new one starts before the old one stops.
    StartFirst,
    /// The old one stops before the new one starts.
    StopFirst,
}

/// What a failed step leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureAction {
    /// Back to the previous revision.
    #[default]
    Rollback,
    /// Stop and wait for an operator.
    Pause,
    /// Go on.
    Continue,
}

/// What happens when a replica ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartPolicy {
    /// Which ends count.
    pub condition: RestartCondition,
    /// Pause before a restart; `None` is the back-off 0 s, 5 s, 10 s, 20 s … 5 min.
    pub delay: Option<Duration>,
    /// Failures in a row that exhaust it; `None` is three.
    pub max_attempts: Option<u32>,
    /// How long it must run for the count to clear; `None` is the monitor time.
    pub window: Option<Duration>,
}

/// Which ends lead to a restart.
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

/// Slots of a change tried first and held until promoted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    /// How many; 0 is none.
    pub count: u32,
    /// Who says go on.
    pub promotion: Promotion,
}

/// Who lets a canary go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Promotion {
    /// An operator.
    #[default]
    Manual,
    /// Health for the monitor time.
    Automatic,
}

/// What happens to replicas on a node that is lost from sight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disconnect {
    /// Time after its node went down until it counts as lost; `None` is at once, or never where it is not replaced.
    pub lost_after: Option<Duration>,
    /// Whether it is replaced.
    pub replace: Replace,
    /// Which stays when the node returns.
    pub reconcile: Reconcile,
}

/// Whether a lost replica is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replace {
    /// Elsewhere.
    #[default]
    Yes,
    /// Waited for.
    No,
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
    /// The one that has run for longest.
    LongestRunning,
}

/// How a replica that exhausted its restarts moves to another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reschedule {
    /// Moves allowed within the interval; `None` is unlimited.
    pub attempts: Option<u32>,
    /// The interval.
    pub interval: Duration,
    /// Pause before the first move.
    pub delay: Duration,
    /// How the pause grows.
    pub delay_function: DelayFunction,
    /// Longest pause.
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

/// How a pause grows.
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

/// Whether running replicas may be moved to even the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rebalance {
    /// Off hot nodes.
    #[default]
    On,
    /// Never.
    Off,
    /// Off hot nodes, and evened when a node joins.
    OnJoin,
}
