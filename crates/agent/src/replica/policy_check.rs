//! The policy of a namespace, checked again on the node that carries the work out.
//!
//! Owns: what only the node can see: where a host path really leads.
//! Must not touch: what a policy means, which is in `model::tenant_policy`.
//! Invariant: a path is judged by its real place. A tenant that may write below an allowed folder could leave a symbolic
//! link there to any other.

use std::path::{Path, PathBuf};

use longshore_model::{
    PolicyRule, Work,
    service::MountSource,
    tenant_policy::{self, Demand},
};

/// What the work asks and its manifest was not allowed to, as a sentence. `None` if all is allowed.
pub(super) fn denied(work: &Work) -> Option<String> {
    let policy = work.granted.as_ref()?;
    let mut demands = tenant_policy::of_service(&work.key.group, &work.spec, &work.networks, &work.volumes);
    demands.extend(real_paths(work));
    let first = policy.denied(demands).into_iter().next()?;
    let (namespace, Demand { rule, key, value }) = (&work.key.group.namespace, first);
    let rule = rule.as_str();
    Some(format!(
        "policy_denied: the policy of namespace `{namespace}` does not allow `{key}` ({value}), rule `{rule}`"
    ))
}

/// The host paths and devices of the work, with symbolic links resolved.
fn real_paths(work: &Work) -> Vec<Demand> {
    let demand = |rule, key: &str, path: &str| {
        let value = real_path(Path::new(path)).to_string_lossy().into_owned();
        Demand { rule, key: format!("services.{}.{key}", work.key.group.service), value }
    };
    let mounts = work.spec.mounts.iter().filter_map(|mount| match &mount.source {
        MountSource::Bind(path) => Some(demand(PolicyRule::BindMounts, "volumes", path)),
        MountSource::Volume { .. } | MountSource::Tmpfs | MountSource::Anonymous => None,
    });
    let devices = work.spec.container.devices.iter().filter_map(|device| device.split(':').next());
    mounts.chain(devices.map(|device| demand(PolicyRule::Devices, "devices", device))).collect()
}

/// The path with every link resolved, as far as it exists. A folder that is missing will be made below the real one.
fn real_path(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    for existing in path.ancestors() {
        if let Ok(real) = existing.canonicalize() {
            return missing.into_iter().rev().fold(real, |path, name| path.join(name));
        }
        // A link that leads nowhere may lead somewhere in a moment: what it says counts.
        if let Ok(target) = existing.read_link() {
            let base = existing.parent().unwrap_or(Path::new("/")).join(target);
            return missing.into_iter().rev().fold(base, |path, name| path.join(name));
        }
        missing.extend(existing.file_name());
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, sync::Arc};

    use longshore_model::{
        NamespacePolicy, ServiceSpec,
        service::{Access, Mount},
    };

    use super::*;
    use crate::desired_work::tests::work;

    fn mounting(path: &Path, allowed: &Path) -> Work {
        let source = MountSource::Bind(path.to_string_lossy().into_owned());
        let mount = Mount { source, target: "/x".to_owned(), access: Access::ReadWrite, options: [].into() };
        let mut policy = NamespacePolicy::default();
        policy.allow(PolicyRule::Images, "*");
        policy.allow(PolicyRule::BindMounts, &allowed.to_string_lossy());
        let spec = Arc::new(ServiceSpec { mounts: vec![mount], ..ServiceSpec::default() });
        Work { spec, granted: Some(Arc::new(policy)), ..work(0, 1) }
    }

    #[test]
    fn a_link_out_of_an_allowed_folder_is_refused_where_it_leads() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let allowed = root.join("team");
        std::fs::create_dir(&allowed).unwrap();
        assert_eq!(denied(&mounting(&allowed.join("data"), &allowed)), None, "a folder that is made");
        symlink("/", allowed.join("escape")).unwrap();
        symlink("../other", allowed.join("dangling")).unwrap();
        for way in ["escape", "escape/etc", "escape/not/there", "dangling"] {
            let refused = denied(&mounting(&allowed.join(way), &allowed)).expect(way);
            assert!(refused.starts_with("policy_denied: "), "{refused}");
        }
    }

    #[test]
    fn work_without_a_policy_is_not_checked() {
        let folder = tempfile::tempdir().unwrap();
        let work = Work { granted: None, ..mounting(Path::new("/"), folder.path()) };
        assert_eq!(denied(&work), None);
    }
}
