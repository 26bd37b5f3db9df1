//! A fingerprint of everything a replica is created from. A dependent with `restart: true` is restarted when its
//! dependency's fingerprint changes.
//!
//! Owns: the fingerprint, and the transitive dependencies of a service.
//! Must not touch: when anything is restarted; the `scheduler` crate decides.
//! Invariant: equal specs, restarts and secret versions give the same fingerprint, on every machine.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    SecretName, ServiceName,
    service::{Dependency, ServiceSpec},
};

/// Hash of everything that is fixed when a replica of a service is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RestartFingerprint(u64);

/// Fingerprints of services, by name.
pub type RestartFingerprints = BTreeMap<ServiceName, RestartFingerprint>;

impl RestartFingerprint {
    /// Computes the fingerprint from the spec, the number of requested restarts, and the versions of its secrets.
    pub fn of(spec: &ServiceSpec, restart_epoch: u32, version: impl Fn(&SecretName) -> Option<u64>) -> Self {
        let mut hash = Fnv::default();
        hash.update(spec.spec_hash.0.as_bytes());
        if let Some(image) = &spec.resolved_image {
            hash.update(image.0.as_bytes());
        }
        hash.update(&[spec.kind as u8]);
        hash.update(&restart_epoch.to_le_bytes());
        // A job is not run again for another version of a secret.
        for name in spec.secrets_required.iter().filter(|_| !spec.kind.is_job()) {
            hash.update(name.as_str().as_bytes());
            hash.update(&version(name).unwrap_or(0).to_le_bytes());
        }
        Self(hash.0)
    }
}

/// The services a service depends on, directly or through others; only dependencies accepted by `counts` are followed.
pub fn transitive_dependencies<'s>(
    spec: &'s ServiceSpec,
    find: impl Fn(&ServiceName) -> Option<&'s ServiceSpec>,
    counts: impl Fn(&Dependency) -> bool,
) -> BTreeSet<ServiceName> {
    let mut found = BTreeSet::new();
    let mut open = vec![spec];
    while let Some(spec) = open.pop() {
        for (name, _) in spec.depends_on.iter().filter(|(_, dependency)| counts(dependency)) {
            if found.insert(name.clone()) {
                open.extend(find(name));
            }
        }
    }
    found
}

/// 64-bit FNV-1a; each part is terminated by a byte that no name contains.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn update(&mut self, part: &[u8]) {
        for byte in part.iter().chain(&[0xff]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::DependencyCondition;

    fn spec(depends_on: &[(&str, bool)]) -> ServiceSpec {
        let condition = DependencyCondition::ServiceStarted;
        let depends_on = depends_on
            .iter()
            .map(|(name, restart)| ((*name).into(), Dependency { condition, restart: *restart, required: true }));
        ServiceSpec { depends_on: depends_on.collect(), ..ServiceSpec::default() }
    }

    #[test]
    fn dependencies_are_followed_transitively_and_through_cycles() {
        let (api, db) = (spec(&[("db", true), ("cache", false)]), spec(&[("api", true)]));
        let find = |name: &ServiceName| match name.as_str() {
            "api" => Some(&api),
            "db" => Some(&db),
            _ => None,
        };
        let web = spec(&[("api", true)]);
        let named = |found: BTreeSet<ServiceName>| found.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(named(transitive_dependencies(&web, find, |_| true)), ["api", "cache", "db"]);
        assert_eq!(named(transitive_dependencies(&web, find, |dependency| dependency.restart)), ["api", "db"]);
    }

    #[test]
    fn another_spec_restart_or_secret_version_changes_the_fingerprint() {
        let with_secret = ServiceSpec { secrets_required: ["s".into()].into(), ..ServiceSpec::default() };
        let of = |spec: &ServiceSpec, epoch, version| RestartFingerprint::of(spec, epoch, |_| Some(version));
        assert_eq!(of(&with_secret, 0, 1), of(&with_secret, 0, 1));
        assert_ne!(of(&with_secret, 0, 1), of(&with_secret, 0, 2));
        assert_ne!(of(&with_secret, 0, 1), of(&with_secret, 1, 1));
        assert_ne!(of(&with_secret, 0, 1), of(&ServiceSpec::default(), 0, 1));
        let counted = ServiceSpec { replicas: 7, ..with_secret.clone() };
        assert_eq!(of(&counted, 0, 1), of(&with_secret, 0, 1));
    }
}
