//! Whether a running replica matches what would be created now.
//!
//! A service with `restart: true` on a dependency includes that dependency's fingerprint: every replica stores the
//! fingerprints of its dependencies at creation, and is outdated once one of them has changed.
//!
//! Owns: that comparison. Must not touch: when an outdated replica is replaced; `reconcile` decides.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    GroupKey, Reservation, SecretName, ServiceName, ServiceSpec,
    replica::DesiredState,
    restart_fingerprint::{RestartFingerprint, RestartFingerprints, transitive_dependencies},
};

use crate::view::{View, groups::Group};

/// The current fingerprints of the services that a service depends on, directly or through others.
pub(super) fn dependency_fingerprints(view: &View, key: &GroupKey, spec: &ServiceSpec) -> RestartFingerprints {
    if spec.depends_on.is_empty() {
        return RestartFingerprints::new();
    }
    let before = transitive_dependencies(spec, |name| Some(&*find(view, key, name)?.spec), |_| true);
    let made = |name: ServiceName| {
        let group = find(view, key, &name)?;
        let version = |secret: &SecretName| view.secrets.get(&(key.namespace.clone(), secret.clone())).copied();
        Some((name, RestartFingerprint::of(&group.spec, group.restart_epoch, version)))
    };
    before.into_iter().filter_map(made).collect()
}

/// The services whose change restarts this one, directly or through others. Jobs are never restarted for a dependency.
pub(super) fn restarts_after(view: &View, key: &GroupKey, spec: &ServiceSpec) -> BTreeSet<ServiceName> {
    if spec.depends_on.is_empty() || spec.kind.is_job() {
        return BTreeSet::new();
    }
    transitive_dependencies(spec, |name| Some(&*find(view, key, name)?.spec), |dependency| dependency.restart)
}

/// The versions of the secrets a service requires.
pub(super) fn secret_versions(view: &View, key: &GroupKey, spec: &ServiceSpec) -> BTreeMap<SecretName, u64> {
    let versions = spec.secrets_required.iter().filter_map(|name| {
        let version = view.secrets.get(&(key.namespace.clone(), name.clone()))?;
        Some((name.clone(), *version))
    });
    versions.collect()
}

/// Whether `old` equals the reservation a replica would get now, in the parts that are fixed at creation.
pub(crate) fn matches_reservation(
    old: &Reservation,
    new: &Reservation,
    restarts_after: &BTreeSet<ServiceName>,
) -> bool {
    // A job is not run again for another version of a secret.
    let secrets = new.kind.is_job() || old.secret_versions == new.secret_versions;
    let made = (old.program(), old.restart_epoch) == (new.program(), new.restart_epoch);
    made && secrets && old.matches_dependencies(restarts_after, &new.dependency_fingerprints)
}

/// [`matches_reservation`] for a group that has no [`PlacementRequest`](super::PlacementRequest).
pub(crate) fn matches_current_spec(view: &View, group: &Group, old: &Reservation) -> bool {
    let (key, spec) = (&group.key, &group.spec);
    let new = Reservation {
        spec_hash: spec.spec_hash.clone(),
        resolved_image: spec.resolved_image.clone(),
        kind: spec.kind,
        restart_epoch: group.restart_epoch,
        secret_versions: secret_versions(view, key, spec),
        dependency_fingerprints: dependency_fingerprints(view, key, spec),
        ..Reservation::default()
    };
    matches_reservation(old, &new, &restarts_after(view, key, spec))
}

fn find<'v>(view: &'v View, key: &GroupKey, service: &ServiceName) -> Option<&'v Group> {
    let group = view.group(*view.group_ids.get(&key.sibling(service))?);
    Some(group).filter(|group| group.desired == DesiredState::Run)
}
