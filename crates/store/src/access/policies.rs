//! Policies of namespaces in the state.
//!
//! Owns: which policy applies to a namespace, and which namespaces are older than policies.
//! Must not touch: what a policy means; `model::tenant_policy` compares it with manifests.
//! Invariant: a namespace that appears after policies are enforced may ask nothing until its policy is set.

use std::{borrow::Cow, collections::BTreeSet};

use longshore_model::{Event, NamespaceName, NamespacePolicy};

use super::Access;
use crate::State;

impl Access {
    /// The policy of a namespace. `None` where none was set and the namespace keeps everything: `default`, and those that
    /// existed when policies were first enforced.
    pub fn policy(&self, namespace: &NamespaceName) -> Option<Cow<'_, NamespacePolicy>> {
        if let Some(policy) = self.policies.get(namespace) {
            return Some(Cow::Borrowed(policy));
        }
        let older = self.older_than_policies.as_ref();
        let keeps_everything =
            *namespace == NamespaceName::default_namespace() || older.is_none_or(|older| older.contains(namespace));
        (!keeps_everything).then(|| Cow::Owned(NamespacePolicy::default()))
    }

    /// Whether a new namespace is denied everything.
    pub fn enforces_policies(&self) -> bool {
        self.older_than_policies.is_some()
    }

    /// Namespaces that keep everything because no policy was set for them.
    pub fn namespaces_without_policy(&self) -> impl Iterator<Item = NamespaceName> {
        let default = NamespaceName::default_namespace();
        let older = self.older_than_policies.iter().flatten().cloned();
        let all: BTreeSet<NamespaceName> = older.chain([default]).collect();
        all.into_iter().filter(|namespace| !self.policies.contains_key(namespace))
    }
}

impl State {
    pub(super) fn set_policy(&mut self, namespace: NamespaceName, policy: NamespacePolicy) -> Vec<Event> {
        if self.access.policies.get(&namespace) == Some(&policy) {
            return Vec::new();
        }
        self.access_mut().policies.insert(namespace, policy);
        vec![Event::AccessChanged]
    }

    pub(super) fn enforce_policies(&mut self) -> Vec<Event> {
        if self.access.older_than_policies.is_some() {
            return Vec::new();
        }
        let deployments = self.deployments().map(|(namespace, ..)| namespace.clone());
        let secrets = self.secrets.keys().map(|(namespace, _)| namespace.clone());
        let tokens = self.access.tokens.values().filter_map(|token| token.scope.namespace.clone());
        let known = deployments.chain(secrets).chain(tokens).chain(self.quotas.keys().cloned()).collect();
        self.access_mut().older_than_policies = Some(known);
        vec![Event::AccessChanged]
    }
}
