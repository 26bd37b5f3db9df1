//! The encrypted mesh between machines.
//!
//! ```text
//! key        the machine's key; its public half is the machine's identity in the mesh
//! peers      network state -> peers with the networks each may speak for (pure)
//! mtu        interfaces below -> MTU of the mesh (pure)
//! userspace  WireGuard as threads of a process: for kernels without it
//! ```
//!
//! Owns: the device between machines, its key, its peers, and knowing which of them answer.
//! Must not touch: addresses and routes over the device; the host network sets them. Invariant: what leaves a machine is
//! encrypted for the one peer that the destination belongs to, and what arrives is accepted only from networks of its sender.

mod key;
mod mtu;
mod peers;
mod userspace;

pub use self::{
    key::{KEY_FILE, MeshKey, MeshKeyError, MeshPublicKey},
    mtu::mesh_mtu,
    peers::{MeshPeer, MeshPeers, PeerChanges, changes as peer_changes, peers as mesh_peers},
    userspace::{PeerStatus, StartUserspaceError, UserspaceConfig, UserspaceMesh},
};
