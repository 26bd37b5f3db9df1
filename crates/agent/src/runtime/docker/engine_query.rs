//! Answers questions about the engine's images and volumes, and asks registries through the engine.
//!
//! Owns: what an image reference means on this engine and at its registry.
//! Must not touch: images and volumes; everything here only reads.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use bollard::{
    auth::DockerCredentials,
    models::ImageInspect,
    query_parameters::{ListVolumesOptions, ListVolumesOptionsBuilder},
};
use futures_util::future::join_all;
use longshore_model::{
    ResolvedImage,
    container::registry_of,
    image::{familiar, repository_of},
};

use super::{Docker, SHORT};
use crate::{
    control_link::RegistryLogin,
    engine_query::{EngineAnswer, EngineQuery},
    runtime::RuntimeError,
};

/// Time a registry has to name a digest. An apply waits for it, so it is short; without an answer the apply goes on.
const REGISTRY: Duration = Duration::from_secs(3);
/// Labels that Compose puts on its volumes.
const COMPOSE_PROJECT: &str = "com.docker.compose.project";
const COMPOSE_VOLUME: &str = "com.docker.compose.volume";
/// The label that `docker stack deploy` puts on its volumes, which are called `<stack>_<key>`.
const STACK: &str = "com.docker.stack.namespace";

impl Docker {
    pub(super) async fn answer(
        &self,
        query: &EngineQuery,
        logins: &BTreeMap<String, RegistryLogin>,
    ) -> Result<EngineAnswer, RuntimeError> {
        let mut answer = EngineAnswer::default();
        for reference in &query.images {
            match self.local_image(reference).await {
                Ok(image) => drop(answer.images.insert(reference.clone(), image)),
                Err(RuntimeError::Unavailable { driver, reason }) => {
                    return Err(RuntimeError::Unavailable { driver, reason });
                }
                // It is not there, or it is no reference that an engine understands.
                Err(
                    RuntimeError::NotFound
                    | RuntimeError::Refused(_)
                    | RuntimeError::NoSubnet(_)
                    | RuntimeError::DependencyNotReady(_),
                ) => {}
            }
        }
        let asked = query.registry.iter().map(|reference| self.registry_image(reference, logins));
        for (reference, said) in query.registry.iter().zip(join_all(asked).await) {
            match said {
                Ok(image) => drop(answer.registry.insert(reference.clone(), image)),
                Err(reason) => drop(answer.registry_errors.insert(reference.clone(), reason)),
            }
        }
        if let Some(project) = &query.compose_project {
            answer.compose_volumes = self.compose_volumes(project).await?;
            let all = self.call(SHORT, async |client| client.list_volumes(None::<ListVolumesOptions>).await).await?;
            answer.volumes = all.volumes.into_iter().flatten().map(|volume| volume.name).collect();
        }
        Ok(answer)
    }

    async fn local_image(&self, reference: &str) -> Result<ResolvedImage, RuntimeError> {
        let found = self.call(SHORT, async |client| client.inspect_image(reference).await).await?;
        identity(reference, found).ok_or(RuntimeError::NotFound)
    }

    async fn registry_image(
        &self,
        reference: &str,
        logins: &BTreeMap<String, RegistryLogin>,
    ) -> Result<ResolvedImage, String> {
        let login = logins.get(registry_of(reference)).map(|login| DockerCredentials {
            username: Some(login.username.clone()),
            password: Some(login.password.clone()),
            serveraddress: Some(registry_of(reference).to_owned()),
            ..DockerCredentials::default()
        });
        let asked = self.call(REGISTRY, async |client| client.inspect_registry_image(reference, login).await).await;
        let digest = asked.map_err(|error| error.to_string())?.descriptor.digest;
        let digest = digest.filter(|digest| digest.starts_with("sha256:"));
        let digest = digest.ok_or_else(|| "the registry named no digest".to_owned())?;
        Ok(ResolvedImage(format!("{}@{digest}", repository_of(reference)).into()))
    }

    /// The volumes that Compose made for a project, or Swarm for a stack of that name, by their key in its file.
    async fn compose_volumes(&self, project: &str) -> Result<BTreeMap<String, String>, RuntimeError> {
        let mut volumes = BTreeMap::new();
        for label in [STACK, COMPOSE_PROJECT] {
            let filters = HashMap::from([("label".to_owned(), vec![format!("{label}={project}")])]);
            let options = ListVolumesOptionsBuilder::new().filters(&filters).build();
            let list = self.call(SHORT, async |client| client.list_volumes(Some(options)).await).await?;
            for volume in list.volumes.into_iter().flatten() {
                let of_stack = volume.name.strip_prefix(project).and_then(|rest| rest.strip_prefix('_'));
                let key = volume.labels.get(COMPOSE_VOLUME).map(String::as_str).or(of_stack);
                volumes.extend(key.map(|key| (key.to_owned(), volume.name.clone())));
            }
        }
        Ok(volumes)
    }
}

/// The digest an image has at the reference's registry, else its id: it was built or loaded here.
fn identity(reference: &str, image: ImageInspect) -> Option<ResolvedImage> {
    let repository = repository_of(reference);
    let digests = image.repo_digests.unwrap_or_default();
    let of_it = digests.iter().filter_map(|digest| digest.split_once('@'));
    let pulled = of_it.into_iter().find(|(name, _)| familiar(name) == familiar(repository));
    match pulled {
        Some((_, digest)) => Some(ResolvedImage(format!("{repository}@{digest}").into())),
        None => image.id.map(|id| ResolvedImage(id.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_from_a_registry_is_known_by_its_digest_there_and_another_by_its_id() {
        let image = |digests: &[&str]| ImageInspect {
            id: Some("sha256:1d".to_owned()),
            repo_digests: Some(digests.iter().map(|digest| (*digest).to_owned()).collect()),
            ..ImageInspect::default()
        };
        let known = |reference: &str, digests: &[&str]| identity(reference, image(digests)).unwrap().to_string();
        assert_eq!(
            known("host:5000/web:1", &["other@sha256:aa", "host:5000/web@sha256:bb"]),
            "host:5000/web@sha256:bb"
        );
        assert_eq!(known("docker.io/library/nginx", &["nginx@sha256:cc"]), "docker.io/library/nginx@sha256:cc");
        assert_eq!(known("shop-web", &["host:5000/web@sha256:bb"]), "sha256:1d");
        assert_eq!(known("shop-web", &[]), "sha256:1d");
    }
}
