//! The kinds of mesh behind one interface.
//!
//! Owns: which kind a setting and a kernel lead to. Must not touch: what each kind does.
//! Invariant: VXLAN is chosen by name only.

use std::{io, net::IpAddr};

use longshore_model::{MeshKind, MeshMode};

use super::{
    kernel::{self, KernelMesh},
    key::{MeshKey, MeshPublicKey},
    netlink,
    peers::MeshPeers,
    userspace::{PeerStatus, StartUserspaceError, UserspaceConfig, UserspaceMesh},
    vxlan::VxlanMesh,
};
use crate::network_state::MeshIdentity;

/// A running mesh of some kind.
pub(super) enum Backend {
    Kernel(KernelMesh),
    Userspace(UserspaceMesh),
    Vxlan(VxlanMesh),
}

impl Backend {
    /// Starts what the mode asks for.
    pub(super) fn start(
        mode: MeshMode,
        device: &str,
        port: u16,
        mtu: u32,
        underlay: &[IpAddr],
        key: &MeshKey,
    ) -> io::Result<Self> {
        match mode {
            MeshMode::Auto => match KernelMesh::start(device, port, mtu, key) {
                Err(error) if kernel::is_absent(&error) => Self::start_userspace(device, port, mtu, key),
                outcome => Ok(Self::Kernel(outcome?)),
            },
            MeshMode::Wireguard => Ok(Self::Kernel(KernelMesh::start(device, port, mtu, key)?)),
            MeshMode::Vxlan => Ok(Self::Vxlan(VxlanMesh::start(device, port, mtu, underlay, key)?)),
            MeshMode::Off => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn start_userspace(device: &str, port: u16, mtu: u32, key: &MeshKey) -> io::Result<Self> {
        let config = UserspaceConfig { device: device.to_owned(), port, mtu: u16::try_from(mtu).unwrap_or(u16::MAX) };
        let outcome = UserspaceMesh::start(&config, key);
        let outcome = match outcome {
            // A device of another kind, from before the setting changed, is in the way.
            Err(StartUserspaceError::Device { cause, .. }) if cause.kind() == io::ErrorKind::InvalidInput => {
                netlink::delete_link(device)?;
                UserspaceMesh::start(&config, key)
            }
            outcome => outcome,
        };
        outcome.map(Self::Userspace).map_err(io::Error::other)
    }

    pub(super) fn kind(&self) -> MeshKind {
        match self {
            Self::Kernel(_) => MeshKind::KernelWireguard,
            Self::Userspace(_) => MeshKind::UserWireguard,
            Self::Vxlan(_) => MeshKind::Vxlan,
        }
    }

    pub(super) fn identity(&self) -> MeshIdentity {
        match self {
            Self::Kernel(mesh) => mesh.identity(),
            Self::Userspace(mesh) => mesh.identity(),
            Self::Vxlan(mesh) => mesh.identity(),
        }
    }

    pub(super) fn set_peers(&mut self, peers: MeshPeers) -> io::Result<()> {
        match self {
            Self::Kernel(mesh) => mesh.set_peers(peers),
            Self::Userspace(mesh) => {
                mesh.set_peers(peers);
                Ok(())
            }
            Self::Vxlan(mesh) => mesh.set_peers(peers),
        }
    }

    pub(super) fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        match self {
            Self::Kernel(mesh) => mesh.set_mtu(mtu),
            Self::Userspace(mesh) => mesh.set_mtu(u16::try_from(mtu).unwrap_or(u16::MAX)),
            Self::Vxlan(mesh) => mesh.set_mtu(mtu),
        }
    }

    /// Per peer; nothing for a kind without sessions, or if the kernel does not say.
    pub(super) fn status(&self) -> Vec<(MeshPublicKey, PeerStatus)> {
        match self {
            Self::Kernel(mesh) => mesh.status().unwrap_or_default(),
            Self::Userspace(mesh) => mesh.status(),
            Self::Vxlan(_) => Vec::new(),
        }
    }

    /// Why it does not run any more.
    pub(super) fn failure(&self) -> Option<String> {
        match self {
            Self::Userspace(mesh) => mesh.failure(),
            Self::Kernel(mesh) => mesh.status().err().map(|error| error.to_string()),
            Self::Vxlan(mesh) => mesh.failure(),
        }
    }
}
