//! Translates the engine's description of a container into an [`Inspection`].
//!
//! Owns: what each of the engine's states means.

use std::net::IpAddr;

use bollard::models::{
    ContainerInspectResponse, ContainerState, ContainerStateStatusEnum as Status, Health, HealthStatusEnum,
    NetworkSettings,
};

use longshore_network::LocalOverlay;

use super::is_engine_trouble;
use crate::runtime::{Exit, HealthStatus, Inspection, Phase};

/// `overlay` is the node's: a replica on it has that address, whatever other networks it is on.
pub(super) fn inspection(container: &ContainerInspectResponse, overlay: Option<&LocalOverlay>) -> Inspection {
    let network = container.network_settings.as_ref();
    Inspection {
        phase: container.state.as_ref().map_or(Phase::Created, phase),
        address: network.and_then(|network| address(network, overlay)),
        ports: network.map(ports).unwrap_or_default(),
    }
}

fn phase(state: &ContainerState) -> Phase {
    let error = state.error.clone().unwrap_or_default();
    match state.status.unwrap_or(Status::EMPTY) {
        // An engine that went down during the start has recorded that as an error.
        Status::EMPTY | Status::CREATED if error.is_empty() || is_engine_trouble(&error) => Phase::Created,
        Status::EMPTY | Status::CREATED => Phase::StartFailed { reason: error },
        // A paused container has a live process, and pausing is a user's choice.
        Status::RUNNING | Status::PAUSED | Status::RESTARTING | Status::STOPPING => {
            Phase::Running(state.health.as_ref().map_or(HealthStatus::Unchecked, health_status))
        }
        Status::REMOVING | Status::EXITED | Status::DEAD => Phase::Exited(exit(state)),
    }
}

fn health_status(health: &Health) -> HealthStatus {
    match health.status.unwrap_or(HealthStatusEnum::NONE) {
        HealthStatusEnum::EMPTY | HealthStatusEnum::NONE => HealthStatus::Unchecked,
        HealthStatusEnum::STARTING => HealthStatus::Starting,
        HealthStatusEnum::HEALTHY => HealthStatus::Healthy,
        HealthStatusEnum::UNHEALTHY => HealthStatus::Unhealthy {
            failing_streak: health.failing_streak.and_then(|streak| u64::try_from(streak).ok()).unwrap_or_default(),
            output: health.log.iter().flatten().last().and_then(|probe| probe.output.clone()).unwrap_or_default(),
        },
    }
}

fn exit(state: &ContainerState) -> Exit {
    Exit { code: state.exit_code, oom_killed: state.oom_killed == Some(true), ended_with_host: false }
}

fn address(network: &NetworkSettings, overlay: Option<&LocalOverlay>) -> Option<IpAddr> {
    let networks = network.networks.as_ref()?;
    let on_overlay =
        overlay.and_then(|overlay| networks.get(&overlay.engine_network)?.ip_address.as_ref()?.parse().ok());
    if on_overlay.is_some() {
        return on_overlay;
    }
    // Sorted by name, so that the address of a container on several networks is stable.
    let mut names: Vec<&String> = networks.keys().collect();
    names.sort();
    names.into_iter().find_map(|name| networks[name].ip_address.as_ref()?.parse().ok())
}

fn ports(network: &NetworkSettings) -> Vec<String> {
    let mut ports: Vec<String> = Vec::new();
    for (target, bindings) in network.ports.iter().flatten() {
        for binding in bindings.iter().flatten() {
            let (ip, port) = (binding.host_ip.as_deref().unwrap_or(""), binding.host_port.as_deref().unwrap_or(""));
            ports.push(format!("{target}={ip}:{port}"));
        }
    }
    ports.sort();
    ports
}
