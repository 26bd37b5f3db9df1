//! The node has enough devices and generic resources.
//!
//! A generic resource is a count per node. A device request (by vendor, model or attributes) is served from one group
//! of equal devices that matches it and has enough left; the requests of one replica share the groups. Among matching
//! groups the one with the highest affinity is taken.
//!
//! Owns: the choice of groups. The filter and the reservation both call [`allocate`], so they cannot disagree.
//! Must not touch: other replicas on the node; the node table keeps the sums they use.
//! Invariant: the same sums give the same groups; the lowest id wins between groups of equal affinity.

use std::cmp::Reverse;

use longshore_model::{
    Reason, Refusal,
    device::{DeviceGroup, DeviceRequest, TakenDevices},
};

use super::{
    CandidateNode, Filter, Nature, Scope,
    constraints::{DeviceRules, Rule},
};
use crate::{
    request::PlacementRequest,
    view::{NodeIx, node_table::NodeTable},
};

pub(super) const FILTER: Filter =
    Filter { reason: Reason::NoCapacityDevice, nature: Nature::Capacity, scope, check, explain };

/// Assigning requests to groups is a knapsack problem, which a hostile manifest could make slow. Realistic requests
/// need a handful of backtracking steps; a node that needs more is refused.
const MAX_BACKTRACKS: u32 = 1_000;

fn scope(request: &PlacementRequest) -> Scope {
    if request.reservation.devices.is_empty() && request.reservation.device_requests.is_empty() {
        Scope::Idle
    } else {
        Scope::Node
    }
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    lacking_resource(request, candidate).is_none() && allocate(request, &candidate.view.nodes, candidate.ix).is_some()
}

fn explain(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Refusal {
    lacking_resource(request, candidate)
        .unwrap_or_else(|| explain_unmet(request, &free_groups(&candidate.view.nodes, candidate.ix)))
}

/// The refusal for the first generic resource of which the node has too few free.
fn lacking_resource(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Option<Refusal> {
    request.reservation.devices.iter().find_map(|(kind, needed)| {
        let total = candidate.node.capacity.devices.get(kind).copied().unwrap_or(0);
        let reserved = candidate.node.reserved.devices.get(kind).copied().unwrap_or(0);
        let used = candidate.view.nodes.devices.get(&(candidate.ix, kind.clone())).copied().unwrap_or(0);
        let free = total.saturating_sub(reserved).saturating_sub(used);
        (free < *needed).then(|| Refusal::Device { kind: kind.clone(), needed: *needed, free })
    })
}

/// The groups one more replica would take on a node; `None` if its requests cannot all be served.
pub(crate) fn allocate(request: &PlacementRequest, table: &NodeTable, node: NodeIx) -> Option<TakenDevices> {
    let mut taken = TakenDevices::new();
    if request.reservation.device_requests.is_empty() {
        return Some(taken);
    }
    let groups = free_groups(table, node);
    for (device_request, at) in request.reservation.device_requests.iter().zip(choose(request, &groups)?) {
        if device_request.count > 0 {
            *taken.entry(groups[at].id.clone()).or_default() += device_request.count;
        }
    }
    Some(taken)
}

/// The affinity of the groups one more replica would take on a node: the sum of the matching weights.
pub(crate) fn affinity(request: &PlacementRequest, table: &NodeTable, node: NodeIx) -> i64 {
    let groups = free_groups(table, node);
    let chosen = choose(request, &groups).unwrap_or_default();
    request.rules.devices.iter().zip(chosen).map(|(rules, at)| rules.affinity(groups[at].group)).sum()
}

/// The sum of all absolute weights, by which [`affinity`] is divided.
pub(crate) fn total_weight(request: &PlacementRequest) -> i64 {
    request.rules.devices.iter().flat_map(|rules| &rules.affinities).map(|(_, _, weight)| weight.abs()).sum()
}

impl DeviceRules {
    fn affinity(&self, group: &DeviceGroup) -> i64 {
        let matching = self.affinities.iter().filter(|(name, rule, _)| rule.holds_for(group.attribute(name)));
        matching.map(|(_, _, weight)| weight).sum()
    }
}

/// The group of each request, as an index into `groups`; `None` if the requests cannot all be served.
fn choose(request: &PlacementRequest, groups: &[FreeGroup<'_>]) -> Option<Vec<usize>> {
    let matching: Vec<MatchingGroups> = matching_groups(request, groups).collect();
    let mut free: Vec<u64> = groups.iter().map(|free_group| free_group.free).collect();
    let mut chosen = Vec::with_capacity(matching.len());
    let mut backtracks_left = MAX_BACKTRACKS;
    assign_groups(&matching, &mut free, &mut chosen, &mut backtracks_left).then_some(chosen)
}

/// A device group of a node and how many of its devices are free.
struct FreeGroup<'a> {
    id: String,
    group: &'a DeviceGroup,
    free: u64,
}

/// The count of a request and the groups that match it, whether or not enough is free, highest affinity first.
struct MatchingGroups {
    count: u64,
    suitable: Vec<usize>,
}

/// The groups of a node in the order of their ids.
fn free_groups(table: &NodeTable, node: NodeIx) -> Vec<FreeGroup<'_>> {
    let free_group = |(id, (group, count)): (String, (_, u64))| {
        let key = (node, id);
        let free = count.saturating_sub(table.devices.get(&key).copied().unwrap_or(0));
        FreeGroup { id: key.1, group, free }
    };
    table.node(node).allocatable_groups().into_iter().map(free_group).collect()
}

fn matching_groups<'a>(
    request: &'a PlacementRequest,
    groups: &'a [FreeGroup<'_>],
) -> impl Iterator<Item = MatchingGroups> + 'a {
    let fits = |device_request: &DeviceRequest, rules: &[Rule], group: &DeviceGroup| {
        device_request.names(group) && broken_constraint(device_request, rules, group).is_none()
    };
    request.reservation.device_requests.iter().zip(&request.rules.devices).map(move |(device_request, rules)| {
        let suitable = (0..groups.len()).filter(|at| fits(device_request, &rules.constraints, groups[*at].group));
        let mut suitable: Vec<usize> = suitable.collect();
        if !rules.affinities.is_empty() {
            suitable.sort_by_key(|at| Reverse(rules.affinity(groups[*at].group)));
        }
        MatchingGroups { count: device_request.count, suitable }
    })
}

/// Index of the first constraint of the request that the group does not satisfy.
fn broken_constraint(device_request: &DeviceRequest, rules: &[Rule], group: &DeviceGroup) -> Option<usize> {
    let mut asked = device_request.constraints.iter().zip(rules);
    asked.position(|(constraint, rule)| !rule.holds_for(group.attribute(&constraint.attribute)))
}

/// Assigns each request the first group that leaves enough for the requests after it, by backtracking. A greedy choice
/// was refused: `gpu` would take the only `nvidia/gpu/a100` from a later request that names it.
fn assign_groups(
    requests: &[MatchingGroups],
    free: &mut [u64],
    chosen: &mut Vec<usize>,
    backtracks_left: &mut u32,
) -> bool {
    let Some((device_request, rest)) = requests.split_first() else { return true };
    for &at in &device_request.suitable {
        if free[at] < device_request.count {
            continue;
        }
        free[at] -= device_request.count;
        chosen.push(at);
        if assign_groups(rest, free, chosen, backtracks_left) {
            return true;
        }
        chosen.pop();
        free[at] += device_request.count;
        if *backtracks_left == 0 {
            return false;
        }
        *backtracks_left -= 1;
    }
    false
}

/// Why the requests of a replica cannot all be served: the first request that no group could serve alone, else the
/// first for which the earlier requests leave too little.
fn explain_unmet(request: &PlacementRequest, groups: &[FreeGroup<'_>]) -> Refusal {
    let all_free: Vec<u64> = groups.iter().map(|free_group| free_group.free).collect();
    let mut free = all_free.clone();
    let mut first_shortfall = None;
    let asked = request.reservation.device_requests.iter().zip(&request.rules.devices);
    for ((device_request, rules), matching) in asked.zip(matching_groups(request, groups)) {
        let best = |free: &[u64]| matching.suitable.iter().map(|at| free[*at]).max();
        let Some(alone) = best(&all_free) else {
            return no_matching_group(device_request, &rules.constraints, groups);
        };
        if alone < matching.count {
            return too_few(device_request, alone);
        }
        match matching.suitable.iter().find(|at| free[**at] >= matching.count) {
            Some(at) => free[*at] -= matching.count,
            None => {
                first_shortfall = first_shortfall.or_else(|| Some(too_few(device_request, best(&free).unwrap_or(0))));
            }
        }
    }
    first_shortfall.expect("explain is only called after check failed")
}

fn too_few(device_request: &DeviceRequest, free: u64) -> Refusal {
    Refusal::Device { kind: device_request.to_string(), needed: device_request.count, free }
}

/// The refusal of a request that no group of the node matches, by name or by constraints.
fn no_matching_group(device_request: &DeviceRequest, rules: &[Rule], groups: &[FreeGroup<'_>]) -> Refusal {
    let named = groups.iter().find(|free_group| device_request.names(free_group.group));
    match named.and_then(|free_group| broken_constraint(device_request, rules, free_group.group)) {
        Some(at) => Refusal::DeviceUnlike {
            kind: device_request.id(),
            needed: device_request.count,
            constraint: device_request.constraints[at].to_string(),
        },
        None => too_few(device_request, 0),
    }
}
