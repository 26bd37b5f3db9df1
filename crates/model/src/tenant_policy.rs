//! What the manifests of a namespace may ask of the machines.
//!
//! Owns: the policy record, its rules, and how an allowed value is compared with an asked one.
//! Must not touch: what a manifest asks, which is in `demands`; and who may set a policy.
//! Invariant: a rule without values allows nothing; `*` allows everything of a rule but what belongs to somebody else:
//! root for the exec driver, and volumes and networks that the cluster named, are allowed by name only.

mod demands;
mod matching;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use demands::{Demand, of_deployment, of_service};

/// The value that allows everything of a rule.
pub const ANY: &str = "*";

/// Volumes and networks that the cluster named, in whatever namespace.
const CLUSTER_NAMES: &str = "longshore_*";

/// The user of the exec driver that owns the machine: uid 0, and the user of the daemon itself.
pub const ROOT: &str = "root";

/// One thing that a policy allows or denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyRule {
    /// Privileged containers and hooks.
    Privileged,
    /// Namespaces of the host or of a foreign container.
    HostNamespaces,
    /// Host paths that may be mounted.
    BindMounts,
    /// Devices of the host.
    Devices,
    /// Capabilities that may be added.
    Capabilities,
    /// Users that plain processes may run as.
    ExecUsers,
    /// Ports that may be opened on the machines.
    HostPorts,
    /// Images that may run.
    Images,
    /// Security profiles that may be named.
    SecurityOptions,
    /// Kernel parameters that may be set.
    Sysctls,
    /// Volumes and networks that may be used by the name they have in the engine.
    EngineNames,
    /// Volume drivers, and `driver:options` where options may be passed to one.
    VolumeDrivers,
    /// Network drivers, and `driver:options` where options may be passed to one.
    NetworkDrivers,
    /// Log drivers beyond the engine's own files.
    LogDrivers,
    /// Runtimes of the engine, and annotations for them.
    Runtimes,
    /// Variables that may be taken from the environment of the daemon.
    HostEnvironment,
    /// Settings that shield a process from the kernel's memory killer.
    OomProtection,
}

impl PolicyRule {
    /// Every variant, in order.
    pub const ALL: &[Self] = &[
        Self::Privileged,
        Self::HostNamespaces,
        Self::BindMounts,
        Self::Devices,
        Self::Capabilities,
        Self::ExecUsers,
        Self::HostPorts,
        Self::Images,
        Self::SecurityOptions,
        Self::Sysctls,
        Self::EngineNames,
        Self::VolumeDrivers,
        Self::NetworkDrivers,
        Self::LogDrivers,
        Self::Runtimes,
        Self::HostEnvironment,
        Self::OomProtection,
    ];

    /// The name in commands, JSON and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::HostNamespaces => "host_namespaces",
            Self::BindMounts => "bind_mounts",
            Self::Devices => "devices",
            Self::Capabilities => "capabilities",
            Self::ExecUsers => "exec_users",
            Self::HostPorts => "host_ports",
            Self::Images => "images",
            Self::SecurityOptions => "security_options",
            Self::Sysctls => "sysctls",
            Self::EngineNames => "engine_names",
            Self::VolumeDrivers => "volume_drivers",
            Self::NetworkDrivers => "network_drivers",
            Self::LogDrivers => "log_drivers",
            Self::Runtimes => "runtimes",
            Self::HostEnvironment => "host_environment",
            Self::OomProtection => "oom_protection",
        }
    }

    /// The rule of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|rule| rule.as_str() == name)
    }
}

/// What a namespace's manifests may ask. The default denies everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NamespacePolicy {
    rules: BTreeMap<PolicyRule, BTreeSet<String>>,
}

impl NamespacePolicy {
    /// Allows everything, root for the exec driver included.
    pub fn allow_all() -> Self {
        let mut policy = Self::allow_all_but_exec_as_root();
        policy.allow(PolicyRule::ExecUsers, ROOT);
        policy.allow(PolicyRule::EngineNames, CLUSTER_NAMES);
        policy
    }

    /// Allows what a namespace without a policy may ask: everything but a plain process with the rights of the daemon.
    pub fn allow_all_but_exec_as_root() -> Self {
        let rules = PolicyRule::ALL.iter().map(|rule| (*rule, BTreeSet::from([ANY.to_owned()])));
        Self { rules: rules.collect() }
    }

    /// Adds an allowed value.
    pub fn allow(&mut self, rule: PolicyRule, value: &str) {
        self.rules.entry(rule).or_default().insert(value.to_owned());
    }

    /// Sets all values of a rule; none denies it.
    pub fn set(&mut self, rule: PolicyRule, values: BTreeSet<String>) {
        if values.is_empty() {
            self.rules.remove(&rule);
        } else {
            self.rules.insert(rule, values);
        }
    }

    /// The allowed values of a rule.
    pub fn values(&self, rule: PolicyRule) -> impl Iterator<Item = &str> {
        self.rules.get(&rule).into_iter().flatten().map(String::as_str)
    }

    /// Whether a rule allows a value.
    pub fn allows(&self, rule: PolicyRule, value: &str) -> bool {
        self.values(rule).any(|allowed| matching::matches(rule, allowed, value))
    }

    /// The demands that the policy denies.
    pub fn denied(&self, demands: Vec<Demand>) -> Vec<Demand> {
        demands.into_iter().filter(|demand| !self.allows(demand.rule, &demand.value)).collect()
    }
}

#[cfg(test)]
mod tests;
