//! Scores for `binpack`: the mean of the terms that apply, in billionths, integers all the way.
//!
//! ```text
//! best fit            always        S/18, S = clamp(20 − (10^free cpu share + 10^free memory share), 0, 18)
//! anti-affinity       k > 0 here    −(k + 1) / count
//! recent failure      failed here   −1
//! affinity            any asked     Σ matching weights ÷ Σ |weights|
//! devices             any liked     Σ matching weights ÷ Σ |weights|, of the groups it would take
//! spread targets      not zero      see [`targets`]
//! ```
//!
//! Owns: the value of each term. Must not touch: which nodes are candidates.
//! Invariant: a term is a pure function of the node's load, the service's counts and the spec.

pub(crate) mod fit;
pub(crate) mod targets;

use smallvec::SmallVec;

use crate::{
    ask::Ask,
    feasibility::devices,
    placement::affinity,
    view::{NodeIx, View},
};

/// One, in the unit of scores.
pub(crate) const ONE: i64 = 1_000_000_000;

/// A part of a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// How full the node would be.
    BestFit,
    /// Others of the service on the node.
    AntiAffinity,
    /// The service failed on the node lately.
    RecentFailure,
    /// Attributes liked or disliked.
    Affinity,
    /// Devices liked or disliked.
    Devices,
    /// Shares aimed at.
    SpreadTargets,
}

impl Term {
    /// The word shown to operators.
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
pub(crate) fn own_terms(ask: &Ask, view: &View, node: NodeIx) -> Terms {
    let seat = view.fleet.seat(node);
    let cpu = seat.load.cpu_millis.saturating_add(ask.terms.cpu_millis);
    let memory = seat.load.memory_bytes.saturating_add(ask.terms.memory_total());
    let mut terms = Terms::new();
    terms.push((Term::BestFit, fit::best_fit((cpu, seat.limits.cpu_millis), (memory, seat.limits.memory_bytes))));
    let here = ask.counts.get(node);
    if here > 0 {
        terms.push((Term::AntiAffinity, -(i64::from(here) + 1) * ONE / i64::from(ask.spec.replicas.max(1))));
    }
    if ask.failed_on.contains(&node) {
        terms.push((Term::RecentFailure, -ONE));
    }
    let weights = affinity::total_weight(ask);
    if weights > 0 {
        terms.push((Term::Affinity, affinity::liking(ask, view, node) * ONE / weights));
    }
    let weights = devices::total_weight(ask);
    if weights > 0 {
        terms.push((Term::Devices, devices::liking(ask, &view.fleet, node) * ONE / weights));
    }
    terms
}

/// The mean of terms, cut towards zero: what is shown.
pub(crate) fn mean(sum: i64, terms: usize) -> i64 {
    sum / i64::try_from(terms.max(1)).unwrap_or(i64::MAX)
}

/// The mean of terms, in sixtieths: what is compared. Sixty is divisible by any number of terms there can be, so that
/// nothing is cut and nodes that differ at all are never taken for equals.
pub(crate) fn exact_mean(sum: i64, terms: usize) -> i128 {
    i128::from(sum) * (60 / i128::try_from(terms.max(1)).unwrap_or(60))
}
