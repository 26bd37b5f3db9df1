//! Scopes: the networks of manifests, as sets of replicas that reach each other.
//!
//! Owns: which scope a network of a manifest is. Must not touch: addresses.
//! Invariant: a network of a deployment is a scope of its own, unless it has a name of its own; deployments of a
//! namespace that refer to that name share it. A network of another driver, or an external one that no deployment
//! declares, is an engine's, and no scope.

use std::collections::BTreeMap;

use longshore_model::{
    DeploymentName, GroupKey, NamespaceName, ServiceSpec,
    service::{Attachment, NetworkReach, NetworkSpec},
};
use longshore_network::{Scope, ScopeName};
use longshore_store::{Group, State};

/// The network of services that name none.
const DEFAULT_NETWORK: &str = "default";

/// The networks that deployments declare, by namespace and name in the engine.
#[derive(Debug, Default)]
pub(super) struct Declared(BTreeMap<NamespaceName, BTreeMap<String, BTreeMap<DeploymentName, Scope>>>);

impl Declared {
    /// Reads the networks of a deployment again; returns whether other deployments of the namespace may see a change.
    pub(super) fn update(&mut self, state: &State, namespace: &NamespaceName, deployment: &DeploymentName) -> bool {
        let now = declared_by(state, namespace, deployment);
        let names = self.0.entry(namespace.clone()).or_default();
        let before: BTreeMap<String, Scope> =
            names.iter().filter_map(|(name, owners)| Some((name.clone(), owners.get(deployment)?.clone()))).collect();
        if before == now {
            return false;
        }
        for name in before.keys() {
            if let Some(owners) = names.get_mut(name) {
                owners.remove(deployment);
            }
        }
        for (name, scope) in now {
            names.entry(name).or_default().insert(deployment.clone(), scope);
        }
        names.retain(|_, owners| !owners.is_empty());
        true
    }

    /// The scopes of a service.
    pub(super) fn scopes_of(&self, state: &State, key: &GroupKey, group: &Group) -> Vec<Scope> {
        if !group.spec.has_overlay_networks() {
            return Vec::new();
        }
        let deployment = state.deployment(&key.namespace, &key.deployment);
        let networks = deployment.map(|deployment| &deployment.current().spec.networks);
        let scope = |(name, aliases): (&str, &Attachment)| {
            let spec = networks.and_then(|networks| networks.get(name));
            let scope = self.scope(key, name, spec)?;
            Some(Scope { aliases: aliases.aliases.iter().cloned().collect(), ..scope })
        };
        attachments(&group.spec).into_iter().filter_map(scope).collect()
    }

    fn scope(&self, key: &GroupKey, name: &str, spec: Option<&NetworkSpec>) -> Option<Scope> {
        match spec {
            Some(spec) if spec.reach == NetworkReach::External => {
                self.0.get(&key.namespace)?.get(&spec.name)?.values().next().cloned()
            }
            Some(spec) => declared_scope(&key.namespace, &key.deployment, name, spec),
            None => Some(own_scope(&key.namespace, &key.deployment, name)),
        }
    }
}

/// The attachments of a service; one that names none is on the deployment's default network.
fn attachments(spec: &ServiceSpec) -> Vec<(&str, &Attachment)> {
    static NONE: Attachment =
        Attachment { aliases: std::collections::BTreeSet::new(), priority: 0, options: BTreeMap::new() };
    if spec.networks.is_empty() {
        return vec![(DEFAULT_NETWORK, &NONE)];
    }
    spec.networks.iter().map(|(name, attachment)| (name.as_str(), attachment)).collect()
}

/// Whether some network of a service is external.
pub(super) fn has_external(state: &State, key: &GroupKey) -> bool {
    let deployment = state.deployment(&key.namespace, &key.deployment);
    deployment.is_some_and(|deployment| {
        deployment.current().spec.networks.values().any(|network| network.reach == NetworkReach::External)
    })
}

/// The scopes that a deployment declares, by the name of the network in the engine.
fn declared_by(state: &State, namespace: &NamespaceName, deployment: &DeploymentName) -> BTreeMap<String, Scope> {
    let Some(known) = state.deployment(namespace, deployment) else { return BTreeMap::new() };
    let own = known.current().spec.networks.iter().filter(|(_, spec)| spec.reach != NetworkReach::External);
    let scope = |(key, spec): (&String, &NetworkSpec)| {
        Some((spec.name.clone(), declared_scope(namespace, deployment, key, spec)?))
    };
    own.filter_map(scope).collect()
}

fn declared_scope(
    namespace: &NamespaceName,
    deployment: &DeploymentName,
    key: &str,
    spec: &NetworkSpec,
) -> Option<Scope> {
    match spec.driver.as_deref() {
        None | Some("" | "bridge" | "overlay") => {}
        Some(_) => return None,
    }
    let has_own_name = !spec.name.is_empty() && spec.name != format!("{deployment}_{key}");
    let name = if has_own_name {
        ScopeName(format!("{namespace}//{}", spec.name))
    } else {
        own_scope(namespace, deployment, key).name
    };
    let (internal, ipv6) = (spec.reach == NetworkReach::Internal, spec.enable_ipv6);
    Some(Scope { name, internal, ipv6, aliases: std::collections::BTreeSet::new() })
}

fn own_scope(namespace: &NamespaceName, deployment: &DeploymentName, key: &str) -> Scope {
    let name = ScopeName(format!("{namespace}/{deployment}/{key}"));
    Scope { name, internal: false, ipv6: false, aliases: std::collections::BTreeSet::new() }
}
