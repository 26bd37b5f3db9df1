//! A plan that aborts a rollout starts nothing for that rollout.
//!
//! Groups are decided before it is known that one of them fails the rollout of the whole deployment. What the other
//! groups started in the same plan would be stopped again at once, and what was stopped to free capacity for it would
//! be lost.
//!
//! The revision that becomes current decides whether a failed replica is restarted, so the plan restarts nothing of the
//! deployment either; its groups are decided again after the plan is applied.
//!
//! Owns: removing those items. Must not touch: stops, and replacements made from the previous spec.

use std::collections::BTreeSet;

use longshore_model::{
    DeploymentPlan, GroupPlan, PlanItem, RevisionNumber, SlotGeneration, SlotKey,
    rollout::{RolloutChange, StepOutcome},
};

use crate::view::View;

/// Removes from a plan what it would start for the rollouts it aborts.
pub(super) fn drop_started_steps(view: &View, groups: &mut Vec<GroupPlan>, deployments: &[DeploymentPlan]) {
    for part in deployments.iter().filter(|part| matches!(part.change, RolloutChange::Abort(_))) {
        let Some(record) = view.rollouts.get(&(part.namespace.clone(), part.deployment.clone())) else { continue };
        let of_it = |group: &&mut GroupPlan| {
            (&group.group.namespace, &group.group.deployment) == (&part.namespace, &part.deployment)
        };
        for group in groups.iter_mut().filter(of_it) {
            let made = group.reservation.revision;
            let begun: BTreeSet<SlotKey> =
                group.items.iter().filter_map(|item| begun(item, made, record.rollout.to)).cloned().collect();
            let starts_again = |item: &PlanItem| matches!(item, PlanItem::Restart { .. });
            group.items.retain(|item| !starts_again(item) && !concerns(item).is_some_and(|slot| begun.contains(slot)));
        }
    }
    groups.retain(|group| !group.items.is_empty());
}

/// The slot whose step to revision `to` an item begins, or whose replica it creates from that revision.
fn begun(item: &PlanItem, made: RevisionNumber, to: RevisionNumber) -> Option<&SlotKey> {
    match item {
        PlanItem::Step { slot, outcome: StepOutcome::UnderWay, .. } => Some(slot),
        PlanItem::Place(placed) => {
            let revision = placed.reservation.as_ref().map_or(made, |reservation| reservation.revision);
            (revision == to).then_some(&placed.key.slot)
        }
        _ => None,
    }
}

/// The slot that an item places, stops, or begins a step for.
fn concerns(item: &PlanItem) -> Option<&SlotKey> {
    match item {
        PlanItem::Place(placed) => Some(&placed.key.slot),
        PlanItem::Stop(SlotGeneration { slot, .. }) | PlanItem::Step { slot, outcome: StepOutcome::UnderWay, .. } => {
            Some(slot)
        }
        _ => None,
    }
}
