//! Splits a plan that is too large for one log entry.
//!
//! Owns: where a plan is split.
//! Must not touch: the order of its items. Parts are committed one after another, with the same effect as the whole
//! plan.
//! Invariant: the parts contain each item once, with changes of nodes and deployments last, and each fits into one
//! entry unless a single item does not. Each part is a plan of its own that can be checked and appended.

use longshore_model::{DeploymentPlan, GroupPlan, NodePlan, Plan, PlanItem, Wait};
use serde::Serialize;

use super::{ProposeError, encoding};

/// Slots of one `Wait` in a part. A million slots may wait for the same reason; 1,000 with the longest node names take
/// half an entry.
const SLOTS_TOGETHER: usize = 1_000;
/// The most a list takes beyond its elements, in bytes.
const LIST: usize = 8;

/// Splits the plan into parts of at most `room` bytes each. A plan that fits is the only part; an empty plan has none.
pub(super) fn split(plan: Plan, room: usize) -> Result<Vec<Plan>, ProposeError> {
    if plan.is_empty() {
        return Ok(Vec::new());
    }
    if encoding::fits(&plan, room).map_err(unencodable)? {
        return Ok(vec![plan]);
    }
    let Plan { made_from, made_at, groups, nodes, deployments, wake_at } = plan;
    let head = Plan { made_from, made_at, wake_at, ..Plan::default() };
    let empty = encoded_bytes(&head)? + 3 * LIST;
    let mut splitter =
        PlanSplitter { open: head.clone(), head, parts: Vec::new(), room: room.saturating_sub(empty), used: 0 };
    for group in groups {
        splitter.add_group(group)?;
    }
    for node in nodes {
        splitter.add_node(node)?;
    }
    for deployment in deployments {
        splitter.add_deployment(deployment)?;
    }
    splitter.close();
    Ok(splitter.parts)
}

fn encoded_bytes<T: Serialize>(value: &T) -> Result<usize, ProposeError> {
    encoding::size(value).map_err(unencodable)
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes the error by value")]
fn unencodable(error: encoding::EncodingError) -> ProposeError {
    ProposeError::StorageFailed(error.to_string())
}

/// Fills one part after another.
struct PlanSplitter {
    /// A plan without items, cloned for each part.
    head: Plan,
    parts: Vec<Plan>,
    /// The part that is being filled.
    open: Plan,
    room: usize,
    used: usize,
}

impl PlanSplitter {
    fn close(&mut self) {
        self.used = 0;
        let full = std::mem::replace(&mut self.open, self.head.clone());
        if !full.is_empty() {
            self.parts.push(full);
        }
    }

    /// Makes sure that the open part has room for `bytes`, starting a new part if needed.
    fn make_room(&mut self, bytes: usize) {
        if self.used + bytes > self.room {
            self.close();
        }
        self.used += bytes;
    }

    fn add_group(&mut self, whole: GroupPlan) -> Result<(), ProposeError> {
        let GroupPlan { group, reservation, items } = whole;
        let head = GroupPlan { group, reservation, items: Vec::new() };
        let head_bytes = encoded_bytes(&head)? + LIST;
        let mut begun = None;
        for item in items.into_iter().flat_map(split_long_item) {
            let bytes = encoded_bytes(&item)?;
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
        self.make_room(encoded_bytes(&node)?);
        self.open.nodes.push(node);
        Ok(())
    }

    fn add_deployment(&mut self, deployment: DeploymentPlan) -> Result<(), ProposeError> {
        self.make_room(encoded_bytes(&deployment)?);
        self.open.deployments.push(deployment);
        Ok(())
    }
}

/// Splits a `Wait` with very many slots into several; other items are returned as they are.
fn split_long_item(item: PlanItem) -> Vec<PlanItem> {
    match item {
        PlanItem::Wait(Wait { slots, reason, details }) if slots.len() > SLOTS_TOGETHER => {
            let some = |slots: &[_]| Wait { slots: slots.to_vec(), reason, details: details.clone() };
            slots.chunks(SLOTS_TOGETHER).map(|slots| PlanItem::Wait(some(slots))).collect()
        }
        item @ (PlanItem::Open(_)
        | PlanItem::Place(_)
        | PlanItem::Wait(_)
        | PlanItem::Stop(_)
        | PlanItem::Close(_)
        | PlanItem::Restart { .. }
        | PlanItem::Reschedule { .. }
        | PlanItem::Collect(_)
        | PlanItem::Step { .. }
        | PlanItem::NoRoom { .. }
        | PlanItem::Blocked { .. }
        | PlanItem::Promote
        | PlanItem::GiveUp { .. }
        | PlanItem::EvenOutDone) => vec![item],
    }
}

#[cfg(test)]
mod tests;
