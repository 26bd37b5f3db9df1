//! Placements of the last plan that are not committed yet.
//!
//! Waiting groups were decided as if everything the plan placed were there. A plan may be committed in part or not at
//! all, and a plan that aborts a rollout drops the steps it would have begun; the group may then request less in its
//! next turn, and the capacity it does not take is available to others. Deciding all waiting groups in every pass was
//! refused: there may be many, and most plans are committed in full.
//!
//! Owns: the number of outstanding placements of each group. Must not touch: what is placed.
//! Invariant: nothing is recorded while no group waits.

use std::collections::BTreeMap;

use longshore_model::{GroupKey, GroupPlan, PlanItem};

use super::{GroupIx, View};

impl View {
    /// The outstanding placements of the last plan, by group.
    pub(crate) fn outstanding_placements(&self) -> Vec<(GroupIx, u32)> {
        let count = |group: &GroupIx| self.groups[group.at()].as_ref().map(|record| (*group, record.outstanding));
        self.outstanding_groups.iter().filter_map(count).filter(|(_, count)| *count > 0).collect()
    }

    /// Whether a plan places fewer replicas of a group than were outstanding.
    pub(crate) fn falls_short(&self, groups: &[GroupPlan], outstanding: &[(GroupIx, u32)]) -> bool {
        if outstanding.is_empty() {
            return false;
        }
        let given: BTreeMap<&GroupKey, u32> = groups.iter().map(|part| (&part.group, placements(part))).collect();
        let is_short = |(group, promised): &(GroupIx, u32)| {
            let record = self.groups[group.at()].as_ref();
            record.is_some_and(|record| given.get(&record.key).is_none_or(|given| given < promised))
        };
        outstanding.iter().any(is_short)
    }

    /// Records the placements of a plan, if any group waits.
    pub(crate) fn record_outstanding(&mut self, groups: &[GroupPlan]) {
        for group in std::mem::take(&mut self.outstanding_groups) {
            if let Some(record) = self.groups[group.at()].as_mut() {
                record.outstanding = 0;
            }
        }
        if self.waiting.is_empty() {
            return;
        }
        for (part, count) in groups.iter().map(|part| (part, placements(part))).filter(|(_, count)| *count > 0) {
            if let Some(&group) = self.group_ids.get(&part.group) {
                self.group_mut(group).outstanding = count;
                self.outstanding_groups.push(group);
            }
        }
    }
}

fn placements(part: &GroupPlan) -> u32 {
    let count = part.items.iter().filter(|item| matches!(item, PlanItem::Place(_))).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}
