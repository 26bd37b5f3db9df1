//! A plan in as many parts as entries it takes.
//!
//! Owns: where a plan is cut.
//! Must not touch: the order of its items; parts are carried out one after the other, as the whole would be.
//! Invariant: the parts hold everything once, what follows from the items last, and each fits into one entry unless a
//! single item does not.

use longshore_model::{Command, GroupPlan, Plan};

use super::{
    Proposal, ProposeError,
    machine::{Item, PlanPart},
    proposer::encoded,
    record::Payload,
};

/// Encodes a proposed plan in parts of at most `room` bytes. A plan without items has no parts.
pub(super) fn cut(proposal: Proposal, number: u64, room: usize) -> Result<Vec<Payload>, ProposeError> {
    let Proposal { command, key, asked, actor, at } = proposal;
    let Command::Commit(plan) = command else {
        let item = Item { proposal: Proposal { command, key, asked, actor, at }, part: None };
        return Ok(vec![encoded(&item)?]);
    };
    if plan.is_empty() {
        return Ok(Vec::new());
    }
    let propose =
        |plan: Plan| Proposal { command: Command::Commit(Box::new(plan)), key: None, asked, actor: actor.clone(), at };
    let whole = Item { proposal: Proposal { key: key.clone(), ..propose(Plan::clone(&plan)) }, part: None };
    let bytes = encoded_any_size(&whole)?;
    if bytes.0.len() <= room {
        return Ok(vec![bytes]);
    }
    let pieces =
        halve_until(*plan, &|piece| Ok(encoded_any_size(&whole_item(propose(piece.clone())))?.0.len() <= room))?;
    let parts = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
    let numbered = pieces.into_iter().zip(0..).map(|(piece, part)| {
        encoded(&Item { proposal: propose(piece), part: Some(PlanPart { plan: number, part, parts }) })
    });
    numbered.collect()
}

fn whole_item(proposal: Proposal) -> Item {
    Item { proposal, part: None }
}

fn encoded_any_size(item: &Item) -> Result<Payload, ProposeError> {
    let bytes = super::encoding::encode(item).map_err(|error| ProposeError::StorageFailed(error.to_string()))?;
    Ok(Payload(bytes.into()))
}

fn halve_until(plan: Plan, fits: &dyn Fn(&Plan) -> Result<bool, ProposeError>) -> Result<Vec<Plan>, ProposeError> {
    let items: usize = plan.groups.iter().map(|group| group.items.len()).sum();
    if items <= 1 || fits(&plan)? {
        return Ok(vec![plan]);
    }
    let (first, second) = split(plan, items / 2);
    let mut pieces = halve_until(first, fits)?;
    pieces.extend(halve_until(second, fits)?);
    Ok(pieces)
}

/// The first `count` items, and the rest. What a plan says of nodes and rollouts holds once its groups have changed, so
/// that it goes with the rest.
fn split(plan: Plan, count: usize) -> (Plan, Plan) {
    let Plan { made_from, made_at, groups, nodes, deployments, wake_at } = plan;
    let mut first = Plan { made_from, made_at, wake_at, ..Plan::default() };
    let mut second = Plan { nodes, deployments, ..first.clone() };
    let mut room = count;
    for group in groups {
        let GroupPlan { group, terms, mut items } = group;
        let rest = items.split_off(room.min(items.len()));
        room -= items.len();
        if !items.is_empty() {
            first.groups.push(GroupPlan { group: group.clone(), terms: terms.clone(), items });
        }
        if !rest.is_empty() {
            second.groups.push(GroupPlan { group, terms, items: rest });
        }
    }
    (first, second)
}

#[cfg(test)]
mod tests;
