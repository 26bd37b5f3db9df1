//! Stopped deployments: an operator's intent that no replica runs, until it is withdrawn.
//!
//! Owns: the intent and what it does to the rollout. Must not touch: replicas; the scheduler stops and places them.
//! Invariant: a stopped deployment keeps its revisions, slots, slot counters and volumes. A rollout that is live when the
//! deployment is stopped takes no step meanwhile and begins again when it is started; what is applied, scaled or rolled
//! back meanwhile needs no rollout, because nothing runs that could be replaced step by step.

use longshore_model::{
    DeploymentName, Event, Generation, GroupKey, NamespaceName, RolloutState, Time, replica::Details,
};

use crate::{
    CommandError, State,
    rollouts::{DeploymentRef, Origin},
};

impl State {
    pub(crate) fn stop_deployment(
        &mut self,
        namespace: &NamespaceName,
        name: &DeploymentName,
        at: Time,
    ) -> Result<Vec<Event>, CommandError> {
        if self.desired_deployment(namespace, name)?.is_stopped() {
            return Ok(Vec::new());
        }
        if let Some(known) = self.deployments.get_mut(&(namespace.clone(), name.clone())) {
            known.stopped_since = Some(at);
        }
        let keys: Vec<GroupKey> = self.groups_of(namespace, name).map(|(key, _)| key.clone()).collect();
        let groups = keys.iter().filter_map(|key| Some((key, self.groups.get(key)?)));
        let waits = groups.filter(|(_, group)| group.slots.values().any(|slot| slot.waiting.is_some()));
        // A slot of a stopped deployment waits for nothing but the operator.
        for key in waits.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            let slots = self.groups.get_mut(&key).map(|group| group.slots.values_mut());
            for slot in slots.into_iter().flatten() {
                slot.waiting = None;
                slot.waiting_details = Details::new();
            }
        }
        Ok(vec![Event::DeploymentStopped { namespace: namespace.clone(), deployment: name.clone() }])
    }

    pub(crate) fn start_deployment(
        &mut self,
        namespace: &NamespaceName,
        name: &DeploymentName,
        at: Time,
    ) -> Result<Vec<Event>, CommandError> {
        self.desired_deployment(namespace, name)?;
        let mut events = Vec::new();
        if self.clear_stop(namespace, name, &mut events) {
            self.begin_rollout_again(DeploymentRef::new(namespace, name), at, &mut events);
            self.reset_failures(namespace, name, &mut events);
        }
        Ok(events)
    }

    /// Withdraws the intent. Returns whether the deployment was stopped.
    pub(crate) fn clear_stop(
        &mut self,
        namespace: &NamespaceName,
        name: &DeploymentName,
        events: &mut Vec<Event>,
    ) -> bool {
        let known = self.deployments.get_mut(&(namespace.clone(), name.clone()));
        let Some(known) = known.filter(|known| known.is_stopped()) else { return false };
        known.stopped_since = None;
        let keys: Vec<GroupKey> = self.groups_of(namespace, name).map(|(key, _)| key.clone()).collect();
        for key in &keys {
            let Some(group) = self.groups.get_mut(key) else { continue };
            for slot in group.slots.values_mut() {
                slot.starts_again = Some(Generation(slot.newest.0 + 1));
            }
        }
        events.push(Event::DeploymentStarted { namespace: namespace.clone(), deployment: name.clone() });
        true
    }

    /// Begins the live rollout of a deployment once more: the generations that its steps made were stopped. One that was
    /// paused stays paused. One that was on its way back has arrived: nothing of the failed revision is left.
    pub(crate) fn begin_rollout_again(&mut self, owner: DeploymentRef<'_>, at: Time, events: &mut Vec<Event>) {
        let known = self.deployment(owner.namespace, owner.name);
        let live = known.and_then(|known| known.rollout.clone()).filter(|rollout| rollout.is_live());
        let Some(rollout) = live else { return };
        if rollout.state == RolloutState::Aborted {
            self.end_rollout(&(owner.namespace.clone(), owner.name.clone()), events);
        } else {
            let origin = Origin { from: rollout.from, before: rollout.prior_rollback_target };
            self.begin_rollout(owner, rollout.kind, origin, at, events);
        }
        self.bring_in_force(owner.namespace, owner.name, events);
        if rollout.state == RolloutState::Paused {
            self.pause_again(owner, rollout.failure.clone(), at, events);
        }
    }
}
