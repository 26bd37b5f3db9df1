//! A plan in as many parts as entries it takes.
//!
//! Owns: where a plan is cut.
//! Must not touch: the order of its items; parts are carried out one after the other, as the whole would be.
//! Invariant: the parts hold everything once, what follows from the items last, and each fits into one entry unless a
//! single item does not. Each part is a plan of its own, and may be checked and appended as one.

use longshore_model::{DeploymentPlan, GroupPlan, NodePlan, Plan, PlanItem, Wait};
use serde::Serialize;

use super::{ProposeError, encoding};

/// Slots of one `Wait` in a part. A million slots may wait for the same reason; so many with the longest names of nodes
/// still are half an entry.
const SLOTS_TOGETHER: usize = 1_000;
/// What a list takes beyond its elements, at most.
const LIST: usize = 8;

/// The plan in parts that take at most `room` bytes each; one that fits is its only part, and one without items has none.
pub(super) fn cut(plan: Plan, room: usize) -> Result<Vec<Plan>, ProposeError> {
    if plan.is_empty() {
        return Ok(Vec::new());
    }
    if encoding::fits(&plan, room).map_err(unencodable)? {
        return Ok(vec![plan]);
    }
    let Plan { made_from, made_at, groups, nodes, deployments, wake_at } = plan;
    let head = Plan { made_from, made_at, wake_at, ..Plan::default() };
    let empty = weight(&head)? + 3 * LIST;
    let mut cutter = Cutter { open: head.clone(), head, parts: Vec::new(), room: room.saturating_sub(empty), used: 0 };
    for group in groups {
        cutter.add_group(group)?;
    }
    for node in nodes {
        cutter.add_node(node)?;
    }
    for deployment in deployments {
        cutter.add_deployment(deployment)?;
    }
    cutter.close();
    Ok(cutter.parts)
}

fn weight<T: Serialize>(value: &T) -> Result<usize, ProposeError> {
    encoding::size(value).map_err(unencodable)
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
fn unencodable(error: encoding::EncodingError) -> ProposeError {
    ProposeError::StorageFailed(error.to_string())
}

/// Fills one part after the other.
struct Cutter {
    /// A plan without items.
    head: Plan,
    parts: Vec<Plan>,
    /// The part that is filled.
    open: Plan,
    room: usize,
    used: usize,
}

impl Cutter {
    fn close(&mut self) {
        self.used = 0;
        let full = std::mem::replace(&mut self.open, self.head.clone());
        if !full.is_empty() {
            self.parts.push(full);
        }
    }

    /// Room for so many bytes, in another part if this one has too little.
    fn make_room(&mut self, bytes: usize) {
        if self.used + bytes > self.room {
            self.close();
        }
        self.used += bytes;
    }

    fn add_group(&mut self, whole: GroupPlan) -> Result<(), ProposeError> {
        let GroupPlan { group, terms, items } = whole;
        let head = GroupPlan { group, terms, items: Vec::new() };
        let head_bytes = weight(&head)? + LIST;
        let mut begun = None;
        for item in items.into_iter().flat_map(apart) {
            let bytes = weight(&item)?;
            if self.used + bytes > self.room {
                self.open.groups.extend(begun.take());
            }
            self.make_room(if begun.is_some() { bytes } else { head_bytes + bytes });
            begun.get_or_insert_with(|| head.clone()).items.push(item);
        }
        self.open.groups.extend(begun);
        Ok(())
    }

    fn add_node(&mut self, node: NodePlan) -> Result<(), ProposeError> {
        self.make_room(weight(&node)?);
        self.open.nodes.push(node);
        Ok(())
    }

    fn add_deployment(&mut self, deployment: DeploymentPlan) -> Result<(), ProposeError> {
        self.make_room(weight(&deployment)?);
        self.open.deployments.push(deployment);
        Ok(())
    }
}

/// Items that are long because they name many slots, as several that name fewer.
fn apart(item: PlanItem) -> Vec<PlanItem> {
    match item {
        PlanItem::Wait(Wait { slots, reason, details }) if slots.len() > SLOTS_TOGETHER => {
            let some = |slots: &[_]| Wait { slots: slots.to_vec(), reason, details: details.clone() };
            slots.chunks(SLOTS_TOGETHER).map(|slots| PlanItem::Wait(some(slots))).collect()
        }
        item @ (PlanItem::Open(_)
        | PlanItem::Place(_)
        | PlanItem::Wait(_)
        | PlanItem::Stop { .. }
        | PlanItem::Close(_)
        | PlanItem::Restart { .. }
        | PlanItem::Reschedule { .. }
        | PlanItem::Collect { .. }
        | PlanItem::Step { .. }
        | PlanItem::NoRoom { .. }
        | PlanItem::Promote
        | PlanItem::GiveUp { .. }
        | PlanItem::EvenedOut) => vec![item],
    }
}

#[cfg(test)]
mod tests;
