//! Applies a plan to a view without a state machine.
//!
//! Owns: the events of a committed plan. A state of a million replicas would use more memory than the scheduler that is
//! measured; a test compares these events with the state machine's.

use longshore_model::{Assignment, Event, Generation, GroupPlan, Plan, PlanItem, volume::Volume};
use longshore_scheduler::View;

/// Applies the events of committing the plan to the view.
pub(super) fn apply(view: &mut View, plan: Plan) {
    let at = plan.made_at;
    for part in plan.groups {
        for_each_event(part, at, &mut |event| view.apply(&event));
    }
}

/// Passes the events of one group's part of a plan to `emit`.
pub(super) fn for_each_event(part: GroupPlan, at: longshore_model::Time, emit: &mut impl FnMut(Event)) {
    let GroupPlan { group, reservation, items } = part;
    for item in items {
        match item {
            PlanItem::Open(slot) => {
                emit(Event::SlotOpened { group: group.clone(), slot, newest: Generation(0), moved_at: None });
            }
            PlanItem::Place(placement) => {
                let key = placement.key.in_group(&group);
                // Nothing moves in a benchmark, so a placement is a slot's first.
                emit(Event::SlotOpened {
                    group: group.clone(),
                    slot: key.slot.clone(),
                    newest: Generation(0),
                    moved_at: None,
                });
                for volume in placement.new_volumes {
                    let (owner, home) = (group.deployment.clone(), placement.node.clone());
                    emit(Event::VolumeCreated(Volume { key: volume, owner, home, engine_name: None }));
                }
                let (node, address, devices) = (placement.node, placement.address, placement.devices);
                let assignment = Assignment { node, address, placed_at: at, reservation: reservation.clone(), devices };
                emit(Event::Placed { key, assignment });
            }
            PlanItem::Wait(wait) => {
                for slot in wait.slots {
                    let (reason, details) = (wait.reason, wait.details.clone());
                    emit(Event::SlotWaits { group: group.clone(), slot, reason, details });
                }
            }
            PlanItem::Stop(key) => emit(Event::Stopping(key.in_group(&group))),
            // A benchmark plans none of these: its services only grow and never run.
            PlanItem::Close(_)
            | PlanItem::Restart { .. }
            | PlanItem::Reschedule { .. }
            | PlanItem::Collect(_)
            | PlanItem::Step { .. }
            | PlanItem::NoRoom { .. }
            | PlanItem::Blocked { .. }
            | PlanItem::Promote
            | PlanItem::GiveUp { .. }
            | PlanItem::EvenOutDone => {}
        }
    }
}
