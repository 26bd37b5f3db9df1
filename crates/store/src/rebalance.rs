//! Records rebalancing moves and requests spread rebalances.
//!
//! Owns: the latest move to each node, and which services have a spread rebalance requested.
//! Must not touch: whether a move is worthwhile or a spread is even.

use std::sync::Arc;

use longshore_model::{
    Event, GroupKey,
    rebalance::{Move, SpreadRebalance},
    replica::DesiredState,
    service::{Rebalance, ServiceSpec},
};

use crate::State;

impl State {
    /// Requests a spread rebalance of every service that allows it.
    pub(crate) fn request_rebalance_of_all(&mut self) -> Vec<Event> {
        self.request_rebalance(|spec| match spec.rebalance {
            Rebalance::On | Rebalance::OnJoin => true,
            Rebalance::Off => false,
        })
    }

    /// A node became schedulable: requests a rebalance of every service with `Rebalance::OnJoin`.
    pub(crate) fn request_rebalance_on_join(&mut self) -> Vec<Event> {
        self.request_rebalance(|spec| match spec.rebalance {
            Rebalance::OnJoin => true,
            Rebalance::On | Rebalance::Off => false,
        })
    }

    fn request_rebalance(&mut self, who: impl Fn(&ServiceSpec) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        for (key, group) in &mut self.groups {
            let idle = group.desired == DesiredState::Run && group.spread_rebalance == SpreadRebalance::Idle;
            if idle && who(&group.spec) {
                group.spread_rebalance = SpreadRebalance::Requested;
                events.push(Event::EvenOutRequested(key.clone()));
            }
        }
        events
    }

    pub(crate) fn finish_rebalance(&mut self, key: &GroupKey, events: &mut Vec<Event>) {
        if let Some(group) =
            self.groups.get_mut(key).filter(|group| group.spread_rebalance == SpreadRebalance::Requested)
        {
            group.spread_rebalance = SpreadRebalance::Idle;
            events.push(Event::EvenOutDone(key.clone()));
        }
    }

    /// Records the time of a move with the slot and its new node, so that every leader counts cooldowns from it.
    pub(crate) fn record_move(&mut self, made: Move, events: &mut Vec<Event>) {
        if let Some(slot) = self.groups.get_mut(&made.key.group).and_then(|group| group.slots.get_mut(&made.key.slot)) {
            slot.moved_at = Some(made.at);
        }
        let made = Arc::new(made);
        self.moves.insert(made.to.clone(), Arc::clone(&made));
        events.push(Event::Rebalanced(made));
    }
}
