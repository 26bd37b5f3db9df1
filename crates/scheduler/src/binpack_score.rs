//! Scores for `binpack`: the mean of the terms that apply, in billionths, with integers only.
//!
//! ```text
//! best fit            always        S/18, S = clamp(20 − (10^free cpu share + 10^free memory share), 0, 18)
//! anti-affinity       k > 0 here    −(k + 1) / count
//! recent failure      failed here   −1
//! affinity            any declared  Σ matching weights ÷ Σ |weights|
//! devices             any declared  Σ matching weights ÷ Σ |weights|, of the device groups it would take
//! spread targets      not zero      see [`targets`]
//! ```
//!
//! Owns: the value of each term. Must not touch: which nodes are candidates.
//! Invariant: a term is a pure function of the node's load, the service's counts and the spec.

pub(crate) mod fit;
pub(crate) mod targets;

use smallvec::SmallVec;

use self::fit::Utilization;
use crate::{
    feasibility::devices,
    placement::affinity,
    request::PlacementRequest,
    view::{NodeIx, View},
};

/// One, in the unit of scores.
pub(crate) const ONE: i64 = 1_000_000_000;

/// The name of one part of a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// How full the node would be; fuller is better.
    BestFit,
    /// Other replicas of the service on the node.
    AntiAffinity,
    /// The service recently failed on the node.
    RecentFailure,
    /// Node attributes and companions the service prefers or avoids.
    Affinity,
    /// Device attributes the service prefers or avoids.
    Devices,
    /// Target shares per attribute value.
    SpreadTargets,
}

impl Term {
    /// The name shown to operators.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::BestFit => "best_fit",
            Self::AntiAffinity => "anti_affinity",
            Self::RecentFailure => "recent_failure",
            Self::Affinity => "affinity",
            Self::Devices => "devices",
            Self::SpreadTargets => "spread_targets",
        }
    }
}

/// Terms of a node, each with its value in billionths.
pub(crate) type Terms = SmallVec<[(Term, i64); 6]>;

/// The terms that do not depend on where other replicas of the batch go.
pub(crate) fn own_terms(request: &PlacementRequest, view: &View, node: NodeIx) -> Terms {
    let stats = view.nodes.stats(node);
    let cpu = stats.load.cpu_millis.saturating_add(request.reservation.cpu_millis);
    let memory = stats.load.memory_bytes.saturating_add(request.reservation.memory_total());
    let mut terms = Terms::new();
    let cpu = Utilization { used: cpu, limit: stats.limits.cpu_millis };
    let memory = Utilization { used: memory, limit: stats.limits.memory_bytes };
    terms.push((Term::BestFit, fit::best_fit(cpu, memory)));
    let here = request.counts.get(node);
    if here > 0 {
        terms.push((Term::AntiAffinity, -(i64::from(here) + 1) * ONE / i64::from(request.spec.replicas.max(1))));
    }
    if request.failed_on.contains(&node) {
        terms.push((Term::RecentFailure, -ONE));
    }
    let weights = affinity::total_weight(request);
    if weights > 0 {
        terms.push((Term::Affinity, affinity::weight(request, view, node) * ONE / weights));
    }
    let weights = devices::total_weight(request);
    if weights > 0 {
        terms.push((Term::Devices, devices::affinity(request, &view.nodes, node) * ONE / weights));
    }
    terms
}

/// The mean of terms, truncated towards zero, for display.
pub(crate) fn mean(sum: i64, terms: usize) -> i64 {
    sum / i64::try_from(terms.max(1)).unwrap_or(i64::MAX)
}

/// The mean of terms in sixtieths of a billionth, for comparison. Sixty is divisible by every possible number of terms,
/// so nothing is truncated and nodes with different means never compare as equal.
pub(crate) fn exact_mean(sum: i64, terms: usize) -> i128 {
    i128::from(sum) * (60 / i128::try_from(terms.max(1)).unwrap_or(60))
}
