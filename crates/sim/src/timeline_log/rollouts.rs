//! Entries about rollouts.
//!
//! Owns: which change of a rollout makes which entry.

use longshore_model::{
    DeploymentName, Generation, GroupKey, NamespaceName, Rollout, RolloutState, SlotKey, Time,
    replica::Detail,
    rollout::{RolloutKind, Step, StepOutcome},
};

use super::{Entry, EntryKind, TimelineLog};

impl TimelineLog {
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
                Some((number, RolloutState::Paused)) if number == rollout.number => EntryKind::RolloutResumed,
                Some((number, _)) if number == rollout.number => EntryKind::RolloutPromoted,
                Some(_) | None => EntryKind::RolloutStarted,
            },
            RolloutState::Paused => EntryKind::RolloutPaused,
            RolloutState::AwaitingPromotion => EntryKind::RolloutAwaitsPromotion,
            RolloutState::Completed => EntryKind::RolloutCompleted,
            RolloutState::Aborted => EntryKind::RolloutAborted,
            RolloutState::RolledBack => EntryKind::RolledBack,
            RolloutState::Superseded => EntryKind::RolloutSuperseded,
        };
        let failed = rollout.failure.as_ref().map(|failure| {
            let (namespace, deployment) = (namespace.clone(), deployment.clone());
            let group = GroupKey { namespace, deployment, service: failure.service.clone() };
            (failure.code.code(), failure.slot.replica_id(&group))
        });
        let entry = self.push(now, kind);
        entry.deployment = Some(deployment.to_string());
        insert_number(entry, "from", rollout.from.0);
        insert_number(entry, "to", rollout.to.0);
        if rollout.kind == RolloutKind::Rollback {
            entry.details.insert("kind".to_owned(), Detail::Text("rollback".to_owned()));
        }
        let steps = rollout.steps.values().fold((0, 0), |sum, count| (sum.0 + count.total, sum.1 + count.done));
        if kind != EntryKind::RolloutStarted && steps.0 > 0 {
            insert_number(entry, "total_steps", u64::from(steps.0));
            insert_number(entry, "current_step", u64::from(steps.1));
        }
        if let Some((code, replica)) = failed.filter(|_| kind != EntryKind::RolledBack) {
            entry.failure_reason = Some(code);
            entry.details.insert("failed_replica".to_owned(), Detail::Text(replica));
        }
    }

    /// Records a step that is done, or has failed while the rollout goes on.
    pub(super) fn stepped(&mut self, now: Time, group: &GroupKey, slot: &SlotKey, step: Step) {
        let code = match step.outcome {
            StepOutcome::UnderWay => return,
            StepOutcome::Done => None,
            StepOutcome::Failed(code) => Some(code.code()),
        };
        let newest = self.generations_of(group, slot).rev().find(|key| !self.stopping.contains(key)).cloned();
        let key = newest.unwrap_or_else(|| group.replica(slot, Generation(0)));
        self.push_replica(now, EntryKind::RolloutStep, &key).code = code;
    }
}

fn insert_number(entry: &mut Entry, name: &str, number: u64) {
    entry.details.insert(name.to_owned(), Detail::Number(number));
}
