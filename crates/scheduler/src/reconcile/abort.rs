//! The plan that aborts a rollout begins nothing for it.
//!
//! Groups have their turns before it is known that one of them breaks the rollout of all. What the others began in the same
//! plan would be stopped again at once, and what made room for it would be gone for nothing.
//!
//! Whether something that failed starts again is for the manifest to say that comes into force, so the plan starts nothing of
//! the deployment again either; its groups are asked once more when the plan is in force.
//!
//! Owns: taking that out again. Must not touch: what ends, and what is replaced as it was.

use std::collections::BTreeSet;

use longshore_model::{
    DeploymentPlan, GroupPlan, PlanItem, RevisionNumber, SlotKey,
    rollout::{RolloutChange, StepOutcome},
};

use crate::view::View;

/// Takes what would be begun for a rollout out of the plan that aborts it.
pub(super) fn begin_nothing(view: &View, groups: &mut Vec<GroupPlan>, deployments: &[DeploymentPlan]) {
    for part in deployments.iter().filter(|part| matches!(part.change, RolloutChange::Abort(_))) {
        let Some(known) = view.rollouts.get(&(part.namespace.clone(), part.deployment.clone())) else { continue };
        let of_it = |group: &&mut GroupPlan| {
            (&group.group.namespace, &group.group.deployment) == (&part.namespace, &part.deployment)
        };
        for group in groups.iter_mut().filter(of_it) {
            let made = group.terms.revision;
            let begun: BTreeSet<SlotKey> =
                group.items.iter().filter_map(|item| begun(item, made, known.rollout.to)).cloned().collect();
            let starts_again = |item: &PlanItem| matches!(item, PlanItem::Restart { .. });
            group.items.retain(|item| !starts_again(item) && !concerns(item).is_some_and(|slot| begun.contains(slot)));
        }
    }
    groups.retain(|group| !group.items.is_empty());
}

/// The slot for which an item begins a step to a revision, or makes something of it.
fn begun(item: &PlanItem, made: RevisionNumber, to: RevisionNumber) -> Option<&SlotKey> {
    match item {
        PlanItem::Step { slot, outcome: StepOutcome::UnderWay, .. } => Some(slot),
        PlanItem::Place(placed) => {
            let revision = placed.terms.as_ref().map_or(made, |terms| terms.revision);
            (revision == to).then_some(&placed.slot)
        }
        _ => None,
    }
}

/// The slot an item gives or takes a generation, or begins a step for.
fn concerns(item: &PlanItem) -> Option<&SlotKey> {
    match item {
        PlanItem::Place(placed) => Some(&placed.slot),
        PlanItem::Stop { slot, .. } | PlanItem::Step { slot, outcome: StepOutcome::UnderWay, .. } => Some(slot),
        _ => None,
    }
}
