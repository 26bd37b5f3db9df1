//! A plan's effect on a view without a state machine in between.
//!
//! Owns: the events a committed plan leads to. A state of a million replicas would cost more memory than the scheduler
//! it is to measure; a test holds these events equal to the state machine's.

use longshore_model::{Assignment, Event, Generation, GroupPlan, Plan, PlanItem, volume::Volume};
use longshore_scheduler::View;

/// Feeds the view with what committing the plan would lead to.
pub(super) fn take(view: &mut View, plan: Plan) {
    let at = plan.made_at;
    for part in plan.groups {
        each(part, at, &mut |event| view.apply(&event));
    }
}

/// The events of one group's part.
pub(super) fn each(part: GroupPlan, at: longshore_model::Time, tell: &mut impl FnMut(Event)) {
    let GroupPlan { group, terms, items } = part;
    for item in items {
        match item {
            PlanItem::Open(slot) => {
                tell(Event::SlotOpened { group: group.clone(), slot, newest: Generation(0), moved_at: None });
            }
            PlanItem::Place(placement) => {
                let slot = placement.slot;
                // Nothing moves in a benchmark, so a placement is a slot's first.
                tell(Event::SlotOpened {
                    group: group.clone(),
                    slot: slot.clone(),
                    newest: Generation(0),
                    moved_at: None,
                });
                for key in placement.new_volumes {
                    let (owner, home) = (group.deployment.clone(), placement.node.clone());
                    tell(Event::VolumeMade(Volume { key, owner, home }));
                }
                let (node, address, devices) = (placement.node, placement.address, placement.devices);
                let assignment = Assignment { node, address, placed_at: at, terms: terms.clone(), devices };
                let generation = placement.generation;
                tell(Event::Placed { group: group.clone(), slot, generation, assignment });
            }
            PlanItem::Wait(wait) => {
                for slot in wait.slots {
                    let (reason, details) = (wait.reason, wait.details.clone());
                    tell(Event::SlotWaits { group: group.clone(), slot, reason, details });
                }
            }
            PlanItem::Stop { slot, generation } => tell(Event::Stopping { group: group.clone(), slot, generation }),
            // None of these can follow from services that only grow and never run.
            PlanItem::Close(_)
            | PlanItem::Restart { .. }
            | PlanItem::Reschedule { .. }
            | PlanItem::Collect { .. }
            | PlanItem::Step { .. }
            | PlanItem::NoRoom { .. }
            | PlanItem::Promote
            | PlanItem::GiveUp { .. }
            | PlanItem::EvenedOut => {}
        }
    }
}
