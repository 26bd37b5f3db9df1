//! Traffic: how clients reach replicas.
//!
//! ```text
//! network_state   published ports -> endpoints, as plain data; arrives as a feed, is kept on disk by the daemon
//! render          state -> bridges, routes, kernel parameters and the nftables table of this machine; pure
//! host_network    puts that into effect, watches it and repairs it; offers the overlay to the agent's drivers
//! mesh            joins the machines: encrypted device, peers, probes
//! dataplane       hosts what follows, in a process that outlives the daemon
//! dns             answers names of replicas and services by who asks
//! port_proxy      listens on the published ports of this machine and relays to the endpoints
//! transparent_relay  connects to replicas of this machine from the client's own address
//! ```
//!
//! Owns: the listeners of published ports, choosing an endpoint, and leaving alone those that do not answer.
//! Must not touch: which replicas exist and where they run. It asks no server: all it knows is in a [`NetworkState`].
//! Invariant: a client is refused only after every endpoint was tried, and a port that cannot be listened on is one
//! condition of this machine, never an error of the daemon.

#![forbid(unsafe_code)]

pub mod dataplane;
mod dns;
mod host_network;
pub mod mesh;
mod network_state;
mod port_proxy;
mod proxy_protocol;
pub mod render;
mod socket_handover;
mod tcp_relay;
mod transparent_relay;

pub use self::{
    host_network::{
        AttachError, HostNetwork, HostNetworkConfig, LocalOverlay, OverlayHandle, OverlayMode, attach_namespace,
        detach_namespace,
    },
    network_state::{
        Endpoint, EndpointMode, MeshIdentity, MeshMode, NetworkFeed, NetworkNode, NetworkReplica, NetworkService,
        NetworkSettings, NetworkState, PublishedPort, Scope, ScopeName, TouchedServices, TransparentWay, Vantage,
    },
    port_proxy::{EndpointTraffic, ServiceTraffic},
};
