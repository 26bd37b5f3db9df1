//! A paused rollout is still paused after a change of counts, a restart, or a new version of a secret: only a resume, a
//! rollback or another manifest goes on.

use std::{collections::BTreeMap, sync::Arc};

use longshore_model::{DeploymentName, DeploymentSpec, NamespaceName, Rollout, RolloutState, rollout::RolloutKind};
use longshore_store::State;

pub(super) const NAME: &str = "stays_paused";

/// The paused rollout of each deployment, until it is resumed or replaced by one that is not held.
#[derive(Debug, Default)]
pub(super) struct PausedRollouts(BTreeMap<(NamespaceName, DeploymentName), Arc<Rollout>>);

impl PausedRollouts {
    pub(super) fn record(&mut self, namespace: &NamespaceName, deployment: &DeploymentName, rollout: &Arc<Rollout>) {
        let key = (namespace.clone(), deployment.clone());
        match rollout.state {
            RolloutState::Paused => drop(self.0.insert(key, Arc::clone(rollout))),
            // Judged by `check`, once the whole command was carried out.
            RolloutState::Superseded => {}
            RolloutState::InProgress if self.0.get(&key).is_some_and(|paused| paused.number != rollout.number) => {}
            RolloutState::InProgress
            | RolloutState::AwaitingPromotion
            | RolloutState::Completed
            | RolloutState::Aborted
            | RolloutState::RolledBack => drop(self.0.remove(&key)),
        }
    }

    /// Deployments whose rollout went on without a resume.
    pub(super) fn check(&mut self, state: &State) -> Vec<String> {
        let mut messages = Vec::new();
        self.0.retain(|(namespace, name), paused| {
            let Some(known) = state.deployment(namespace, name) else { return false };
            let Some(rollout) = known.rollout.as_ref().filter(|rollout| rollout.number != paused.number) else {
                return true;
            };
            let spec = |number| known.revision(number).map(|revision| &revision.spec);
            let same = spec(paused.to).zip(spec(rollout.to)).is_some_and(|(before, after)| is_recounted(before, after));
            let goes_on = rollout.state == RolloutState::InProgress && rollout.kind == RolloutKind::Forward;
            if same && goes_on && paused.kind == RolloutKind::Forward {
                messages.push(format!("the paused rollout of {namespace}/{name} goes on as {}", rollout.number));
            }
            rollout.state == RolloutState::Paused
        });
        messages
    }
}

/// Whether two manifests differ at most in counts.
fn is_recounted(before: &DeploymentSpec, after: &DeploymentSpec) -> bool {
    let mut after = after.clone();
    for (name, service) in &mut after.services {
        if let Some(known) = before.services.get(name) {
            Arc::make_mut(service).replicas = known.replicas;
        }
    }
    after == *before
}
