//! The networks of deployments at the engine of this node.
//!
//! Owns: a network's name at the engine, creating it, and removing it when no work uses it.
//! Invariant: a network of another cluster is neither joined nor removed, even if it has the name.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bollard::{
    models::{Network, NetworkCreateRequest},
    query_parameters::ListNetworksOptionsBuilder,
};
use longshore_model::{
    Work,
    service::{Attachment, NetworkReach, NetworkSpec},
};

use super::{Docker, LONG, SHORT, create::hash_map, labels};
use crate::runtime::RuntimeError;

/// A network a container is attached to.
#[derive(Debug)]
pub(super) struct EngineNetwork {
    pub(super) name: String,
    pub(super) attachment: Attachment,
}

impl Docker {
    /// Creates missing networks and returns all of the work's, in the order in which they are attached.
    pub(super) async fn networks(&self, work: &Work) -> Result<Vec<EngineNetwork>, RuntimeError> {
        if work.spec.container.namespaces.network.is_some() {
            return Ok(Vec::new());
        }
        let mut networks = Vec::new();
        for (spec, attachment) in attachments(work) {
            let name = self.ensure_network(work, &spec).await?;
            networks.push(EngineNetwork { name, attachment });
        }
        Ok(networks)
    }

    /// Ensures that the network exists, and returns its name at the engine.
    async fn ensure_network(&self, work: &Work, spec: &NetworkSpec) -> Result<String, RuntimeError> {
        let name = network_name(work, spec);
        let (own, foreign): (Vec<Network>, Vec<Network>) =
            self.networks_named(&name).await?.into_iter().partition(|network| self.is_ours(network));
        if spec.reach == NetworkReach::External {
            let missing = || RuntimeError::Refused(format!("network `{name}` does not exist on this node"));
            return if own.is_empty() && foreign.is_empty() { Err(missing()) } else { Ok(name) };
        }
        let name = if foreign.is_empty() { name } else { self.cluster_scoped_name(&name) };
        let exists = !own.is_empty() || !foreign.is_empty() && !self.networks_named(&name).await?.is_empty();
        if !exists {
            if !foreign.is_empty() {
                tracing::warn!(
                    network = name,
                    "the plain name belongs to a foreign network; using the cluster-scoped name"
                );
            }
            self.create_network(&name, spec).await?;
        }
        Ok(name)
    }

    async fn networks_named(&self, name: &str) -> Result<Vec<Network>, RuntimeError> {
        let filters = HashMap::from([("name".to_owned(), vec![format!("^{name}$")])]);
        let options = ListNetworksOptionsBuilder::new().filters(&filters).build();
        let existing = self.call(SHORT, async |client| client.list_networks(Some(options)).await).await?;
        // Some engines also match parts of names.
        Ok(existing.into_iter().filter(|network| network.name.as_deref() == Some(name)).collect())
    }

    fn is_ours(&self, network: &Network) -> bool {
        network.labels.iter().flatten().any(|(name, value)| name == labels::CLUSTER && *value == self.cluster_id)
    }

    async fn create_network(&self, name: &str, spec: &NetworkSpec) -> Result<(), RuntimeError> {
        let mut own_labels = hash_map(&spec.labels);
        own_labels.insert(labels::CLUSTER.to_owned(), self.cluster_id.clone());
        own_labels.insert(labels::NODE.to_owned(), self.node.to_string());
        let request = NetworkCreateRequest {
            name: name.to_owned(),
            // A network across machines is not built by the engine: on each machine it is a bridge.
            driver: Some(
                spec.driver.clone().filter(|driver| driver != "overlay").unwrap_or_else(|| "bridge".to_owned()),
            ),
            internal: Some(spec.reach == NetworkReach::Internal),
            options: Some(hash_map(&spec.options)),
            labels: Some(own_labels),
            ..NetworkCreateRequest::default()
        };
        // Engines allow two networks of one name, so two replicas that start at once must not both create it.
        let _guard = self.network_creation.lock().await;
        if !self.networks_named(name).await?.is_empty() {
            return Ok(());
        }
        let created = self.call(LONG, async |client| client.create_network(request).await).await;
        match created {
            Err(RuntimeError::Refused(reason)) if reason.contains("address pool") => {
                Err(RuntimeError::NoSubnet(reason))
            }
            other => other.map(drop),
        }
    }

    /// Removes this node's networks that no work uses.
    pub(super) async fn prune_networks(&self, work: &[Work]) -> Result<(), RuntimeError> {
        let needed: BTreeSet<String> = work
            .iter()
            .flat_map(|work| attachments(work).into_iter().map(move |(spec, _)| network_name(work, &spec)))
            .flat_map(|name| [self.cluster_scoped_name(&name), name])
            .collect();
        let options = ListNetworksOptionsBuilder::new().filters(&self.ownership_filter()).build();
        let existing = self.call(SHORT, async |client| client.list_networks(Some(options)).await).await?;
        for name in existing.into_iter().filter_map(|network| network.name).filter(|name| !needed.contains(name)) {
            // The engine refuses while the network is in use; the next call tries again.
            let _ = self.call(LONG, async |client| client.remove_network(&name).await).await;
        }
        Ok(())
    }
}

/// The networks a work is attached to, by falling priority. A service that names none is on the deployment's `default`.
fn attachments(work: &Work) -> Vec<(NetworkSpec, Attachment)> {
    let fallback = BTreeMap::from([("default".to_owned(), Attachment::default())]);
    let attached = if work.spec.networks.is_empty() { &fallback } else { &work.spec.networks };
    let own =
        |key: &str| NetworkSpec { name: format!("{}_{key}", work.key.group.deployment), ..NetworkSpec::default() };
    let mut networks: Vec<(NetworkSpec, Attachment)> = attached
        .iter()
        .map(|(key, attachment)| (work.networks.get(key).cloned().unwrap_or_else(|| own(key)), attachment.clone()))
        .collect();
    networks.sort_by_key(|(_, attachment)| std::cmp::Reverse(attachment.priority));
    networks
}

/// `longshore_<deployment>_<key>`, as for volumes. An external network and a name the user chose stay as they are.
fn network_name(work: &Work, spec: &NetworkSpec) -> String {
    let group = &work.key.group;
    let is_generated = spec.name.strip_prefix(group.deployment.as_str()).is_some_and(|rest| rest.starts_with('_'));
    match (spec.reach, is_generated) {
        (NetworkReach::External, _) | (_, false) => spec.name.clone(),
        _ if group.namespace.as_str() == "default" => format!("longshore_{}", spec.name),
        _ => format!("longshore_{}.{}", group.namespace, spec.name),
    }
}
