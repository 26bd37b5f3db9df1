//! The turn of a group whose deployment an operator stopped.
//!
//! Every generation is stopped, and the slots stay, so that the replicas have the same ids when the deployment is started
//! again. A completed replica is kept: it does not run, and starting the deployment must not run it again.
//!
//! Owns: what is stopped. Must not touch: the rollout, which does not advance meanwhile.

use longshore_model::{PlanItem, ReplicaState, replica::DesiredState};

use super::{GroupPass, scale};
use crate::view::{
    GroupIx,
    groups::{Replica, Slot},
};

/// Closes the slots beyond the count and stops every generation of the others.
pub(super) fn stop_all(pass: &mut GroupPass<'_>, group: GroupIx) {
    pass.view.waiting.remove(&group);
    let record = pass.view.group(group);
    let closed = scale::beyond_count(pass.view, record);
    let runs = |replica: &&Replica| replica.desired == DesiredState::Run && replica.state != ReplicaState::Completed;
    let stops = |slot: &Slot| {
        let running = slot.replicas.iter().filter(runs);
        let stop = |replica: &Replica| PlanItem::Stop(slot.key.generation(replica.generation));
        running.map(stop).collect::<Vec<_>>()
    };
    let kept = record.desired_slots().filter(|slot| !closed.contains(&slot.key));
    let items: Vec<PlanItem> = kept.flat_map(stops).collect();
    pass.items.extend(closed.into_iter().map(PlanItem::Close));
    pass.items.extend(items);
}
