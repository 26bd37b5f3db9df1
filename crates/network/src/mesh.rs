//! The encrypted mesh between machines.
//!
//! ```text
//! key        the machine's key; its public half is the machine's identity in the mesh
//! peers      network state -> peers with the networks each may speak for (pure)
//! mtu        interfaces below -> MTU of the mesh (pure)
//! kernel     WireGuard of the kernel, by netlink
//! vxlan      without encryption, by name only
//! userspace  WireGuard as threads of a process: for kernels without it
//! backend    the kinds behind one interface
//! running    the mesh of this machine: starts it, keeps it, reports it
//! prober     asks each peer every second whether it is there; reach draws the conclusions (pure)
//! ```
//!
//! Owns: the device between machines, its key, its peers, and knowing which of them answer.
//! Must not touch: addresses and routes over the device; the host network sets them. Invariant: what leaves a machine is
//! encrypted for the one peer that the destination belongs to, and what arrives is accepted only from networks of its sender.

mod backend;
mod kernel;
mod key;
mod mtu;
mod netlink;
mod peers;
mod prober;
mod reach;
mod running;
mod stop;
mod userspace;
mod vxlan;

pub use self::{
    key::{KEY_FILE, MeshKey, MeshKeyError, MeshPublicKey},
    mtu::mesh_mtu,
    peers::{MeshPeer, MeshPeers, PeerChanges, changes as peer_changes, peers as mesh_peers},
    reach::Reach,
    running::{Mesh, MeshConfig, MeshReport, PeerReport},
    userspace::{PeerStatus, StartUserspaceError, UserspaceConfig, UserspaceMesh},
};
