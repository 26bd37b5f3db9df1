//! Traffic: how clients reach replicas.
//!
//! ```text
//! network_state   published ports -> endpoints, as plain data; arrives as a feed, is kept on disk by the daemon
//! render          state -> bridges, routes, kernel parameters and the nftables table of this machine; pure
//! mesh            joins the machines: encrypted device, peers, probes
//! port_proxy      listens on the published ports of this machine and relays to the endpoints
//! ```
//!
//! Owns: the listeners of published ports, choosing an endpoint, and leaving alone those that do not answer.
//! Must not touch: which replicas exist and where they run. It asks no server: all it knows is in a [`NetworkState`].
//! Invariant: a client is refused only after every endpoint was tried, and a port that cannot be listened on is one
//! condition of this machine, never an error of the daemon.

#![forbid(unsafe_code)]

pub mod mesh;
mod network_state;
mod port_proxy;
pub mod render;

pub use self::{
    network_state::{
        Endpoint, EndpointMode, MeshIdentity, MeshMode, NetworkFeed, NetworkNode, NetworkReplica, NetworkService,
        NetworkSettings, NetworkState, PublishedPort, Scope, ScopeName, TouchedServices,
    },
    port_proxy::PortProxy,
};
