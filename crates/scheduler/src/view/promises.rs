//! What a plan gave out and has not been heard of since.
//!
//! Whoever waits was answered as if all that the plan placed were there. A plan may never be committed, or in part, and one that
//! aborts a rollout leaves out what it would have begun; then the group may ask for less when its turn comes again, and
//! the room it does not take is somebody else's. Asking all that wait again with every pass was refused: there may be many, and
//! mostly every promise is kept.
//!
//! Owns: the count of each group's outstanding placements. Must not touch: what is placed.
//! Invariant: where nobody waited, nothing is noted.

use std::collections::BTreeMap;

use longshore_model::{GroupKey, GroupPlan, PlanItem};

use super::{GroupIx, View};

impl View {
    /// Placements of the last plan that were not heard of yet, by group.
    pub(crate) fn outstanding(&self) -> Vec<(GroupIx, u32)> {
        let count = |group: &GroupIx| self.groups[group.at()].as_ref().map(|known| (*group, known.promised));
        self.promised.iter().filter_map(count).filter(|(_, count)| *count > 0).collect()
    }

    /// Whether a plan gives a group fewer nodes than it was promised.
    pub(crate) fn falls_short(&self, groups: &[GroupPlan], outstanding: &[(GroupIx, u32)]) -> bool {
        if outstanding.is_empty() {
            return false;
        }
        let given: BTreeMap<&GroupKey, u32> = groups.iter().map(|part| (&part.group, placements(part))).collect();
        let is_short = |(group, promised): &(GroupIx, u32)| {
            let known = self.groups[group.at()].as_ref();
            known.is_some_and(|known| given.get(&known.key).is_none_or(|given| given < promised))
        };
        outstanding.iter().any(is_short)
    }

    /// Notes what a plan gives out, where somebody waits.
    pub(crate) fn promise(&mut self, groups: &[GroupPlan]) {
        for group in std::mem::take(&mut self.promised) {
            if let Some(known) = self.groups[group.at()].as_mut() {
                known.promised = 0;
            }
        }
        if self.waiting.is_empty() {
            return;
        }
        for (part, count) in groups.iter().map(|part| (part, placements(part))).filter(|(_, count)| *count > 0) {
            if let Some(&group) = self.group_ids.get(&part.group) {
                self.group_mut(group).promised = count;
                self.promised.push(group);
            }
        }
    }
}

fn placements(part: &GroupPlan) -> u32 {
    let count = part.items.iter().filter(|item| matches!(item, PlanItem::Place(_))).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}
