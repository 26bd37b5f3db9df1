//! Checks at admission whether a namespace's quota allows a command.
//!
//! The API server runs this check before it proposes a command. [`State::apply`] does not repeat it: two servers may
//! each admit a command, and a quota may be lowered later. The scheduler enforces the quota in any case and shows the
//! excess replicas as waiting.
//!
//! Owns: the totals requested in a namespace. Must not touch: what runs, which the scheduler counts.
//! Invariant: a command that requests no more than before is always admitted.

use std::collections::BTreeMap;

use longshore_model::{
    ClusterConfig, Command, GroupKey, NamespaceName, ReplicaState, ServiceKind, ServiceSpec,
    command::{Quota, QuotaDimension},
    replica::DesiredState,
};

use crate::{CommandError, Group, State, conflicts::runs_per_node};

/// Replicas that may be desired for each node of the cluster. No machine runs as many; a cluster that grows may be
/// asked for its future ahead.
pub(crate) const REPLICAS_PER_NODE: u64 = 10_000;

/// Totals in the three dimensions of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceTotals {
    /// Number of replicas.
    pub replicas: u64,
    /// Memory including the driver's overhead.
    pub memory_bytes: u64,
    /// CPU requests in thousandths of a core.
    pub cpu_millis: u64,
}

/// What a namespace requests, and its quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceUsage {
    /// Number of deployments.
    pub deployments: usize,
    /// The totals its deployments request.
    pub desired: ResourceTotals,
    /// Its quota, if one is set.
    pub quota: Option<Quota>,
}

impl State {
    /// Every namespace that has a deployment or a quota.
    pub fn namespaces(&self) -> BTreeMap<NamespaceName, NamespaceUsage> {
        let mut shares: BTreeMap<NamespaceName, NamespaceUsage> = BTreeMap::new();
        for (namespace, quota) in &self.quotas {
            shares.entry(namespace.clone()).or_default().quota = Some(*quota);
        }
        for (namespace, ..) in self.deployments() {
            shares.entry(namespace.clone()).or_default().deployments += 1;
        }
        for (key, group) in self.groups.iter().filter(|(_, group)| group.desired == DesiredState::Run) {
            let count = replicas(&group.spec, group.spec.replicas, Some(group));
            shares.entry(key.namespace.clone()).or_default().desired.add(&group.spec, count, &self.config);
        }
        shares
    }

    /// Refuses a command that requests more than its namespace's quota or the cluster's ceiling allows. Only `Apply` and `Scale` can be refused.
    pub fn admits(&self, command: &Command) -> Result<(), CommandError> {
        match command {
            Command::Apply { namespace, deployment, spec, .. } => {
                let key = |service| GroupKey { namespace: namespace.clone(), deployment: deployment.clone(), service };
                let asked =
                    spec.services.iter().map(|(service, spec)| (key(service.clone()), (&**spec, spec.replicas)));
                let replaced = |group: &GroupKey| group.namespace == *namespace && group.deployment == *deployment;
                let asked = asked.collect();
                self.within_ceiling(replaced, &asked)?;
                self.within_quota(namespace, replaced, &asked)
            }
            Command::Scale { group, replicas } => match self.groups.get(group) {
                Some(known) => {
                    let asked = [(group.clone(), (&*known.spec, *replicas))].into();
                    self.within_ceiling(|other| other == group, &asked)?;
                    self.within_quota(&group.namespace, |other| other == group, &asked)
                }
                // `apply` refuses it as an unknown service.
                None => Ok(()),
            },
            Command::Configure(_)
            | Command::ChangeSettings { .. }
            | Command::Join(_)
            | Command::Label { .. }
            | Command::SetNodeAttributes { .. }
            | Command::SetIntent { .. }
            | Command::Drain { .. }
            | Command::ConfirmLost { .. }
            | Command::SetHealth { .. }
            | Command::SetUseDegraded { .. }
            | Command::Remove { .. }
            | Command::RemoveVolume { .. }
            | Command::Stop { .. }
            | Command::Start { .. }
            | Command::Rollback { .. }
            | Command::ControlRollout { .. }
            | Command::Restart { .. }
            | Command::PutSecret { .. }
            | Command::SetQuota { .. }
            | Command::Access(_)
            | Command::Refresh { .. }
            | Command::Commit(_)
            | Command::EvenOut
            | Command::RecordExec { .. }
            | Command::RecordBackup
            | Command::Observe(_) => Ok(()),
        }
    }

    /// Refuses more replicas in the whole cluster than its nodes could ever run: each would cost memory on every server,
    /// placed or not.
    fn within_ceiling(
        &self,
        replaced: impl Fn(&GroupKey) -> bool,
        asked: &BTreeMap<GroupKey, (&ServiceSpec, u32)>,
    ) -> Result<(), CommandError> {
        let limit = self.max_replicas();
        let running = self.groups.iter().filter(|(_, group)| group.desired == DesiredState::Run);
        let (mut before, mut after) = (0_u64, 0_u64);
        for (key, group) in running {
            let count = replicas(&group.spec, group.spec.replicas, Some(group));
            before = before.saturating_add(count);
            after = after.saturating_add(if replaced(key) { 0 } else { count });
        }
        for (key, (spec, count)) in asked {
            after = after.saturating_add(replicas(spec, *count, self.groups.get(key)));
        }
        if after > limit && after > before {
            return Err(CommandError::TooManyForCluster { asked: after, limit });
        }
        Ok(())
    }

    /// The most replicas that may be desired at once.
    pub fn max_replicas(&self) -> u64 {
        REPLICAS_PER_NODE.saturating_mul((self.nodes.len() as u64).max(1))
    }

    /// The replicas that all deployments desire together.
    pub fn desired_replicas(&self) -> u64 {
        let running = self.groups.values().filter(|group| group.desired == DesiredState::Run);
        running.map(|group| replicas(&group.spec, group.spec.replicas, Some(group))).sum()
    }

    fn within_quota(
        &self,
        namespace: &NamespaceName,
        replaced: impl Fn(&GroupKey) -> bool,
        asked: &BTreeMap<GroupKey, (&ServiceSpec, u32)>,
    ) -> Result<(), CommandError> {
        let Some(quota) = self.quotas.get(namespace) else { return Ok(()) };
        let (mut before, mut after) = (ResourceTotals::default(), ResourceTotals::default());
        let known =
            self.groups.iter().filter(|(key, group)| key.namespace == *namespace && group.desired == DesiredState::Run);
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
            Some(Excess { dimension, limit, current_usage, requested_delta }) => {
                let namespace = namespace.clone();
                Err(CommandError::QuotaExceeded { namespace, dimension, limit, current_usage, requested_delta })
            }
        }
    }
}

/// The replicas that count against the quota. Completed replicas of a job do not; a global service counts its slots.
fn replicas(spec: &ServiceSpec, count: u32, group: Option<&Group>) -> u64 {
    let slots = || group.iter().flat_map(|group| group.slots.values()).filter(|slot| slot.desired == DesiredState::Run);
    let completed = |slot: &&longshore_model::Slot| {
        slot.replicas.last().is_some_and(|replica| replica.state == ReplicaState::Completed)
    };
    let is_job = matches!(spec.kind, ServiceKind::Batch | ServiceKind::Sysbatch);
    let wanted = if runs_per_node(spec) { slots().count() as u64 } else { u64::from(count) };
    let done = if is_job { slots().filter(completed).count() as u64 } else { 0 };
    wanted.saturating_sub(done)
}

impl ResourceTotals {
    fn add(&mut self, spec: &ServiceSpec, replicas: u64, config: &ClusterConfig) {
        let memory = config.memory_cap_bytes(&spec.resources).saturating_add(config.overhead_bytes(spec.driver));
        self.replicas = self.replicas.saturating_add(replicas);
        self.memory_bytes = self.memory_bytes.saturating_add(memory.saturating_mul(replicas));
        self.cpu_millis = self.cpu_millis.saturating_add(spec.resources.cpu_request_millis().saturating_mul(replicas));
    }
}

struct Excess {
    dimension: QuotaDimension,
    limit: u64,
    current_usage: u64,
    requested_delta: u64,
}

/// The first dimension that grows beyond its limit.
fn exceeded(quota: &Quota, before: &ResourceTotals, after: &ResourceTotals) -> Option<Excess> {
    let dimensions = [
        (QuotaDimension::Replicas, quota.replicas, before.replicas, after.replicas),
        (QuotaDimension::Memory, quota.memory_bytes, before.memory_bytes, after.memory_bytes),
        (QuotaDimension::Cpu, quota.cpu_millis, before.cpu_millis, after.cpu_millis),
    ];
    dimensions.into_iter().find_map(|(dimension, limit, before, after)| {
        let limit = limit?;
        (after > limit && after > before).then(|| Excess {
            dimension,
            limit,
            current_usage: before,
            requested_delta: after - before,
        })
    })
}

#[cfg(test)]
mod tests;
