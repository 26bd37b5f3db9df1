//! The networks of a deployment on this machine.
//!
//! Owns: what a network is called at the engine, making it, and taking it away when nobody needs it.
//! Invariant: a network of another cluster is neither joined nor removed, also when it bears the name.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bollard::{
    models::{Network, NetworkCreateRequest},
    query_parameters::ListNetworksOptionsBuilder,
};
use longshore_model::{
    Work,
    service::{Attachment, NetworkReach, NetworkSpec},
};

use super::{Docker, LONG, SHORT, labels};
use crate::runtime::RuntimeError;

/// A network a container is attached to.
#[derive(Debug)]
pub(super) struct EngineNetwork {
    pub(super) name: String,
    pub(super) attachment: Attachment,
}

impl Docker {
    /// Makes the networks that do not exist; all of the work's in the order they are attached.
    pub(super) async fn networks(&self, work: &Work) -> Result<Vec<EngineNetwork>, RuntimeError> {
        if work.spec.container.namespaces.network.is_some() {
            return Ok(Vec::new());
        }
        let mut networks = Vec::new();
        for (spec, attachment) in attachments(work) {
            let name = self.network(work, &spec).await?;
            networks.push(EngineNetwork { name, attachment });
        }
        Ok(networks)
    }

    /// The name of the network at the engine, which exists afterwards.
    async fn network(&self, work: &Work, spec: &NetworkSpec) -> Result<String, RuntimeError> {
        let name = network_name(work, spec);
        let (own, foreign): (Vec<Network>, Vec<Network>) =
            self.named(&name).await?.into_iter().partition(|network| self.is_ours(network));
        if spec.reach == NetworkReach::External {
            let missing = || RuntimeError::Refused(format!("network `{name}` does not exist on this node"));
            return if own.is_empty() && foreign.is_empty() { Err(missing()) } else { Ok(name) };
        }
        let name = if foreign.is_empty() { name } else { self.own_name(&name) };
        let exists = !own.is_empty() || !foreign.is_empty() && !self.named(&name).await?.is_empty();
        if !exists {
            if !foreign.is_empty() {
                tracing::warn!(network = name, "the plain name is taken by a network that is not ours");
            }
            self.make_network(&name, spec).await?;
        }
        Ok(name)
    }

    async fn named(&self, name: &str) -> Result<Vec<Network>, RuntimeError> {
        let filters = HashMap::from([("name".to_owned(), vec![format!("^{name}$")])]);
        let options = ListNetworksOptionsBuilder::new().filters(&filters).build();
        let found = self.call(SHORT, async |client| client.list_networks(Some(options)).await).await?;
        // A filter by name finds parts of names too, in some engines.
        Ok(found.into_iter().filter(|network| network.name.as_deref() == Some(name)).collect())
    }

    fn is_ours(&self, network: &Network) -> bool {
        network.labels.iter().flatten().any(|(name, value)| name == labels::CLUSTER && *value == self.cluster_id)
    }

    async fn make_network(&self, name: &str, spec: &NetworkSpec) -> Result<(), RuntimeError> {
        let mut own: HashMap<String, String> =
            spec.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        own.insert(labels::CLUSTER.to_owned(), self.cluster_id.clone());
        own.insert(labels::NODE.to_owned(), self.node.to_string());
        let request = NetworkCreateRequest {
            name: name.to_owned(),
            // A network that spans machines is not the engine's business here: on one machine it is a bridge.
            driver: Some(
                spec.driver.clone().filter(|driver| driver != "overlay").unwrap_or_else(|| "bridge".to_owned()),
            ),
            internal: Some(spec.reach == NetworkReach::Internal),
            options: Some(spec.options.iter().map(|(name, value)| (name.clone(), value.clone())).collect()),
            labels: Some(own),
            ..NetworkCreateRequest::default()
        };
        // Two replicas of a deployment that start at once would each make one of the name: engines allow that.
        let _alone = self.making_networks.lock().await;
        if !self.named(name).await?.is_empty() {
            return Ok(());
        }
        let made = self.call(LONG, async |client| client.create_network(request).await).await;
        match made {
            Err(RuntimeError::Refused(reason)) if reason.contains("address pool") => {
                Err(RuntimeError::NoSubnet(reason))
            }
            other => other.map(drop),
        }
    }

    /// Takes away networks of ours that no work names any more.
    pub(crate) async fn tidy_networks<'w>(&self, work: impl Iterator<Item = &'w Work>) -> Result<(), RuntimeError> {
        let needed: BTreeSet<String> = work
            .flat_map(|work| attachments(work).into_iter().map(move |(spec, _)| network_name(work, &spec)))
            .flat_map(|name| [self.own_name(&name), name])
            .collect();
        let options = ListNetworksOptionsBuilder::new().filters(&self.own()).build();
        let found = self.call(SHORT, async |client| client.list_networks(Some(options)).await).await?;
        for name in found.into_iter().filter_map(|network| network.name).filter(|name| !needed.contains(name)) {
            // In use after all: the engine refuses, and the next sweep asks again.
            let _ = self.call(LONG, async |client| client.remove_network(&name).await).await;
        }
        Ok(())
    }
}

/// The networks a work is attached to, first the most important. One that names none is on its deployment's own.
fn attachments(work: &Work) -> Vec<(NetworkSpec, Attachment)> {
    let fallback = BTreeMap::from([("default".to_owned(), Attachment::default())]);
    let wanted = if work.spec.networks.is_empty() { &fallback } else { &work.spec.networks };
    let own =
        |key: &str| NetworkSpec { name: format!("{}_{key}", work.key.group.deployment), ..NetworkSpec::default() };
    let mut networks: Vec<(NetworkSpec, Attachment)> = wanted
        .iter()
        .map(|(key, attachment)| (work.networks.get(key).cloned().unwrap_or_else(|| own(key)), attachment.clone()))
        .collect();
    networks.sort_by_key(|(_, attachment)| std::cmp::Reverse(attachment.priority));
    networks
}

/// `longshore_<deployment>_<key>`, as with volumes; a name the user chose is the user's.
fn network_name(work: &Work, spec: &NetworkSpec) -> String {
    let group = &work.key.group;
    let ours = spec.name.strip_prefix(group.deployment.as_str()).is_some_and(|rest| rest.starts_with('_'));
    match (spec.reach, ours) {
        (NetworkReach::External, _) | (_, false) => spec.name.clone(),
        _ if group.namespace.as_str() == "default" => format!("longshore_{}", spec.name),
        _ => format!("longshore_{}.{}", group.namespace, spec.name),
    }
}
