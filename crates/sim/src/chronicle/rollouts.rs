//! Rollouts in the timeline.
//!
//! Owns: which change of a rollout's record makes which entry.

use longshore_model::{
    DeploymentName, Generation, GroupKey, NamespaceName, Rollout, RolloutState, SlotKey, Time,
    replica::Detail,
    rollout::{RolloutKind, Step, StepOutcome},
};

use super::{Chronicle, Entry, Kind};

impl Chronicle {
    pub(super) fn rollout_changed(
        &mut self,
        now: Time,
        namespace: &NamespaceName,
        deployment: &DeploymentName,
        rollout: &Rollout,
    ) {
        let owner = (namespace.clone(), deployment.clone());
        let before = self.rollouts.insert(owner, (rollout.number, rollout.state));
        let kind = match rollout.state {
            RolloutState::InProgress => match before {
                Some((number, RolloutState::Paused)) if number == rollout.number => Kind::RolloutResumed,
                Some((number, _)) if number == rollout.number => Kind::RolloutPromoted,
                Some(_) | None => Kind::RolloutStarted,
            },
            RolloutState::Paused => Kind::RolloutPaused,
            RolloutState::AwaitingPromotion => Kind::RolloutAwaitsPromotion,
            RolloutState::Completed => Kind::RolloutCompleted,
            RolloutState::Aborted => Kind::RolloutAborted,
            RolloutState::RolledBack => Kind::RolledBack,
            RolloutState::Superseded => Kind::RolloutSuperseded,
        };
        let failed = rollout.failure.as_ref().map(|failure| {
            let (namespace, deployment) = (namespace.clone(), deployment.clone());
            let group = GroupKey { namespace, deployment, service: failure.service.clone() };
            (failure.code.code(), failure.slot.printed(&group))
        });
        let entry = self.push(now, kind);
        entry.deployment = Some(deployment.to_string());
        tell(entry, "from", rollout.from.0);
        tell(entry, "to", rollout.to.0);
        if rollout.kind == RolloutKind::Rollback {
            entry.details.insert("kind".to_owned(), Detail::Text("rollback".to_owned()));
        }
        let steps = rollout.steps.values().fold((0, 0), |sum, count| (sum.0 + count.total, sum.1 + count.done));
        if kind != Kind::RolloutStarted && steps.0 > 0 {
            tell(entry, "total_steps", u64::from(steps.0));
            tell(entry, "current_step", u64::from(steps.1));
        }
        if let Some((code, replica)) = failed.filter(|_| kind != Kind::RolledBack) {
            entry.failure_reason = Some(code);
            entry.details.insert("failed_replica".to_owned(), Detail::Text(replica));
        }
    }

    /// A step is told when it is done, or has failed and the rollout goes on without it.
    pub(super) fn stepped(&mut self, now: Time, group: &GroupKey, slot: &SlotKey, step: Step) {
        let code = match step.outcome {
            StepOutcome::UnderWay => return,
            StepOutcome::Done => None,
            StepOutcome::Failed(code) => Some(code.code()),
        };
        let going = |generation: &Generation| self.stopping.contains(&(group.clone(), slot.clone(), *generation));
        let generation = self.generations_of(group, slot).rev().find(|generation| !going(generation));
        let generation = generation.unwrap_or(Generation(0));
        let entry = self.push_replica(now, Kind::RolloutStep, group, slot, generation);
        entry.code = code;
    }
}

fn tell(entry: &mut Entry, name: &str, number: u64) {
    entry.details.insert(name.to_owned(), Detail::Number(number));
}
