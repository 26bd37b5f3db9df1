//! Which deployment, service or replica a word of the command line means.
//!
//! ```text
//! replica id ─▶ DEPLOYMENT/SERVICE ─▶ deployment ─▶ service of this folder's deployment ─▶ service of the only deployment with it
//! no word: this folder's deployment ─▶ the only deployment of the namespace
//! ```
//!
//! Owns: that order, and the refusal where several deployments match. Must not touch: the deployment.
//! Invariant: a word that matches several things is never guessed.

use anyhow::bail;
use longshore_api::{Client, Deployment, Replica, ReplicaState, Status};

use crate::{daemon_client::NamespaceArgs, manifest, output::qualified};

/// What a word means.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) deployment: Deployment,
    /// One of its services; `None` for all of them.
    pub(crate) service: Option<String>,
    /// One of its replicas, by printed id.
    pub(crate) replica: Option<String>,
}

impl Workload {
    /// The name that the daemon takes for logs: a replica, `DEPLOYMENT/SERVICE` or a deployment.
    pub(crate) fn name(&self) -> String {
        match (&self.replica, &self.service) {
            (Some(replica), _) => replica.clone(),
            (None, Some(service)) => format!("{}/{service}", self.deployment.name),
            (None, None) => self.deployment.name.clone(),
        }
    }

    /// Its services by name.
    pub(crate) fn services(&self) -> Vec<String> {
        match &self.service {
            Some(service) => vec![service.clone()],
            None => self.deployment.services.iter().map(|service| service.name.clone()).collect(),
        }
    }

    /// Whether a replica belongs to it.
    pub(crate) fn contains(&self, replica: &Replica) -> bool {
        let Deployment { namespace, name, .. } = &self.deployment;
        let same = (&replica.namespace, &replica.deployment) == (namespace, name);
        let of_service = self.service.as_ref().is_none_or(|service| *service == replica.service);
        same && of_service && self.replica.as_ref().is_none_or(|id| *id == replica.id)
    }
}

/// The workload that `word` means, or without one the deployment of this folder. `None` if nothing has that name; the
/// error lists the matches if there are several.
pub(crate) async fn find(
    client: &Client,
    scope: &NamespaceArgs,
    word: Option<&str>,
) -> anyhow::Result<Option<(Workload, Status)>> {
    let namespace = scope.namespace();
    let mut status = client.status(namespace, None).await?;
    status.deployments.retain(|deployment| deployment.namespace == namespace);
    status.replicas.retain(|replica| replica.namespace == namespace);
    let folder = manifest::folder_deployment(namespace);
    let found = if let Some(word) = word {
        named(&status, folder.as_deref(), word, &scope.replica_id(word))?
    } else {
        // A one-off job is meant only by its name.
        let mut projects = status.clone();
        projects.deployments.retain(|deployment| deployment.one_off_of.is_none());
        Some(unnamed(&projects, folder.as_deref())?)
    };
    Ok(found.map(|found| (found, status)))
}

fn named(status: &Status, folder: Option<&str>, word: &str, replica_id: &str) -> anyhow::Result<Option<Workload>> {
    let deployment = |name: &str| status.deployments.iter().find(|deployment| deployment.name == name);
    let of = |deployment: &Deployment, service: &str| Workload {
        deployment: deployment.clone(),
        service: Some(service.to_owned()),
        replica: None,
    };
    if let Some(replica) = status.replicas.iter().find(|replica| replica.id == replica_id) {
        let found = deployment(&replica.deployment).map(|it| of(it, &replica.service));
        return Ok(found.map(|found| Workload { replica: Some(replica.id.clone()), ..found }));
    }
    if let Some((name, service)) = word.split_once('/') {
        return Ok(deployment(name).filter(|it| has_service(it, service)).map(|it| of(it, service)));
    }
    if let Some(deployment) = deployment(word) {
        return Ok(Some(Workload { deployment: deployment.clone(), service: None, replica: None }));
    }
    if let Some(own) = folder.and_then(deployment).filter(|it| has_service(it, word)) {
        return Ok(Some(of(own, word)));
    }
    let matches: Vec<&Deployment> = status.deployments.iter().filter(|it| has_service(it, word)).collect();
    if matches.len() > 1 {
        let names = listed(matches.iter().copied());
        bail!(
            "several deployments have a service `{word}`: {names}\n\nhint: name one of them, for instance `{}/{word}`",
            matches[0].name
        );
    }
    Ok(matches.first().map(|it| of(it, word)))
}

fn unnamed(status: &Status, folder: Option<&str>) -> anyhow::Result<Workload> {
    let own = folder.and_then(|name| status.deployments.iter().find(|deployment| deployment.name == name));
    let found = match (own, folder, status.deployments.as_slice()) {
        (Some(own), _, _) => own,
        (None, _, []) => bail!("nothing is deployed\n\nhint: `longshore up` runs the Compose file of this folder"),
        (None, None, [only]) => only,
        // Another project than the one the folder is about must be named.
        (None, Some(name), others) => {
            let names = listed(others.iter());
            bail!(
                "`{name}`, the project of this folder, is not deployed\n\nhint: `longshore up` runs it; deployed are {names}"
            );
        }
        (None, None, several) => {
            let names = listed(several.iter());
            bail!("several deployments exist and none is of this folder: {names}\n\nhint: name one of them");
        }
    };
    Ok(Workload { deployment: found.clone(), service: None, replica: None })
}

fn has_service(deployment: &Deployment, service: &str) -> bool {
    deployment.services.iter().any(|known| known.name == service)
}

fn listed<'a>(deployments: impl Iterator<Item = &'a Deployment>) -> String {
    let names: Vec<String> = deployments.map(|it| format!("`{}`", qualified(&it.namespace, &it.name))).collect();
    names.join(", ")
}

/// A running replica of a workload: the one that was named, else the first.
pub(crate) fn running_replica(workload: &Workload, status: &Status) -> anyhow::Result<String> {
    if let Some(replica) = &workload.replica {
        return Ok(replica.clone());
    }
    let own = || status.replicas.iter().filter(|replica| workload.contains(replica));
    if let Some(running) = own().find(|replica| replica.state == ReplicaState::Running) {
        return Ok(running.id.clone());
    }
    let seen: Vec<String> = own().map(|replica| format!("{} is {}", replica.id, replica.state)).collect();
    let name = workload.name();
    let known = if seen.is_empty() { "it has none".to_owned() } else { seen.join(", ") };
    bail!("`{name}` has no running replica: {known}\n\nhint: `longshore why {name}` explains what blocks it");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(deployments: &[(&str, &[&str])]) -> Status {
        let service = |name: &&str| {
            json!({ "name": name, "image": "i", "strategy": "spread", "driver": "exec", "desired": 1, "wanted": 1,
                "running": 1 })
        };
        let rows = deployments.iter().map(|(name, services)| {
            json!({ "namespace": "default", "name": name, "status": "active", "reasons": [], "revision": 1,
                "revisions": [1], "rollout": null, "services": services.iter().map(service).collect::<Vec<_>>() })
        });
        let replicas = deployments.iter().flat_map(|(name, services)| {
            services.iter().map(move |service| {
                json!({ "id": format!("{name}-{service}-0"), "namespace": "default", "deployment": name,
                    "service": service, "node": "n", "state": "running", "code": null, "details": {},
                    "generation": 1, "attempt": 0, "revision": 1, "restarts": 0, "since_ms": null, "address": null })
            })
        });
        let whole = json!({ "deployments": rows.collect::<Vec<_>>(), "replicas": replicas.collect::<Vec<_>>() });
        serde_json::from_value(whole).unwrap()
    }

    fn meant(status: &Status, folder: Option<&str>, word: &str) -> String {
        match named(status, folder, word, word) {
            Ok(Some(found)) => found.name(),
            Ok(None) => "nothing".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_word_is_a_replica_a_deployment_or_a_service_and_the_folder_decides_between_services() {
        let status = status(&[("shop", &["web", "db"]), ("blog", &["web"])]);
        assert_eq!(meant(&status, None, "shop-web-0"), "shop-web-0");
        assert_eq!(meant(&status, None, "blog"), "blog");
        assert_eq!(meant(&status, None, "blog/web"), "blog/web");
        assert_eq!(meant(&status, None, "db"), "shop/db");
        assert_eq!(meant(&status, Some("blog"), "web"), "blog/web");
        assert_eq!(meant(&status, None, "wbe"), "nothing");
        insta::assert_snapshot!(meant(&status, Some("other"), "web"), @r"
        several deployments have a service `web`: `shop`, `blog`

        hint: name one of them, for instance `shop/web`
        ");
    }

    #[test]
    fn without_a_word_the_folder_or_the_only_deployment_is_meant() {
        let two = status(&[("shop", &["web"]), ("blog", &["web"])]);
        assert_eq!(unnamed(&two, Some("blog")).unwrap().name(), "blog");
        assert_eq!(unnamed(&status(&[("shop", &["web"])]), None).unwrap().name(), "shop");
        insta::assert_snapshot!(unnamed(&two, None).unwrap_err().to_string(), @r"
        several deployments exist and none is of this folder: `shop`, `blog`

        hint: name one of them
        ");
        assert!(unnamed(&status(&[]), None).is_err());
        insta::assert_snapshot!(unnamed(&status(&[("blog", &["web"])]), Some("shop")).unwrap_err().to_string(), @r"
        `shop`, the project of this folder, is not deployed

        hint: `longshore up` runs it; deployed are `blog`
        ");
    }

    #[test]
    fn a_running_replica_is_picked_and_none_is_an_error_that_says_what_there_is() {
        let mut status = status(&[("shop", &["web"])]);
        let shop = unnamed(&status, None).unwrap();
        assert_eq!(running_replica(&shop, &status).unwrap(), "shop-web-0");
        status.replicas[0].state = ReplicaState::Pulling;
        insta::assert_snapshot!(running_replica(&shop, &status).unwrap_err().to_string(), @r"
        `shop` has no running replica: shop-web-0 is pulling

        hint: `longshore why shop` explains what blocks it
        ");
    }
}
