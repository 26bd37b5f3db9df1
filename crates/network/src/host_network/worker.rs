//! The task that keeps the kernel as the network state says.
//!
//! Owns: when it is applied: at every update, when a device of ours changes, and every 30 s; and what is told about it.
//! Must not touch: how. Invariant: one thing at a time, so two updates never apply at once; a failure leaves in effect
//! what was.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::StreamExt as _;
use longshore_model::{NodeConditionCode, NodeName, node::NodeCondition};
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::MulticastGroup;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use super::{
    ApplyError, HostNetworkConfig, LocalOverlay, OverlayMode,
    apply::{self, Check},
    kernel::{self, Kernel, Link},
    overlay_handle::Offer,
    prerequisites, self_test,
};
use crate::{
    NetworkSettings, NetworkState,
    render::{Bridge, DesiredNetwork, Machine, render},
};

/// Time between two checks that everything is as it was left.
const DRIFT_CHECK: Duration = Duration::from_secs(30);
/// How long a repair is told of.
const TELL_REPAIR: Duration = Duration::from_mins(10);
/// Attempts of the self-test. The kernel drops proxied neighbours of a new bridge once, up to a second after it was made.
const SELF_TESTS: usize = 3;
/// The MTU if the machine's interface is not known.
const USUAL_MTU: u32 = 1500;

pub(super) struct Worker {
    config: HostNetworkConfig,
    updates: watch::Receiver<Arc<NetworkState>>,
    offers: watch::Sender<Offer>,
    conditions: Arc<Mutex<Vec<NodeCondition>>>,
    /// What is in effect.
    applied: Option<DesiredNetwork>,
    bridges: BTreeSet<u32>,
    test: SelfTest,
    problem: Option<NodeCondition>,
    repaired: Option<(Instant, NodeCondition)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SelfTest {
    ToDo,
    Passed,
}

impl Worker {
    pub(super) fn new(
        config: HostNetworkConfig,
        updates: watch::Receiver<Arc<NetworkState>>,
        offers: watch::Sender<Offer>,
        conditions: Arc<Mutex<Vec<NodeCondition>>>,
    ) -> Self {
        let (applied, bridges, test) = (None, BTreeSet::new(), SelfTest::ToDo);
        Self { config, updates, offers, conditions, applied, bridges, test, problem: None, repaired: None }
    }

    pub(super) async fn run(mut self) {
        while let Some(missing) = prerequisites::missing().await {
            if self.config.mode == OverlayMode::Off {
                return;
            }
            self.decline(NodeConditionCode::OverlayUnavailable, &missing);
            if !self.has_peers() {
                self.problem = None;
                self.publish_conditions();
            }
            tokio::time::sleep(DRIFT_CHECK).await;
        }
        let connected = Kernel::connect().and_then(|kernel| Ok((kernel, link_events()?)));
        let (kernel, mut events) = match connected {
            Ok(connected) => connected,
            Err(error) => {
                return self.decline(NodeConditionCode::OverlayUnavailable, &format!("no netlink: {error}"));
            }
        };
        match self.config.mode {
            OverlayMode::Off => self.remove_leftovers(&kernel).await,
            OverlayMode::Auto => self.follow(&kernel, &mut events).await,
        }
    }

    /// Whether the cluster has another machine. Alone, this one loses nothing without the overlay.
    fn has_peers(&self) -> bool {
        self.updates.borrow().nodes().any(|node| !self.config.local_nodes.contains(&node.name))
    }

    async fn follow(&mut self, kernel: &Kernel, events: &mut mpsc::UnboundedReceiver<LinkEvent>) {
        let mut ticks = tokio::time::interval(DRIFT_CHECK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                changed = self.updates.changed() => match changed {
                    Ok(()) => self.refresh(kernel, Check::Trusted).await,
                    Err(_) => return,
                },
                Some(event) = events.recv() => self.link_changed(kernel, event).await,
                _ = ticks.tick() => self.refresh(kernel, Check::Listed).await,
            }
        }
    }

    /// Applies the newest state.
    async fn refresh(&mut self, kernel: &Kernel, check: Check) {
        let state = Arc::clone(&self.updates.borrow_and_update());
        let Some((settings, desired)) = self.render(kernel, &state).await else {
            // A server that does not know of the overlay, or a node without a block: today's networks are used.
            if state.settings().is_some() || state.is_known() {
                self.offers.send_if_modified(Offer::decline_if_pending);
            }
            return;
        };
        let was_applied = self.applied.is_some();
        let outcome = self.apply(kernel, &state, &settings, &desired, check).await;
        match outcome {
            Ok(repairs) => {
                self.problem = None;
                if check == Check::Listed && was_applied {
                    self.tell_repairs(&repairs);
                }
                self.offer(&settings, &desired);
                self.applied = Some(desired);
            }
            Err((code, reason)) => self.decline(code, &reason),
        }
        self.publish_conditions();
    }

    async fn render(&self, kernel: &Kernel, state: &NetworkState) -> Option<(NetworkSettings, DesiredNetwork)> {
        let own = self.config.local_nodes.iter().find_map(|node| state.node(node)?.ip);
        let underlay_mtu = match self.config.address.or(own).filter(|ip| !ip.is_loopback()) {
            Some(ip) => kernel::mtu_of(kernel, ip).await.unwrap_or(USUAL_MTU),
            None => USUAL_MTU,
        };
        let local_nodes = self.config.local_nodes.clone();
        let machine = Machine { name: self.config.machine.clone(), local_nodes, underlay_mtu };
        Some((state.settings()?.clone(), render(state, &machine)?))
    }

    async fn apply(
        &mut self,
        kernel: &Kernel,
        state: &NetworkState,
        settings: &NetworkSettings,
        desired: &DesiredNetwork,
        check: Check,
    ) -> Result<Vec<String>, (NodeConditionCode, String)> {
        let unavailable = |error: ApplyError| (NodeConditionCode::OverlayUnavailable, error.to_string());
        if self.applied.is_none()
            && let Some(clash) = prerequisites::clash(kernel, settings, desired).await.map_err(unavailable)?
        {
            return Err((NodeConditionCode::OverlayUnavailable, clash));
        }
        if self.test == SelfTest::ToDo {
            self.test_isolation(kernel, state, settings, desired).await?;
        }
        let loaded = self.applied.as_ref().map(|applied| &applied.ruleset);
        let repairs = apply::apply(kernel, settings, desired, loaded, check).await.map_err(unavailable)?;
        let links = kernel.links().await.map_err(unavailable)?;
        self.bridges = desired.bridges.iter().filter_map(|bridge| Some(links.get(&bridge.name)?.index)).collect();
        Ok(repairs)
    }

    /// Applies the state with the services of the self-test, and runs it.
    async fn test_isolation(
        &mut self,
        kernel: &Kernel,
        state: &NetworkState,
        settings: &NetworkSettings,
        desired: &DesiredNetwork,
    ) -> Result<(), (NodeConditionCode, String)> {
        let failed = |reason: String| (NodeConditionCode::IsolationUnavailable, reason);
        let found = desired.bridges.first().and_then(|bridge| {
            let overlay = local_overlay(settings, bridge)?;
            Some((bridge, self_test::free_addresses(&overlay, bridge)?, overlay))
        });
        let Some((bridge, addresses, overlay)) = found else { return Ok(()) };
        let with_test = state.with_services(self_test::services(bridge, addresses));
        let Some((_, desired)) = self.render(kernel, &with_test).await else { return Ok(()) };
        let mut result = Ok(());
        for _ in 0..SELF_TESTS {
            let loaded = self.applied.as_ref().map(|applied| &applied.ruleset);
            let applied = apply::apply(kernel, settings, &desired, loaded, Check::Trusted).await;
            applied.map_err(|error| failed(error.to_string()))?;
            self.applied = Some(desired.clone());
            result = self_test::run(&overlay, addresses).await;
            if result.is_ok() {
                self.test = SelfTest::Passed;
                return Ok(());
            }
        }
        result.map_err(failed)
    }

    fn offer(&self, settings: &NetworkSettings, desired: &DesiredNetwork) {
        let overlays =
            desired.bridges.iter().filter_map(|bridge| Some((bridge.node.clone(), local_overlay(settings, bridge)?)));
        let nodes: BTreeMap<NodeName, LocalOverlay> = overlays.collect();
        let replicas = desired.bridges.iter().flat_map(|bridge| bridge.replicas.iter().map(|replica| replica.ipv6));
        let offer = Offer::Ready { nodes, replicas: replicas.collect() };
        self.offers.send_if_modified(|current| {
            let changed = *current != offer;
            *current = offer;
            changed
        });
    }

    /// A port that appeared is isolated at once; a device of ours that changed is looked at.
    async fn link_changed(&mut self, kernel: &Kernel, event: LinkEvent) {
        let Some(applied) = &self.applied else { return };
        let LinkEvent { link, is_gone } = event;
        if !is_gone && !link.is_isolated && link.controller.is_some_and(|index| self.bridges.contains(&index)) {
            if let Err(error) = kernel.isolate(link.index).await {
                tracing::warn!(port = link.name, %error, "a port could not be isolated");
            }
            return;
        }
        let is_bridge = applied.bridges.iter().any(|bridge| bridge.name == link.name);
        if is_bridge && !is_gone && link.is_up {
            // The kernel drops proxied neighbours when a bridge loses its last port.
            self.restore_proxies(kernel, &link).await;
        }
        // An engine that makes a bridge may turn the filtering of bridged frames on for all.
        let is_foreign_bridge = link.filters_bridged == Some(false) && !is_bridge;
        let is_mesh = link.name == applied.names.mesh;
        if is_foreign_bridge && !is_gone || is_mesh && !is_gone && link.is_up || is_bridge && (is_gone || !link.is_up) {
            self.refresh(kernel, Check::Trusted).await;
        }
    }

    async fn restore_proxies(&self, kernel: &Kernel, link: &Link) {
        let bridges = self.applied.iter().flat_map(|applied| &applied.bridges);
        for bridge in bridges.filter(|bridge| bridge.name == link.name) {
            if let Err(error) = kernel.ensure_proxies(bridge, link.index).await {
                tracing::warn!(bridge = link.name, %error, "neighbours could not be proxied");
            }
        }
    }

    /// Removes what an earlier run with the overlay left.
    async fn remove_leftovers(&mut self, kernel: &Kernel) {
        while self.updates.changed().await.is_ok() {
            let state = Arc::clone(&self.updates.borrow_and_update());
            if let Some((settings, desired)) = self.render(kernel, &state).await {
                if let Err(error) = apply::remove(kernel, &settings, &desired).await {
                    tracing::warn!(%error, "what the overlay left could not be removed");
                }
                return;
            }
        }
    }

    fn tell_repairs(&mut self, repairs: &[String]) {
        let Some(first) = repairs.first() else { return };
        let more = repairs.len() - 1;
        let what = if more == 0 { first.clone() } else { format!("{first}, and {more} more") };
        tracing::warn!(repaired = ?repairs, "the overlay was not as it was left");
        let message = format!("the overlay's rules or devices were changed by somebody else and repaired: {what}");
        self.repaired = Some((Instant::now(), condition(NodeConditionCode::OverlayRepaired, message)));
    }

    /// What was offered before stays: its kernel state is in effect.
    fn decline(&mut self, code: NodeConditionCode, reason: &str) {
        let message = format!("replicas have no overlay addresses here: {reason}");
        if self.problem.as_ref().is_none_or(|known| known.message != message) {
            tracing::warn!(code = code.code(), reason, "the overlay is not available on this machine");
        }
        self.problem = Some(condition(code, message));
        self.publish_conditions();
        self.offers.send_if_modified(Offer::decline_if_pending);
    }

    fn publish_conditions(&mut self) {
        self.repaired.take_if(|(at, _)| at.elapsed() > TELL_REPAIR);
        let repaired = self.repaired.as_ref().map(|(_, condition)| condition.clone());
        let all = self.problem.clone().into_iter().chain(repaired).collect();
        *self.conditions.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

fn condition(code: NodeConditionCode, message: String) -> NodeCondition {
    NodeCondition { code, message, port: None, protocol: None }
}

/// The overlay of a node; `None` if the pool has no IPv4 block for it.
fn local_overlay(settings: &NetworkSettings, bridge: &Bridge) -> Option<LocalOverlay> {
    Some(LocalOverlay {
        bridge: bridge.name.clone(),
        engine_network: format!("longshore-{}", bridge.name),
        addresses: settings.addresses,
        ipv4_block: bridge.ipv4_block?,
        ipv6_block: bridge.ipv6_block,
        ipv4_gateway: bridge.ipv4_gateway?,
        ipv6_gateway: bridge.ipv6_gateway,
        mtu: bridge.mtu,
    })
}

/// A link that came, changed or went.
struct LinkEvent {
    link: Link,
    is_gone: bool,
}

/// Follows the kernel's links.
fn link_events() -> std::io::Result<mpsc::UnboundedReceiver<LinkEvent>> {
    let (connection, _, mut messages) = rtnetlink::new_multicast_connection(&[MulticastGroup::Link])?;
    let (sender, events) = mpsc::unbounded_channel();
    tokio::spawn(connection);
    tokio::spawn(async move {
        while let Some((message, _)) = messages.next().await {
            let event = match message.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                    LinkEvent { link: kernel::link_of(&link), is_gone: false }
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) => {
                    LinkEvent { link: kernel::link_of(&link), is_gone: true }
                }
                _ => continue,
            };
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    Ok(events)
}
