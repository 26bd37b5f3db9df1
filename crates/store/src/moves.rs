//! Moves that even the load leave their record, and services are asked to be evened out.
//!
//! Owns: what is remembered of a move, and who is to be evened out.
//! Must not touch: whether a move is a good one, and whether a spread is even.

use std::sync::Arc;

use longshore_model::{
    Event, GroupKey,
    rebalance::{EveningOut, Move},
    replica::Wanted,
    service::{Rebalance, ServiceSpec},
};

use crate::State;

impl State {
    /// Every service that allows it shall be evened out.
    pub(crate) fn even_out(&mut self) -> Vec<Event> {
        self.ask_to_even_out(|spec| match spec.rebalance {
            Rebalance::On | Rebalance::OnJoin => true,
            Rebalance::Off => false,
        })
    }

    /// A node takes work that did not before: services that said so want their share of it.
    pub(crate) fn node_came(&mut self) -> Vec<Event> {
        self.ask_to_even_out(|spec| match spec.rebalance {
            Rebalance::OnJoin => true,
            Rebalance::On | Rebalance::Off => false,
        })
    }

    fn ask_to_even_out(&mut self, who: impl Fn(&ServiceSpec) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        for (key, group) in &mut self.groups {
            let idle = group.wanted == Wanted::Run && group.evening_out == EveningOut::Idle;
            if idle && who(&group.spec) {
                group.evening_out = EveningOut::Asked;
                events.push(Event::EvenOutAsked(key.clone()));
            }
        }
        events
    }

    pub(crate) fn evened_out(&mut self, key: &GroupKey, events: &mut Vec<Event>) {
        if let Some(group) = self.groups.get_mut(key).filter(|group| group.evening_out == EveningOut::Asked) {
            group.evening_out = EveningOut::Idle;
            events.push(Event::EvenedOut(key.clone()));
        }
    }

    /// The slot and its new node remember when: that is what cooldowns are counted from, whoever leads.
    pub(crate) fn note_move(&mut self, made: Move, events: &mut Vec<Event>) {
        if let Some(slot) = self.groups.get_mut(&made.group).and_then(|group| group.slots.get_mut(&made.slot)) {
            slot.moved_at = Some(made.at);
        }
        let made = Arc::new(made);
        self.moves.insert(made.to.clone(), Arc::clone(&made));
        events.push(Event::Rebalanced(made));
    }
}
