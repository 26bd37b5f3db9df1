//! The engine's network over the bridge of the overlay, one per node.
//!
//! Owns: creating it so that the engine adopts the bridge, and the addresses of a replica on it.
//! Must not touch: the bridge itself; the host side made it, and rules exist for it.
//! Invariant: the engine translates no addresses of this network and opens no ports into it; who reaches whom is decided
//! by the host side's rules alone.

use std::{collections::HashMap, time::Duration};

use bollard::models::{EndpointIpamConfig, EndpointSettings, Ipam, IpamConfig, Network, NetworkCreateRequest};
use longshore_model::Work;
use longshore_network::LocalOverlay;
use tokio::net::TcpStream;

use super::{Docker, LONG, SHORT, labels};
use crate::runtime::RuntimeError;

/// The first version of the engine's API that has gateway modes. From there on an engine drops packets to containers that
/// do not come from their own bridge, unless the mode says otherwise.
const GATEWAY_MODES: (u32, u32) = (1, 48);

const NAME_SERVER_PORT: u16 = 53;
const NAME_SERVER_TIMEOUT: Duration = Duration::from_secs(2);

/// A replica's place on the overlay.
#[derive(Clone, Debug)]
pub(super) struct OverlayEndpoint {
    pub(super) overlay: LocalOverlay,
    settings: EndpointSettings,
}

impl OverlayEndpoint {
    /// The address of a work on the overlay; `None` if it is not one of the node's block.
    fn of(overlay: LocalOverlay, work: &Work) -> Option<Self> {
        let ipv6 = work.assignment.address;
        let (ipv4, mac) = overlay.port_of(ipv6)?;
        let ipam = EndpointIpamConfig {
            ipv4_address: Some(ipv4.to_string()),
            ipv6_address: Some(ipv6.to_string()),
            link_local_ips: None,
        };
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        let settings =
            EndpointSettings { ipam_config: Some(ipam), mac_address: Some(mac), ..EndpointSettings::default() };
        Some(Self { overlay, settings })
    }

    pub(super) fn settings(&self) -> EndpointSettings {
        self.settings.clone()
    }
}

impl Docker {
    /// The work's place on the overlay; `None` if this node has none, or the work has a network mode of its own.
    /// Waits for its rules.
    pub(super) async fn overlay_endpoint(&self, work: &Work) -> Option<OverlayEndpoint> {
        if work.spec.container.namespaces.network.is_some() {
            return None;
        }
        let handle = self.overlay.as_ref()?;
        let endpoint = OverlayEndpoint::of(handle.overlay(&self.node).await?, work)?;
        if !has_name_server(&endpoint.overlay).await {
            tracing::warn!(replica = %work.key, "no name server answers at the gateway; using the engine's own networks");
            return None;
        }
        handle.wait_for(work.assignment.address).await;
        Some(endpoint)
    }

    /// Creates the network if it does not exist as it should.
    pub(super) async fn ensure_overlay_network(&self, overlay: &LocalOverlay) -> Result<(), RuntimeError> {
        let _guard = super::networks::CHANGES.lock().await;
        for network in self.networks_named(&overlay.engine_network).await? {
            if self.is_ours(&network) && is_over(&network, overlay) {
                return Ok(());
            }
            // Of another block, which the node had before it was removed and joined again.
            if let Some(id) = network.id.as_deref() {
                self.call(LONG, async |client| client.remove_network(id).await).await?;
            }
        }
        let version = self.call(SHORT, async |client| client.version().await).await?;
        let request = self.overlay_request(overlay, parse_version(version.api_version.as_deref()));
        self.call(LONG, async |client| client.create_network(request).await).await.map(drop)
    }

    fn overlay_request(&self, overlay: &LocalOverlay, api: (u32, u32)) -> NetworkCreateRequest {
        let pool = |subnet: String, gateway: String| IpamConfig {
            subnet: Some(subnet),
            gateway: Some(gateway),
            ..IpamConfig::default()
        };
        let pools = vec![
            pool(overlay.ipv4_block.to_string(), overlay.ipv4_gateway.to_string()),
            pool(overlay.ipv6_block.to_string(), overlay.ipv6_gateway.to_string()),
        ];
        let mut options = vec![
            ("com.docker.network.bridge.name", overlay.bridge.clone()),
            ("com.docker.network.bridge.enable_ip_masquerade", "false".to_owned()),
            ("com.docker.network.driver.mtu", overlay.mtu.to_string()),
        ];
        if api >= GATEWAY_MODES {
            for option in ["com.docker.network.bridge.gateway_mode_ipv4", "com.docker.network.bridge.gateway_mode_ipv6"]
            {
                options.push((option, "nat-unprotected".to_owned()));
            }
        }
        let labels = [(labels::CLUSTER, self.cluster_id.clone()), (labels::NODE, self.node.to_string())];
        NetworkCreateRequest {
            name: overlay.engine_network.clone(),
            driver: Some("bridge".to_owned()),
            enable_ipv6: Some(true),
            ipam: Some(Ipam { config: Some(pools), ..Ipam::default() }),
            options: Some(owned(options)),
            labels: Some(owned(labels)),
            ..NetworkCreateRequest::default()
        }
    }
}

/// Whether the node's name server listens. A container that can resolve no name is worse off than one without the overlay.
async fn has_name_server(overlay: &LocalOverlay) -> bool {
    let connecting = TcpStream::connect((overlay.ipv4_gateway, NAME_SERVER_PORT));
    tokio::time::timeout(NAME_SERVER_TIMEOUT, connecting).await.is_ok_and(|connected| connected.is_ok())
}

fn owned<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> HashMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Whether a network of the engine is the one of this overlay.
fn is_over(network: &Network, overlay: &LocalOverlay) -> bool {
    let pools = network.ipam.iter().flat_map(|ipam| ipam.config.iter().flatten());
    let mut subnets = pools.filter_map(|pool| pool.subnet.as_deref());
    let block = overlay.ipv4_block.to_string();
    subnets.any(|subnet| subnet == block)
}

fn parse_version(version: Option<&str>) -> (u32, u32) {
    let parsed = version.and_then(|version| {
        let (major, minor) = version.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    parsed.unwrap_or_default()
}
