//! The networks of deployments at the engine of this node.
//!
//! Owns: a network's name at the engine, creating it, and removing it when no work uses it.
//! Several nodes of one process may share an engine. They share the networks of a deployment too, so that its services
//! reach each other by name, and a network stays as long as one of them needs it.
//! Invariant: a network of another cluster is neither joined nor removed, even if it has the name; engines allow two
//! networks of one name and then find neither, so creating and removing them is serialised in this process.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bollard::{
    models::{Network, NetworkCreateRequest},
    query_parameters::ListNetworksOptionsBuilder,
};
use longshore_model::{
    Work,
    service::{Attachment, NetworkReach, NetworkSpec},
};

use super::{Docker, LONG, SHORT, create::hash_map, labels, overlay_network::OverlayEndpoint};
use crate::runtime::RuntimeError;

/// Held while a network is created or removed.
pub(super) static CHANGES: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
/// The names of the networks that each node of this process needs, by cluster and node.
static NEEDED: Mutex<BTreeMap<(String, String), BTreeSet<String>>> = Mutex::new(BTreeMap::new());

fn needed() -> MutexGuard<'static, BTreeMap<(String, String), BTreeSet<String>>> {
    // Each change is one map operation, so a panic elsewhere leaves no partial update.
    NEEDED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A network a container is attached to.
#[derive(Debug)]
pub(super) struct EngineNetwork {
    pub(super) name: String,
    pub(super) attachment: Attachment,
    /// Its place on the overlay, if it is that network.
    pub(super) overlay: Option<OverlayEndpoint>,
}

impl Docker {
    /// Creates missing networks and returns all of the work's, in the order in which they are attached.
    ///
    /// With an overlay, networks of the manifest are no networks of the engine: who reaches whom is decided by rules.
    /// Only what the engine alone can provide is attached in addition.
    pub(super) async fn networks(
        &self,
        work: &Work,
        overlay: Option<&OverlayEndpoint>,
    ) -> Result<Vec<EngineNetwork>, RuntimeError> {
        if work.spec.container.namespaces.network.is_some() {
            return Ok(Vec::new());
        }
        let mut networks = Vec::new();
        if let Some(endpoint) = overlay {
            self.ensure_overlay_network(&endpoint.overlay).await?;
            let (name, attachment) = (endpoint.overlay.engine_network.clone(), Attachment::default());
            networks.push(EngineNetwork { name, attachment, overlay: Some(endpoint.clone()) });
        }
        for (spec, attachment) in attachments(work) {
            if overlay.is_some() && !self.is_attached_in_addition(&spec).await? {
                continue;
            }
            let name = self.ensure_network(work, &spec).await?;
            networks.push(EngineNetwork { name, attachment, overlay: None });
        }
        Ok(networks)
    }

    /// A network of another driver, and an external one that this engine has.
    async fn is_attached_in_addition(&self, spec: &NetworkSpec) -> Result<bool, RuntimeError> {
        match (spec.reach, spec.driver.as_deref()) {
            (NetworkReach::External, _) => Ok(!self.networks_named(&spec.name).await?.is_empty()),
            (NetworkReach::Open | NetworkReach::Internal, None | Some("" | "bridge" | "overlay")) => Ok(false),
            (NetworkReach::Open | NetworkReach::Internal, Some(_)) => Ok(true),
        }
    }

    /// Ensures that the network exists, and returns its name at the engine.
    async fn ensure_network(&self, work: &Work, spec: &NetworkSpec) -> Result<String, RuntimeError> {
        let name = network_name(work, spec);
        let _guard = CHANGES.lock().await;
        let (own, foreign): (Vec<Network>, Vec<Network>) =
            self.networks_named(&name).await?.into_iter().partition(|network| self.is_ours(network));
        if spec.reach == NetworkReach::External {
            let missing = || RuntimeError::Refused(format!("network `{name}` does not exist on this node"));
            return if own.is_empty() && foreign.is_empty() { Err(missing()) } else { Ok(name) };
        }
        let name = if foreign.is_empty() { name } else { self.cluster_scoped_name(&name) };
        needed().entry(self.node_key()).or_default().insert(name.clone());
        self.remove_duplicates(&own).await;
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

    pub(super) async fn networks_named(&self, name: &str) -> Result<Vec<Network>, RuntimeError> {
        let filters = HashMap::from([("name".to_owned(), vec![format!("^{name}$")])]);
        let options = ListNetworksOptionsBuilder::new().filters(&filters).build();
        let existing = self.call(SHORT, async |client| client.list_networks(Some(options)).await).await?;
        // Some engines also match parts of names.
        Ok(existing.into_iter().filter(|network| network.name.as_deref() == Some(name)).collect())
    }

    pub(super) fn is_ours(&self, network: &Network) -> bool {
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
        let created = self.call(LONG, async |client| client.create_network(request).await).await;
        match created {
            Err(RuntimeError::Refused(reason)) if reason.contains("address pool") => {
                Err(RuntimeError::NoSubnet(reason))
            }
            other => other.map(drop),
        }
    }

    /// Removes networks of this cluster that no work of this process uses.
    pub(super) async fn prune_networks(&self, work: &[Work]) -> Result<(), RuntimeError> {
        let _guard = CHANGES.lock().await;
        let own = work
            .iter()
            .flat_map(|work| attachments(work).into_iter().map(move |(spec, _)| network_name(work, &spec)))
            .flat_map(|name| [self.cluster_scoped_name(&name), name]);
        let overlay = self.overlay.as_ref().and_then(|handle| handle.current(&self.node));
        let own = own.chain(overlay.map(|overlay| overlay.engine_network));
        let needed: BTreeSet<String> = {
            let mut all = needed();
            all.insert(self.node_key(), own.collect());
            all.iter()
                .filter(|((cluster, _), _)| *cluster == self.cluster_id)
                .flat_map(|(_, names)| names)
                .cloned()
                .collect()
        };
        let label = format!("{}={}", labels::CLUSTER, self.cluster_id);
        let filters = HashMap::from([("label".to_owned(), vec![label])]);
        let options = ListNetworksOptionsBuilder::new().filters(&filters).build();
        let existing = self.call(SHORT, async |client| client.list_networks(Some(options)).await).await?;
        let unused = existing.iter().filter(|network| network.name.as_ref().is_some_and(|name| !needed.contains(name)));
        for id in unused.filter_map(|network| network.id.as_deref()) {
            // The engine refuses while the network is in use; the next call tries again.
            let _ = self.call(LONG, async |client| client.remove_network(id).await).await;
        }
        Ok(())
    }

    /// Removes all but one of several networks with one name, which older agents could leave behind. The engine refuses
    /// to remove one that is in use.
    async fn remove_duplicates(&self, own: &[Network]) {
        let mut left = own.len();
        for id in own.iter().filter_map(|network| network.id.as_deref()) {
            if left <= 1 {
                return;
            }
            let removed = self.call(LONG, async |client| client.remove_network(id).await).await;
            left -= usize::from(removed.is_ok());
        }
    }

    fn node_key(&self) -> (String, String) {
        (self.cluster_id.clone(), self.node.to_string())
    }

    /// The node of an agent that ended needs nothing any more in this process.
    pub(super) fn forget_networks(&self) {
        needed().remove(&self.node_key());
    }
}

/// The networks a work is attached to, by falling priority. A service that names none is on the deployment's `default`.
fn attachments(work: &Work) -> Vec<(NetworkSpec, Attachment)> {
    let fallback = BTreeMap::from([("default".to_owned(), Attachment::default())]);
    let attached = if work.spec.networks.is_empty() { &fallback } else { &work.spec.networks };
    let own = |key: &str| NetworkSpec { name: format!("{}_{key}", work.base_deployment()), ..NetworkSpec::default() };
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
    let is_generated =
        spec.name.strip_prefix(work.base_deployment().as_str()).is_some_and(|rest| rest.starts_with('_'));
    match (spec.reach, is_generated) {
        (NetworkReach::External, _) | (_, false) => spec.name.clone(),
        _ if group.namespace.as_str() == "default" => format!("longshore_{}", spec.name),
        _ => format!("longshore_{}.{}", group.namespace, spec.name),
    }
}
