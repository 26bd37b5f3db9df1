//! What replicas of a service are made of: whether one that runs is what one made now would be.
//!
//! A service that is to be restarted after another one it depends on is made of that one too: every replica remembers
//! what those before it were made of, and is outdated once that has changed.
//!
//! Owns: that comparison. Must not touch: when anything outdated is replaced; `reconcile` decides.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    GroupKey, SecretName, ServiceName, ServiceSpec, Terms,
    making::{Making, Makings, comes_after},
    replica::Wanted,
};

use crate::view::{View, groups::Group};

/// What the services that a service comes after are made of now.
pub(super) fn now(view: &View, key: &GroupKey, spec: &ServiceSpec) -> Makings {
    if spec.depends_on.is_empty() {
        return Makings::new();
    }
    let before = comes_after(spec, |name| Some(&*find(view, key, name)?.spec), |_| true);
    let made = |name: ServiceName| {
        let group = find(view, key, &name)?;
        let version = |secret: &SecretName| view.secrets.get(&(key.namespace.clone(), secret.clone())).copied();
        Some((name, Making::of(&group.spec, group.restart_epoch, version)))
    };
    before.into_iter().filter_map(made).collect()
}

/// The services that a service is restarted after, directly or through others. Work that ends is not done once more.
pub(super) fn restarts_after(view: &View, key: &GroupKey, spec: &ServiceSpec) -> BTreeSet<ServiceName> {
    if spec.depends_on.is_empty() || spec.kind.is_job() {
        return BTreeSet::new();
    }
    comes_after(spec, |name| Some(&*find(view, key, name)?.spec), |dependency| dependency.restart)
}

/// The versions of the secrets a service requires.
pub(super) fn secrets(view: &View, key: &GroupKey, spec: &ServiceSpec) -> BTreeMap<SecretName, u64> {
    let versions = spec.secrets_required.iter().filter_map(|name| {
        let version = view.secrets.get(&(key.namespace.clone(), name.clone()))?;
        Some((name.clone(), *version))
    });
    versions.collect()
}

/// Whether terms are those a replica would get now, so far as they are fixed when one is made.
pub(crate) fn is_made_of(old: &Terms, new: &Terms, restarts_after: &BTreeSet<ServiceName>) -> bool {
    // Work that ends is not done once more for another version of a secret.
    let secrets = new.kind.is_job() || old.secret_versions == new.secret_versions;
    let made = (&old.spec_hash, old.kind, old.restart_epoch) == (&new.spec_hash, new.kind, new.restart_epoch);
    made && secrets && old.was_made_after(restarts_after, &new.made_after)
}

/// The same, asked of a group that nobody is deciding about.
pub(crate) fn is_made_as_wanted(view: &View, group: &Group, old: &Terms) -> bool {
    let (key, spec) = (&group.key, &group.spec);
    let new = Terms {
        spec_hash: spec.spec_hash.clone(),
        kind: spec.kind,
        restart_epoch: group.restart_epoch,
        secret_versions: secrets(view, key, spec),
        made_after: now(view, key, spec),
        ..Terms::default()
    };
    is_made_of(old, &new, &restarts_after(view, key, spec))
}

fn find<'v>(view: &'v View, key: &GroupKey, service: &ServiceName) -> Option<&'v Group> {
    let group = view.group(*view.group_ids.get(&key.beside(service))?);
    Some(group).filter(|group| group.wanted == Wanted::Run)
}
