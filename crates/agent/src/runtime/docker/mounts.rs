//! Volumes, host paths and tmpfs mounts of a container.
//!
//! Owns: a volume's name at the engine, and the request for each kind of mount.
//! Invariant: a volume of another cluster is never mounted, even if it has the name; a named volume is removed only
//! when an operator asks for it by name, and only if it has this cluster's label.

use std::collections::HashMap;

use bollard::{
    models::{
        Mount as EngineMount, MountBindOptions, MountBindOptionsPropagationEnum as Propagation, MountType,
        MountVolumeOptions, VolumeCreateRequest,
    },
    query_parameters::{ListVolumesOptions, RemoveVolumeOptionsBuilder},
};
use longshore_model::{
    VolumeKey, Work,
    service::{Access, Mount, MountSource, VolumeSpec},
};

use super::{Docker, LONG, SHORT, create::hash_map, labels};
use crate::{
    engine_query::VolumeRemoval,
    runtime::{PreparedFile, RuntimeError},
};

/// The mounts of a container; its named volumes exist.
#[derive(Debug, Default)]
pub(super) struct EngineVolumes {
    pub(super) mounts: Vec<EngineMount>,
    /// Host paths in the engine's older `path:target:options` syntax, the only one with `selinux` labels.
    pub(super) binds: Vec<String>,
    /// Options by target.
    pub(super) tmpfs: HashMap<String, String>,
    /// Targets of anonymous volumes.
    pub(super) anonymous: Vec<String>,
}

impl Docker {
    /// Creates missing volumes and host paths, and returns all mounts.
    pub(super) async fn volumes(&self, work: &Work) -> Result<EngineVolumes, RuntimeError> {
        let mut volumes = EngineVolumes::default();
        for mount in &work.spec.mounts {
            match &mount.source {
                MountSource::Volume { key, driver, .. } => {
                    let name = self.volume(work, key, driver.as_deref()).await?;
                    volumes.mounts.push(volume_mount(mount, name));
                }
                MountSource::Bind(path) => {
                    create_host_path(mount, path)?;
                    match mount.options.get("selinux") {
                        Some(label) => volumes.binds.push(labelled_bind(mount, path, label)),
                        None => volumes.mounts.push(bind_mount(mount, path)),
                    }
                }
                MountSource::Tmpfs => drop(volumes.tmpfs.insert(mount.target.clone(), tmpfs_options(mount))),
                MountSource::Anonymous => volumes.anonymous.push(mount.target.clone()),
            }
        }
        Ok(volumes)
    }

    /// Ensures that the volume exists, and returns its name at the engine.
    async fn volume(&self, work: &Work, key: &VolumeKey, driver: Option<&str>) -> Result<String, RuntimeError> {
        let default = VolumeSpec { driver: driver.map(str::to_owned), ..VolumeSpec::default() };
        let spec = work.volumes.get(key.name.as_str()).unwrap_or(&default);
        let mut name = key.engine_name(work.base_deployment(), spec);
        if let Some(suffix) =
            self.config.volume_suffix.as_ref().filter(|_| work.spec.kind.is_per_node() && name != key.name.as_str())
        {
            name = format!("{name}_{suffix}");
        }
        let list = self.call(SHORT, async |client| client.list_volumes(None::<ListVolumesOptions>).await).await?;
        let existing = list.volumes.iter().flatten().find(|volume| volume.name == name);
        match existing.map(|volume| volume.labels.get(labels::CLUSTER)) {
            // A user created it, perhaps to provide data.
            Some(None) => {
                if !spec.external {
                    tracing::info!(volume = name, "mounting a volume that a user created, because it has the name");
                }
                Ok(name)
            }
            Some(Some(cluster)) if *cluster == self.cluster_id => Ok(name),
            Some(Some(_)) => self.create_volume(self.cluster_scoped_name(&name), spec).await,
            None if spec.external => Err(RuntimeError::Refused(format!("volume `{name}` does not exist on this node"))),
            None => self.create_volume(name, spec).await,
        }
    }

    /// Deletes a volume with this cluster's label. The engine refuses while a container of anybody has it.
    pub(super) async fn delete_volume(&self, name: &str) -> Result<VolumeRemoval, RuntimeError> {
        let list = self.call(SHORT, async |client| client.list_volumes(None::<ListVolumesOptions>).await).await?;
        let named = |wanted: &str| list.volumes.iter().flatten().find(|volume| volume.name == wanted);
        let is_ours = |labels: &HashMap<String, String>| labels.get(labels::CLUSTER) == Some(&self.cluster_id);
        let scoped = self.cluster_scoped_name(name);
        let found = [name, &scoped].into_iter().filter_map(named).collect::<Vec<_>>();
        let Some(own) = found.iter().find(|volume| is_ours(&volume.labels)) else {
            return Ok(if found.is_empty() { VolumeRemoval::Removed } else { VolumeRemoval::NotOurs });
        };
        let options = RemoveVolumeOptionsBuilder::new().build();
        self.call(LONG, async |client| client.remove_volume(&own.name, Some(options)).await).await?;
        Ok(VolumeRemoval::Removed)
    }

    async fn create_volume(&self, name: String, spec: &VolumeSpec) -> Result<String, RuntimeError> {
        let mut labels = hash_map(&spec.labels);
        labels.insert(labels::CLUSTER.to_owned(), self.cluster_id.clone());
        let request = VolumeCreateRequest {
            name: Some(name.clone()),
            driver: spec.driver.clone(),
            driver_opts: Some(hash_map(&spec.options)),
            labels: Some(labels),
            ..VolumeCreateRequest::default()
        };
        self.call(SHORT, async |client| client.create_volume(request).await).await?;
        Ok(name)
    }
}

fn volume_mount(mount: &Mount, name: String) -> EngineMount {
    let option = |name: &str| mount.options.get(name);
    EngineMount {
        typ: Some(MountType::VOLUME),
        source: Some(name),
        volume_options: Some(MountVolumeOptions {
            no_copy: option("nocopy").map(|value| value == "true"),
            subpath: option("subpath").cloned(),
            ..MountVolumeOptions::default()
        }),
        ..base(mount)
    }
}

/// Creates a missing host path as a directory, as Compose does, unless `create_host_path` is false. What exists, a file
/// or a socket perhaps, is left as it is.
fn create_host_path(mount: &Mount, path: &str) -> Result<(), RuntimeError> {
    let may_create = mount.options.get("create_host_path").is_none_or(|create| create != "false");
    if may_create && std::fs::symlink_metadata(path).is_err() {
        std::fs::create_dir_all(path)
            .map_err(|error| RuntimeError::Refused(format!("`{path}` could not be created: {error}")))?;
    }
    Ok(())
}

fn bind_mount(mount: &Mount, path: &str) -> EngineMount {
    EngineMount {
        typ: Some(MountType::BIND),
        source: Some(path.to_owned()),
        bind_options: Some(MountBindOptions {
            propagation: mount.options.get("propagation").and_then(|name| propagation(name)),
            non_recursive: mount.options.get("recursive").map(|value| value == "disabled"),
            ..MountBindOptions::default()
        }),
        ..base(mount)
    }
}

/// `path:target:options`; the label is `z` (shared between containers) or `Z` (private).
fn labelled_bind(mount: &Mount, path: &str, label: &str) -> String {
    let read_only = (mount.access == Access::ReadOnly).then_some("ro");
    let options = [Some(label), mount.options.get("propagation").map(String::as_str), read_only];
    format!("{path}:{}:{}", mount.target, options.into_iter().flatten().collect::<Vec<_>>().join(","))
}

/// A secret or config, mounted read-only.
pub(super) fn file_mount(file: &PreparedFile) -> EngineMount {
    EngineMount {
        typ: Some(MountType::BIND),
        source: Some(file.path.to_string_lossy().into_owned()),
        target: Some(file.target.clone()),
        read_only: Some(true),
        ..EngineMount::default()
    }
}

fn base(mount: &Mount) -> EngineMount {
    EngineMount {
        target: Some(mount.target.clone()),
        read_only: Some(mount.access == Access::ReadOnly),
        ..EngineMount::default()
    }
}

fn propagation(name: &str) -> Option<Propagation> {
    match name {
        "private" => Some(Propagation::PRIVATE),
        "rprivate" => Some(Propagation::RPRIVATE),
        "shared" => Some(Propagation::SHARED),
        "rshared" => Some(Propagation::RSHARED),
        "slave" => Some(Propagation::SLAVE),
        "rslave" => Some(Propagation::RSLAVE),
        _ => None,
    }
}

fn tmpfs_options(mount: &Mount) -> String {
    let read_only = (mount.access == Access::ReadOnly).then(|| "ro".to_owned());
    // The mode is already in octal digits, as the engine expects it.
    let options = mount.options.iter().map(|(name, value)| match (name.as_str(), value.as_str()) {
        (flag, "true") => flag.to_owned(),
        (name, value) => format!("{name}={value}"),
    });
    options.chain(read_only).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_labelled_host_path_uses_the_older_syntax() {
        let options = [("selinux".to_owned(), "Z".to_owned()), ("propagation".to_owned(), "rslave".to_owned())].into();
        let source = MountSource::Bind("/srv/data".to_owned());
        let mount = Mount { source, target: "/data".to_owned(), access: Access::ReadOnly, options };
        assert_eq!(labelled_bind(&mount, "/srv/data", "Z"), "/srv/data:/data:Z,rslave,ro");
    }

    #[test]
    fn a_tmpfs_keeps_the_mode_of_the_manifest() {
        let options = [("mode".to_owned(), "1777".to_owned()), ("noexec".to_owned(), "true".to_owned())].into();
        let mount = Mount { source: MountSource::Tmpfs, target: "/s".to_owned(), access: Access::ReadOnly, options };
        assert_eq!(tmpfs_options(&mount), "mode=1777,noexec,ro");
    }
}
