//! Whether a namespace's ceiling leaves room for what a command asks.
//!
//! This is the answer given at the front door, before a command is recorded. [`State::apply`] itself does not ask: two
//! doors may let one through each, and a ceiling may be lowered later, so the scheduler has the last word in any case
//! and shows whoever came too late as waiting.
//!
//! Owns: what is desired of a namespace, added up. Must not touch: what runs, which the scheduler counts.
//! Invariant: a command that asks for no more than before is always admitted.

use std::collections::BTreeMap;

use longshore_model::{
    ClusterConfig, Command, GroupKey, NamespaceName, ReplicaState, ServiceKind, ServiceSpec,
    command::{Quota, QuotaDimension},
    replica::Wanted,
};

use crate::{CommandError, Group, State, conflicts::runs_per_node};

/// Amounts in the three dimensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// Replicas.
    pub replicas: u64,
    /// Memory, overhead included.
    pub memory_bytes: u64,
    /// CPU requests, thousandths of a core.
    pub cpu_millis: u64,
}

/// A namespace: what is asked for in it, and how much may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Deployments in it.
    pub deployments: usize,
    /// What they ask for together.
    pub desired: Desired,
    /// Its ceilings, where there are any.
    pub quota: Option<Quota>,
}

impl State {
    /// Every namespace that has a deployment or a ceiling.
    pub fn namespaces(&self) -> BTreeMap<NamespaceName, Share> {
        let mut shares: BTreeMap<NamespaceName, Share> = BTreeMap::new();
        for (namespace, quota) in &self.quotas {
            shares.entry(namespace.clone()).or_default().quota = Some(*quota);
        }
        for (namespace, ..) in self.deployments() {
            shares.entry(namespace.clone()).or_default().deployments += 1;
        }
        for (key, group) in self.groups.iter().filter(|(_, group)| group.wanted == Wanted::Run) {
            let count = replicas(&group.spec, group.spec.replicas, Some(group));
            shares.entry(key.namespace.clone()).or_default().desired.add(&group.spec, count, &self.config);
        }
        shares
    }

    /// Refuses a command that asks for more than its namespace has left. Only manifests and counts ask for anything.
    pub fn admits(&self, command: &Command) -> Result<(), CommandError> {
        match command {
            Command::Apply { namespace, deployment, spec } => {
                let key = |service| GroupKey { namespace: namespace.clone(), deployment: deployment.clone(), service };
                let asked =
                    spec.services.iter().map(|(service, spec)| (key(service.clone()), (&**spec, spec.replicas)));
                let replaced = |group: &GroupKey| group.namespace == *namespace && group.deployment == *deployment;
                self.within_quota(namespace, replaced, &asked.collect())
            }
            Command::Scale { group, replicas } => match self.groups.get(group) {
                Some(known) => {
                    let asked = [(group.clone(), (&*known.spec, *replicas))].into();
                    self.within_quota(&group.namespace, |other| other == group, &asked)
                }
                // Whoever applies it says so.
                None => Ok(()),
            },
            Command::Configure(_)
            | Command::Join(_)
            | Command::Label { .. }
            | Command::SetIntent { .. }
            | Command::Drain { .. }
            | Command::ConfirmLost { .. }
            | Command::SetHealth { .. }
            | Command::SetUseDegraded { .. }
            | Command::Remove { .. }
            | Command::Rollback { .. }
            | Command::Steer { .. }
            | Command::Restart { .. }
            | Command::PutSecret { .. }
            | Command::SetQuota { .. }
            | Command::Access(_)
            | Command::Refresh { .. }
            | Command::Commit(_)
            | Command::EvenOut
            | Command::NoteExec { .. }
            | Command::NoteBackup
            | Command::Observe(_) => Ok(()),
        }
    }

    fn within_quota(
        &self,
        namespace: &NamespaceName,
        replaced: impl Fn(&GroupKey) -> bool,
        asked: &BTreeMap<GroupKey, (&ServiceSpec, u32)>,
    ) -> Result<(), CommandError> {
        let Some(quota) = self.quotas.get(namespace) else { return Ok(()) };
        let (mut before, mut after) = (Desired::default(), Desired::default());
        let known =
            self.groups.iter().filter(|(key, group)| key.namespace == *namespace && group.wanted == Wanted::Run);
        for (key, group) in known {
            before.add(&group.spec, replicas(&group.spec, group.spec.replicas, Some(group)), &self.config);
            if !replaced(key) {
                after.add(&group.spec, replicas(&group.spec, group.spec.replicas, Some(group)), &self.config);
            }
        }
        for (key, (spec, count)) in asked {
            after.add(spec, replicas(spec, *count, self.groups.get(key)), &self.config);
        }
        match exceeded(quota, &before, &after) {
            None => Ok(()),
            Some((dimension, limit, current_usage, requested_delta)) => {
                let namespace = namespace.clone();
                Err(CommandError::QuotaExceeded { namespace, dimension, limit, current_usage, requested_delta })
            }
        }
    }
}

/// How many replicas count: those of a job that are done do not, and a global service has those it has.
fn replicas(spec: &ServiceSpec, count: u32, group: Option<&Group>) -> u64 {
    let slots = || group.iter().flat_map(|group| group.slots.values()).filter(|slot| slot.wanted == Wanted::Run);
    let completed = |slot: &&longshore_model::Slot| {
        slot.replicas.last().is_some_and(|replica| replica.state == ReplicaState::Completed)
    };
    let is_job = matches!(spec.kind, ServiceKind::Batch | ServiceKind::Sysbatch);
    let wanted = if runs_per_node(spec) { slots().count() as u64 } else { u64::from(count) };
    let done = if is_job { slots().filter(completed).count() as u64 } else { 0 };
    wanted.saturating_sub(done)
}

impl Desired {
    fn add(&mut self, spec: &ServiceSpec, replicas: u64, config: &ClusterConfig) {
        let memory = config.memory_cap_bytes(&spec.resources).saturating_add(config.overhead_bytes(spec.driver));
        self.replicas = self.replicas.saturating_add(replicas);
        self.memory_bytes = self.memory_bytes.saturating_add(memory.saturating_mul(replicas));
        self.cpu_millis = self.cpu_millis.saturating_add(spec.resources.cpu_request_millis().saturating_mul(replicas));
    }
}

/// The first dimension that grows beyond its limit, with the limit, what is used, and what more is asked.
fn exceeded(quota: &Quota, before: &Desired, after: &Desired) -> Option<(QuotaDimension, u64, u64, u64)> {
    let dimensions = [
        (QuotaDimension::Replicas, quota.replicas, before.replicas, after.replicas),
        (QuotaDimension::Memory, quota.memory_bytes, before.memory_bytes, after.memory_bytes),
        (QuotaDimension::Cpu, quota.cpu_millis, before.cpu_millis, after.cpu_millis),
    ];
    dimensions.into_iter().find_map(|(dimension, limit, before, after)| {
        let limit = limit?;
        (after > limit && after > before).then(|| (dimension, limit, before, after - before))
    })
}

#[cfg(test)]
mod tests;
