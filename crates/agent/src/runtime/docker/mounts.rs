//! Volumes, paths and memory in a container.
//!
//! Owns: what a volume is called at the engine, and how each kind of mount is written.
//! Invariant: a volume of another cluster is never mounted, also when it bears the name; no volume with a name is removed.

use std::collections::HashMap;

use bollard::{
    models::{
        Mount as EngineMount, MountBindOptions, MountBindOptionsPropagationEnum as Propagation, MountType,
        MountVolumeOptions, VolumeCreateRequest,
    },
    query_parameters::ListVolumesOptions,
};
use longshore_model::{
    VolumeKey, Work,
    service::{Access, Mount, MountSource, VolumeSpec},
};

use super::{Docker, SHORT, labels};
use crate::runtime::{PlacedFile, RuntimeError};

/// The mounts of a container, made and ready.
#[derive(Debug, Default)]
pub(super) struct EngineVolumes {
    pub(super) mounts: Vec<EngineMount>,
    /// Paths of the host in the engine's older words: only there can it be asked to label them.
    pub(super) binds: Vec<String>,
    /// Target to options.
    pub(super) tmpfs: HashMap<String, String>,
    /// Targets of volumes without a name.
    pub(super) anonymous: Vec<String>,
}

impl Docker {
    /// Makes the volumes that do not exist and writes down all mounts.
    pub(super) async fn volumes(&self, work: &Work) -> Result<EngineVolumes, RuntimeError> {
        let mut volumes = EngineVolumes::default();
        for mount in &work.spec.mounts {
            match &mount.source {
                MountSource::Volume { key, driver, .. } => {
                    let name = self.volume(work, key, driver.as_deref()).await?;
                    volumes.mounts.push(of_volume(mount, name));
                }
                MountSource::Bind(path) => {
                    make_path(mount, path)?;
                    match mount.options.get("selinux") {
                        Some(label) => volumes.binds.push(labelled(mount, path, label)),
                        None => volumes.mounts.push(of_path(mount, path)),
                    }
                }
                MountSource::Tmpfs => drop(volumes.tmpfs.insert(mount.target.clone(), tmpfs_options(mount))),
                MountSource::Anonymous => volumes.anonymous.push(mount.target.clone()),
            }
        }
        Ok(volumes)
    }

    /// The name of the volume at the engine, which exists afterwards.
    async fn volume(&self, work: &Work, key: &VolumeKey, driver: Option<&str>) -> Result<String, RuntimeError> {
        let plain = VolumeSpec { driver: driver.map(str::to_owned), ..VolumeSpec::default() };
        let spec = work.volumes.get(key.name.as_str()).unwrap_or(&plain);
        let name = volume_name(work, key, spec);
        let theirs = self.call(SHORT, async |client| client.list_volumes(None::<ListVolumesOptions>).await).await?;
        let found = theirs.volumes.iter().flatten().find(|volume| volume.name == name);
        match found.map(|volume| volume.labels.get(labels::CLUSTER)) {
            // Somebody made it by hand, perhaps to bring data along.
            Some(None) => {
                if !spec.external {
                    tracing::info!(
                        volume = name,
                        "a volume that was not made here is mounted, because it bears the name"
                    );
                }
                Ok(name)
            }
            Some(Some(cluster)) if *cluster == self.cluster_id => Ok(name),
            Some(Some(_)) => self.make_volume(self.own_name(&name), spec).await,
            None if spec.external => Err(RuntimeError::Refused(format!("volume `{name}` does not exist on this node"))),
            None => self.make_volume(name, spec).await,
        }
    }

    async fn make_volume(&self, name: String, spec: &VolumeSpec) -> Result<String, RuntimeError> {
        let mut own: HashMap<String, String> =
            spec.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        own.insert(labels::CLUSTER.to_owned(), self.cluster_id.clone());
        let request = VolumeCreateRequest {
            name: Some(name.clone()),
            driver: spec.driver.clone(),
            driver_opts: Some(spec.options.iter().map(|(name, value)| (name.clone(), value.clone())).collect()),
            labels: Some(own),
            ..VolumeCreateRequest::default()
        };
        self.call(SHORT, async |client| client.create_volume(request).await).await?;
        Ok(name)
    }
}

/// `longshore_<deployment>_<key>`, with the namespace in front where it is not the default one; a name the user chose is
/// the user's.
fn volume_name(work: &Work, key: &VolumeKey, spec: &VolumeSpec) -> String {
    let group = &work.key.group;
    let ours = key.name.as_str().strip_prefix(group.deployment.as_str()).is_some_and(|rest| rest.starts_with('_'));
    if spec.external || !ours {
        return key.name.to_string();
    }
    if key.namespace.as_str() == "default" {
        format!("longshore_{}", key.name)
    } else {
        format!("longshore_{}.{}", key.namespace, key.name)
    }
}

fn of_volume(mount: &Mount, name: String) -> EngineMount {
    let option = |name: &str| mount.options.get(name);
    EngineMount {
        typ: Some(MountType::VOLUME),
        source: Some(name),
        volume_options: Some(MountVolumeOptions {
            no_copy: option("nocopy").map(|value| value == "true"),
            subpath: option("subpath").cloned(),
            ..MountVolumeOptions::default()
        }),
        ..plain(mount)
    }
}

/// Makes a path of the host that is missing, as Compose does, unless the manifest says no. What is there stays what it is: a
/// file, a socket.
fn make_path(mount: &Mount, path: &str) -> Result<(), RuntimeError> {
    let may_make = mount.options.get("create_host_path").is_none_or(|create| create != "false");
    if may_make && std::fs::symlink_metadata(path).is_err() {
        std::fs::create_dir_all(path)
            .map_err(|error| RuntimeError::Refused(format!("`{path}` could not be made: {error}")))?;
    }
    Ok(())
}

fn of_path(mount: &Mount, path: &str) -> EngineMount {
    EngineMount {
        typ: Some(MountType::BIND),
        source: Some(path.to_owned()),
        bind_options: Some(MountBindOptions {
            propagation: mount.options.get("propagation").and_then(|name| propagation(name)),
            non_recursive: mount.options.get("recursive").map(|value| value == "disabled"),
            ..MountBindOptions::default()
        }),
        ..plain(mount)
    }
}

/// `path:target:options`, with `z` for a label that containers share and `Z` for one of their own.
fn labelled(mount: &Mount, path: &str, label: &str) -> String {
    let read_only = (mount.access == Access::ReadOnly).then_some("ro");
    let options = [Some(label), mount.options.get("propagation").map(String::as_str), read_only];
    format!("{path}:{}:{}", mount.target, options.into_iter().flatten().collect::<Vec<_>>().join(","))
}

/// A secret or config, which nobody may write.
pub(super) fn file(file: &PlacedFile) -> EngineMount {
    EngineMount {
        typ: Some(MountType::BIND),
        source: Some(file.path.to_string_lossy().into_owned()),
        target: Some(file.target.clone()),
        read_only: Some(true),
        ..EngineMount::default()
    }
}

fn plain(mount: &Mount) -> EngineMount {
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
    // A mode is octal digits already, as manifests and engines write it.
    let written = mount.options.iter().map(|(name, value)| match (name.as_str(), value.as_str()) {
        (flag, "true") => flag.to_owned(),
        (name, value) => format!("{name}={value}"),
    });
    written.chain(read_only).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_labelled_in_the_older_words() {
        let options = [("selinux".to_owned(), "Z".to_owned()), ("propagation".to_owned(), "rslave".to_owned())].into();
        let source = MountSource::Bind("/srv/data".to_owned());
        let mount = Mount { source, target: "/data".to_owned(), access: Access::ReadOnly, options };
        assert_eq!(labelled(&mount, "/srv/data", "Z"), "/srv/data:/data:Z,rslave,ro");
    }

    #[test]
    fn memory_is_mounted_with_the_mode_that_was_written() {
        let options = [("mode".to_owned(), "1777".to_owned()), ("noexec".to_owned(), "true".to_owned())].into();
        let mount = Mount { source: MountSource::Tmpfs, target: "/s".to_owned(), access: Access::ReadOnly, options };
        assert_eq!(tmpfs_options(&mount), "mode=1777,noexec,ro");
    }
}
