//! The members of a network state: nodes, services with their replicas, scopes, and the settings of the overlay.
//!
//! Owns: the data and what can be computed from one value alone.
//! Must not touch: how it is put into effect. Invariant: every field that was added later has a default, so a state that
//! an older daemon wrote is read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv6Addr},
};

use longshore_model::{
    AddressPlan, Attempt, Generation, GroupKey, MeshIdentity, MeshMode, NodeName, service::EndpointMode,
};
use serde::{Deserialize, Serialize};

use super::PublishedPort;

/// Settings of the overlay that every machine needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSettings {
    /// The cluster's id; names of devices and tables contain a part of it.
    pub cluster: String,
    /// Where addresses come from.
    pub addresses: AddressPlan,
    /// What joins the machines.
    pub mesh: MeshMode,
    /// The UDP port of the mesh.
    #[serde(default = "default_mesh_port")]
    pub mesh_port: u16,
}

/// The port of a state that was written before it had one.
const fn default_mesh_port() -> u16 {
    51820
}

/// A node as other machines see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkNode {
    /// Its name.
    pub name: NodeName,
    /// Its block of addresses; `None` before it got one.
    #[serde(default)]
    pub block: Option<u32>,
    /// The address that other machines reach it at.
    #[serde(default)]
    pub ip: Option<IpAddr>,
    /// How to reach its machine in the mesh; `None` if it takes no part in it.
    #[serde(default)]
    pub mesh: Option<MeshIdentity>,
    /// Whether it is neither down nor lost.
    pub is_up: bool,
}

/// A network of a manifest: its members reach each other. Printed `namespace/deployment/network`, and
/// `namespace//network` if the network is shared by deployments of the namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ScopeName(pub String);

impl fmt::Display for ScopeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A service's membership in a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The scope.
    pub name: ScopeName,
    /// Whether its members reach nothing outside of the overlay through it.
    #[serde(default)]
    pub internal: bool,
    /// Whether names resolve to IPv6 addresses, too.
    #[serde(default)]
    pub ipv6: bool,
    /// Further names of the service there.
    #[serde(default)]
    pub aliases: BTreeSet<String>,
}

/// A service with everything that machines need to reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkService {
    /// The service.
    pub group: GroupKey,
    /// Its published ports.
    pub ports: Vec<PublishedPort>,
    /// The number of its VIP; `None` if it has none.
    #[serde(default)]
    pub vip: Option<u32>,
    /// What its name resolves to.
    #[serde(default)]
    pub endpoint_mode: EndpointMode,
    /// The scopes its replicas are in.
    #[serde(default)]
    pub scopes: Vec<Scope>,
    /// The name its replicas have inside, where the manifest gives one.
    #[serde(default)]
    pub hostname: Option<String>,
    /// Name servers of the manifest, asked for foreign names instead of the machine's.
    #[serde(default)]
    pub dns: Vec<IpAddr>,
    /// Names that only this service uses for services of its deployment: name -> service.
    #[serde(default)]
    pub links: BTreeMap<String, String>,
    /// Its replicas that are, or are about to be, on a node.
    #[serde(default)]
    pub replicas: Vec<NetworkReplica>,
}

impl NetworkService {
    /// A service without ports, scopes and replicas.
    pub fn new(group: GroupKey) -> Self {
        Self {
            group,
            ports: Vec::new(),
            vip: None,
            endpoint_mode: EndpointMode::default(),
            scopes: Vec::new(),
            hostname: None,
            dns: Vec::new(),
            links: BTreeMap::new(),
            replicas: Vec::new(),
        }
    }

    /// The replicas that take traffic.
    pub fn serving(&self) -> impl Iterator<Item = &NetworkReplica> {
        self.replicas.iter().filter(|replica| replica.serves)
    }
}

/// One generation of a replica with an overlay address. Addresses of replicas that do not serve yet, or are stopping,
/// are members of their scopes all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkReplica {
    /// Its printed id, as `shop-web-0`.
    pub id: String,
    /// Its generation.
    pub generation: Generation,
    /// Its attempt.
    pub attempt: Attempt,
    /// Its node.
    pub node: NodeName,
    /// Its IPv6 address; [`AddressPlan::ipv4_of`] gives the IPv4 address.
    pub address: Ipv6Addr,
    /// Whether it is running, healthy, not about to stop, and its node is not down.
    pub serves: bool,
}
