//! What is asked of a service before any node: its secrets, its volumes, its quota, the services that come first.
//!
//! Owns: gates. A gate that is shut leaves the whole batch, or the rest of it, without a node.
//! Must not touch: nodes.

pub(crate) mod dependencies;

use longshore_model::{
    NodeName, Refusal,
    command::{Quota, QuotaDimension},
};

use crate::{ask::Ask, placement::Vacancy, view::View, view::usage::Usage};

/// How many of a batch may be placed.
pub(crate) enum Gate {
    /// All of them.
    Open,
    /// The first so many; the rest waits for this reason.
    Partly { allowed: usize, refusal: Refusal },
    /// None.
    Shut(Refusal),
}

/// Asks every gate, in the order of the reasons.
pub(crate) fn check(view: &View, ask: &Ask, wanted: usize) -> Gate {
    if let Some(refusal) = secrets(view, ask).or_else(|| volumes(view, ask)) {
        return Gate::Shut(refusal);
    }
    match quota(view, ask, wanted) {
        None => Gate::Open,
        Some((0, refusal)) => Gate::Shut(refusal),
        Some((allowed, refusal)) => Gate::Partly { allowed, refusal },
    }
}

/// What keeps one vacancy from being placed anywhere.
pub(crate) fn bar(view: &View, ask: &Ask, vacancy: &Vacancy) -> Option<Refusal> {
    match check(view, ask, 1) {
        Gate::Shut(refusal) | Gate::Partly { refusal, .. } => Some(refusal),
        Gate::Open => dependencies::holding_back(view, ask, vacancy),
    }
}

/// A service whose secrets do not exist would only crash again and again.
fn secrets(view: &View, ask: &Ask) -> Option<Refusal> {
    let namespace = &ask.key.namespace;
    let missing = ask.spec.secrets_required.iter();
    let missing: Vec<_> =
        missing.filter(|name| !view.secrets.contains_key(&(namespace.clone(), (*name).clone()))).cloned().collect();
    (!missing.is_empty()).then_some(Refusal::SecretsMissing { names: missing })
}

/// Volumes of one service must live together, and bind it to one replica.
fn volumes(view: &View, ask: &Ask) -> Option<Refusal> {
    let homes = ask.terms.volumes.iter().filter_map(|held| view.volumes.get(&held.key)?.home.clone());
    let mut homes: Vec<NodeName> = homes.collect();
    homes.sort();
    homes.dedup();
    let several_replicas = !ask.terms.volumes.is_empty() && ask.spec.replicas > 1;
    (homes.len() > 1 || several_replicas).then_some(Refusal::VolumeConstraints { homes })
}

/// How many more the namespace allows, where that is fewer than wanted, and what stands in the way.
fn quota(view: &View, ask: &Ask, wanted: usize) -> Option<(usize, Refusal)> {
    let quota = view.quotas.get(&ask.key.namespace)?;
    let used = view.usage.get(&ask.key.namespace).copied().unwrap_or_default();
    dimensions(quota, &used, ask)
        .into_iter()
        .filter_map(|(dimension, limit, used, needed)| {
            let (limit, needed) = (limit?, needed);
            let allowed = limit.saturating_sub(used).checked_div(needed)?;
            let allowed = usize::try_from(allowed).unwrap_or(usize::MAX);
            let refusal = Refusal::Quota { dimension, limit, used, needed };
            (allowed < wanted).then_some((allowed, refusal))
        })
        .min_by_key(|(allowed, _)| *allowed)
}

/// What it is, ceiling, use, and need of one replica, for each thing a quota limits.
fn dimensions(quota: &Quota, used: &Usage, ask: &Ask) -> [(QuotaDimension, Option<u64>, u64, u64); 3] {
    [
        (QuotaDimension::Replicas, quota.replicas, used.replicas, 1),
        (QuotaDimension::Memory, quota.memory_bytes, used.memory_bytes, ask.terms.memory_total()),
        (QuotaDimension::Cpu, quota.cpu_millis, used.cpu_millis, ask.terms.cpu_millis),
    ]
}
