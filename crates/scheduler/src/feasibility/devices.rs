//! Devices and generic resources are there in the number asked for.
//!
//! Plain kinds are a number per node. A request by maker, model or attributes is met from one group of equal devices that
//! it names, whose attributes satisfy it and that has enough left; the requests of one replica share what is there. Among
//! groups that serve, the one that is liked most is taken.
//!
//! Owns: the choice of groups. The filter and the reservation both ask [`allocate`], so they cannot disagree.
//! Must not touch: who else is on the node; that is in the fleet's sums.
//! Invariant: the same sums give the same groups, the lowest identities among those liked alike.

use std::cmp::Reverse;

use longshore_model::{
    Reason, Refusal,
    device::{DeviceGroup, DeviceRequest, TakenDevices},
};

use super::{
    Filter, Nature, Scope, Site,
    constraints::{DeviceRules, Rule},
};
use crate::{
    ask::Ask,
    view::{NodeIx, fleet::Fleet},
};

pub(super) const FILTER: Filter =
    Filter { reason: Reason::NoCapacityDevice, nature: Nature::Capacity, scope, check, explain };

/// Dealing requests out to groups is a knapsack, and a hostile manifest could make it last. The few requests that people write
/// are dealt out with a handful of second thoughts; a node that takes more is refused rather than waited for.
const SECOND_THOUGHTS: u32 = 1_000;

fn scope(ask: &Ask) -> Scope {
    if ask.terms.devices.is_empty() && ask.terms.device_requests.is_empty() { Scope::Idle } else { Scope::Node }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    short(ask, site).is_none() && allocate(ask, &site.view.fleet, site.ix).is_some()
}

fn explain(ask: &Ask, site: &Site<'_>) -> Refusal {
    if let Some((kind, needed, free)) = short(ask, site) {
        return Refusal::Device { kind, needed, free };
    }
    unmet(ask, &pool(&site.view.fleet, site.ix))
}

/// The first plain kind there are too few of, with how many are wanted and free.
fn short(ask: &Ask, site: &Site<'_>) -> Option<(String, u64, u64)> {
    ask.terms.devices.iter().find_map(|(kind, needed)| {
        let there = site.node.capacity.devices.get(kind).copied().unwrap_or(0);
        let kept = site.node.reserved.devices.get(kind).copied().unwrap_or(0);
        let used = site.view.fleet.devices.get(&(site.ix, kind.clone())).copied().unwrap_or(0);
        let free = there.saturating_sub(kept).saturating_sub(used);
        (free < *needed).then(|| (kind.clone(), *needed, free))
    })
}

/// The groups one more replica would take on a node, or nothing where its requests cannot all be met.
pub(crate) fn allocate(ask: &Ask, fleet: &Fleet, node: NodeIx) -> Option<TakenDevices> {
    let mut taken = TakenDevices::new();
    if ask.terms.device_requests.is_empty() {
        return Some(taken);
    }
    let stocks = pool(fleet, node);
    for (request, at) in ask.terms.device_requests.iter().zip(choose(ask, &stocks)?) {
        if request.count > 0 {
            *taken.entry(stocks[at].id.clone()).or_default() += request.count;
        }
    }
    Some(taken)
}

/// How much the groups are liked that one more replica would take on a node: the weights that match, summed.
pub(crate) fn liking(ask: &Ask, fleet: &Fleet, node: NodeIx) -> i64 {
    let stocks = pool(fleet, node);
    let chosen = choose(ask, &stocks).unwrap_or_default();
    ask.rules.devices.iter().zip(chosen).map(|(rules, at)| rules.liking(stocks[at].group)).sum()
}

/// How much groups can be liked at most: what [`liking`] is a share of.
pub(crate) fn total_weight(ask: &Ask) -> i64 {
    ask.rules.devices.iter().flat_map(|rules| &rules.affinities).map(|(_, _, weight)| weight.abs()).sum()
}

impl DeviceRules {
    fn liking(&self, group: &DeviceGroup) -> i64 {
        let matching = self.affinities.iter().filter(|(name, rule, _)| rule.holds_for(group.attribute(name)));
        matching.map(|(_, _, weight)| weight).sum()
    }
}

/// A group for each request, by its place among the stocks.
fn choose(ask: &Ask, stocks: &[Stock<'_>]) -> Option<Vec<usize>> {
    let wishes: Vec<Wish> = wishes(ask, stocks).collect();
    let mut free: Vec<u64> = stocks.iter().map(|stock| stock.free).collect();
    let mut chosen = Vec::with_capacity(wishes.len());
    let mut patience = SECOND_THOUGHTS;
    deal(&wishes, &mut free, &mut chosen, &mut patience).then_some(chosen)
}

/// A group and what is left of it.
struct Stock<'a> {
    id: String,
    group: &'a DeviceGroup,
    free: u64,
}

/// A request and the groups that could serve it, were there enough, those liked most first.
struct Wish {
    count: u64,
    suitable: Vec<usize>,
}

/// The groups of a node in the order of their identities.
fn pool(fleet: &Fleet, node: NodeIx) -> Vec<Stock<'_>> {
    let stock = |(id, (group, count)): (String, (_, u64))| {
        let key = (node, id);
        let free = count.saturating_sub(fleet.devices.get(&key).copied().unwrap_or(0));
        Stock { id: key.1, group, free }
    };
    fleet.node(node).allocatable_groups().into_iter().map(stock).collect()
}

fn wishes<'a>(ask: &'a Ask, stocks: &'a [Stock<'_>]) -> impl Iterator<Item = Wish> + 'a {
    let fits = |request: &DeviceRequest, rules: &[Rule], group: &DeviceGroup| {
        request.names(group) && broken(request, rules, group).is_none()
    };
    ask.terms.device_requests.iter().zip(&ask.rules.devices).map(move |(request, rules)| {
        let suitable = (0..stocks.len()).filter(|at| fits(request, &rules.constraints, stocks[*at].group));
        let mut suitable: Vec<usize> = suitable.collect();
        if !rules.affinities.is_empty() {
            suitable.sort_by_key(|at| Reverse(rules.liking(stocks[*at].group)));
        }
        Wish { count: request.count, suitable }
    })
}

/// The first constraint that does not hold of a group, by its place in the request.
fn broken(request: &DeviceRequest, rules: &[Rule], group: &DeviceGroup) -> Option<usize> {
    let mut asked = request.constraints.iter().zip(rules);
    asked.position(|(constraint, rule)| !rule.holds_for(group.attribute(&constraint.attribute)))
}

/// Gives each wish a group, the first that leaves enough for the wishes after it. Taking the first that fits and never
/// looking back was refused: `gpu` would take the only `nvidia/gpu/a100` from under the request that names it.
fn deal(wishes: &[Wish], free: &mut [u64], chosen: &mut Vec<usize>, patience: &mut u32) -> bool {
    let Some((wish, rest)) = wishes.split_first() else { return true };
    for &at in &wish.suitable {
        if free[at] < wish.count {
            continue;
        }
        free[at] -= wish.count;
        chosen.push(at);
        if deal(rest, free, chosen, patience) {
            return true;
        }
        chosen.pop();
        free[at] += wish.count;
        if *patience == 0 {
            return false;
        }
        *patience -= 1;
    }
    false
}

/// Why the requests of a replica cannot all be met: the first that no group could ever serve, else the first that the
/// earlier ones leave too little for.
fn unmet(ask: &Ask, stocks: &[Stock<'_>]) -> Refusal {
    let whole: Vec<u64> = stocks.iter().map(|stock| stock.free).collect();
    let mut free = whole.clone();
    let mut crowded = None;
    let asked = ask.terms.device_requests.iter().zip(&ask.rules.devices);
    for ((request, rules), wish) in asked.zip(wishes(ask, stocks)) {
        let best = |free: &[u64]| wish.suitable.iter().map(|at| free[*at]).max();
        let Some(alone) = best(&whole) else {
            return unlike(request, &rules.constraints, stocks);
        };
        if alone < wish.count {
            return too_few(request, alone);
        }
        match wish.suitable.iter().find(|at| free[**at] >= wish.count) {
            Some(at) => free[*at] -= wish.count,
            None => crowded = crowded.or_else(|| Some(too_few(request, best(&free).unwrap_or(0)))),
        }
    }
    crowded.expect("only asked where a request is not met")
}

fn too_few(request: &DeviceRequest, free: u64) -> Refusal {
    Refusal::Device { kind: request.to_string(), needed: request.count, free }
}

/// Nothing of the node serves the request: it has none of the name, or what it has is not as asked for.
fn unlike(request: &DeviceRequest, rules: &[Rule], stocks: &[Stock<'_>]) -> Refusal {
    let named = stocks.iter().find(|stock| request.names(stock.group));
    match named.and_then(|stock| broken(request, rules, stock.group)) {
        Some(at) => Refusal::DeviceUnlike {
            kind: request.id(),
            needed: request.count,
            constraint: request.constraints[at].to_string(),
        },
        None => too_few(request, 0),
    }
}
