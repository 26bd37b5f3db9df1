//! The overlay as clients see it: networks, the addresses of a service, and a node's part in it.

use serde::{Deserialize, Serialize};

/// A network that replicas share, across machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkRow {
    /// `namespace/deployment/network`, or `namespace//network` if deployments share it.
    pub name: String,
    /// Whether its replicas reach nothing outside of the overlay through it.
    pub internal: bool,
    /// Whether names on it resolve to IPv6 addresses, too.
    pub ipv6: bool,
    /// Its services, as `deployment/service`.
    pub services: Vec<String>,
    /// How many of their replicas are on a node.
    pub replicas: u64,
}

/// How a service is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceNetwork {
    /// Its namespace.
    pub namespace: String,
    /// Its deployment.
    pub deployment: String,
    /// Its name.
    pub service: String,
    /// The addresses that its name resolves to, IPv4 first; none with `dnsrr` and without networks.
    pub vips: Vec<String>,
    /// `vip` or `dnsrr`.
    pub endpoint_mode: String,
    /// Its networks.
    pub networks: Vec<String>,
    /// Published ports, as `8080/tcp`.
    pub ports: Vec<String>,
    /// Its replicas.
    pub endpoints: Vec<ServiceEndpoint>,
}

/// A replica of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceEndpoint {
    /// Its printed id.
    pub replica: String,
    /// Its generation.
    pub generation: u32,
    /// Its node.
    pub node: String,
    /// Its overlay addresses, IPv4 first.
    pub addresses: Vec<String>,
    /// Whether connections are led to it by those addresses.
    pub serves: bool,
}

/// A node's part in the overlay, as it reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeNetwork {
    /// What joins it to other machines; absent if nothing does.
    pub mesh: Option<String>,
    /// The UDP port of the mesh.
    pub mesh_port: Option<u16>,
    /// Its machine's public key in the mesh.
    pub public_key: Option<String>,
    /// The largest packet that a replica sends, in bytes.
    pub mtu: Option<u32>,
    /// Whether its new replicas have overlay addresses.
    pub gives_addresses: bool,
    /// Whether it reaches its peers.
    pub reaches_peers: bool,
}

impl From<&longshore_model::NodeNetwork> for NodeNetwork {
    fn from(network: &longshore_model::NodeNetwork) -> Self {
        let longshore_model::NodeNetwork { mesh, mesh_kind, mtu, gives_addresses, reach } = network.clone();
        Self {
            mesh: mesh_kind.map(|kind| kind.to_string()),
            mesh_port: mesh.as_ref().map(|mesh| mesh.port),
            public_key: mesh.map(|mesh| mesh.public_key),
            mtu,
            gives_addresses,
            reaches_peers: reach == longshore_model::node::Overlay::Reachable,
        }
    }
}
