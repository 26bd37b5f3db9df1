//! A new leader takes over.
//!
//! Owns: what is forgotten with the old leader: its view, its count of missed beats, how busy machines were, the pass it was about to make.
//! Must not touch: the state, which is all the new leader has.

use longshore_scheduler::{View, rebalance::Rebalancer};

use super::{Engine, passes::Debounce};

impl Engine<'_> {
    /// The view is made anew from the state. What else a leader keeps (beats, load, the pass it is about to make) stays: it is in
    /// nobody's state, and a run that lost it would be another run.
    pub(super) fn learn_the_view_anew(&mut self) {
        self.view = View::default();
        for event in self.state.events() {
            self.view.apply(&event);
        }
    }

    pub(super) fn change_leader(&mut self) {
        self.learn_the_view_anew();
        self.rebalancer = Rebalancer::new(self.clock());
        for machine in self.machines.values_mut() {
            machine.forget_missed();
        }
        self.debounce = Debounce::default();
        self.wake_at = None;
        self.chronicle.leader_changed(self.now);
        self.arm();
    }
}
