//! Checks on a service before any node is considered: secrets, volumes, quota and dependencies.
//!
//! Owns: the gates. A closed gate leaves the whole batch, or the rest of it, unplaced.
//! Must not touch: nodes.

pub(crate) mod dependencies;

use longshore_model::{
    NodeName, Refusal,
    command::{Quota, QuotaDimension},
};

use crate::{placement::PendingSlot, request::PlacementRequest, view::View, view::usage::Usage};

/// How many of a batch may be placed.
pub(crate) enum Gate {
    /// All of them.
    Open,
    /// The first `allowed`; the rest waits for this reason.
    Partly { allowed: usize, refusal: Refusal },
    /// None.
    Shut(Refusal),
}

/// Checks secrets, volumes and quota for a batch of `wanted` replicas, in the order of the reasons.
pub(crate) fn check(view: &View, request: &PlacementRequest, wanted: usize) -> Gate {
    if let Some(refusal) = secrets(view, request).or_else(|| volumes(view, request)) {
        return Gate::Shut(refusal);
    }
    match quota(view, request, wanted) {
        None => Gate::Open,
        Some((0, refusal)) => Gate::Shut(refusal),
        Some((allowed, refusal)) => Gate::Partly { allowed, refusal },
    }
}

/// The refusal of the first gate, dependencies included, that stops a single slot from being placed.
pub(crate) fn blocking(view: &View, request: &PlacementRequest, pending: &PendingSlot) -> Option<Refusal> {
    match check(view, request, 1) {
        Gate::Shut(refusal) | Gate::Partly { refusal, .. } => Some(refusal),
        Gate::Open => dependencies::blocking(view, request, pending),
    }
}

/// Refuses a service whose secrets do not exist: it would only crash-loop.
fn secrets(view: &View, request: &PlacementRequest) -> Option<Refusal> {
    let namespace = &request.key.namespace;
    let missing = request.spec.secrets_required.iter();
    let missing: Vec<_> =
        missing.filter(|name| !view.secrets.contains_key(&(namespace.clone(), (*name).clone()))).cloned().collect();
    (!missing.is_empty()).then_some(Refusal::SecretsMissing { names: missing })
}

/// All volumes of a service must have one home node, and a service with volumes has one replica.
fn volumes(view: &View, request: &PlacementRequest) -> Option<Refusal> {
    let homes = request.reservation.volumes.iter().filter_map(|held| view.volumes.get(&held.key)?.home.clone());
    let mut homes: Vec<NodeName> = homes.collect();
    homes.sort();
    homes.dedup();
    let several_replicas = !request.reservation.volumes.is_empty() && request.spec.replicas > 1;
    (homes.len() > 1 || several_replicas).then_some(Refusal::VolumeConstraints { homes })
}

/// How many replicas the namespace's quota allows, if fewer than `wanted`, and the refusal of the tightest dimension.
fn quota(view: &View, request: &PlacementRequest, wanted: usize) -> Option<(usize, Refusal)> {
    let quota = view.quotas.get(&request.key.namespace)?;
    let used = view.usage.get(&request.key.namespace).copied().unwrap_or_default();
    dimensions(quota, &used, request)
        .into_iter()
        .filter_map(|QuotaRoom { dimension, limit, used, needed }| {
            let limit = limit?;
            let allowed = limit.saturating_sub(used).checked_div(needed)?;
            let allowed = usize::try_from(allowed).unwrap_or(usize::MAX);
            let refusal = Refusal::Quota { dimension, limit, used, needed };
            (allowed < wanted).then_some((allowed, refusal))
        })
        .min_by_key(|(allowed, _)| *allowed)
}

/// The limit of one quota dimension, what the namespace uses of it, and what one more replica needs.
struct QuotaRoom {
    dimension: QuotaDimension,
    limit: Option<u64>,
    used: u64,
    needed: u64,
}

fn dimensions(quota: &Quota, used: &Usage, request: &PlacementRequest) -> [QuotaRoom; 3] {
    let of = |dimension, limit, used, needed| QuotaRoom { dimension, limit, used, needed };
    let (memory, cpu) = (request.reservation.memory_total(), request.reservation.cpu_millis);
    [
        of(QuotaDimension::Replicas, quota.replicas, used.replicas, 1),
        of(QuotaDimension::Memory, quota.memory_bytes, used.memory_bytes, memory),
        of(QuotaDimension::Cpu, quota.cpu_millis, used.cpu_millis, cpu),
    ]
}
