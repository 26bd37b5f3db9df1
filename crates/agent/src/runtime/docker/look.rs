//! What an inspected container shows.
//!
//! Owns: the engine's words for states, and what they mean to us.

use std::net::IpAddr;

use bollard::models::{
    ContainerInspectResponse, ContainerState, ContainerStateStatusEnum as Status, Health, HealthStatusEnum,
    NetworkSettings,
};

use crate::runtime::{Exit, ExitCause, Phase, Pulse, Seen};

pub(super) fn seen(found: &ContainerInspectResponse) -> Seen {
    let network = found.network_settings.as_ref();
    Seen {
        phase: found.state.as_ref().map_or(Phase::Made, phase),
        address: network.and_then(address),
        ports: network.map(ports).unwrap_or_default(),
    }
}

fn phase(state: &ContainerState) -> Phase {
    let error = state.error.clone().unwrap_or_default();
    match state.status.unwrap_or(Status::EMPTY) {
        Status::EMPTY | Status::CREATED if error.is_empty() => Phase::Made,
        Status::EMPTY | Status::CREATED => Phase::Refused { reason: error },
        // A paused container has a process; who paused it knows why.
        Status::RUNNING | Status::PAUSED | Status::RESTARTING | Status::STOPPING => {
            Phase::Up(state.health.as_ref().map_or(Pulse::Unchecked, pulse))
        }
        Status::REMOVING | Status::EXITED | Status::DEAD => Phase::Ended(exit(state)),
    }
}

fn pulse(health: &Health) -> Pulse {
    match health.status.unwrap_or(HealthStatusEnum::NONE) {
        HealthStatusEnum::EMPTY | HealthStatusEnum::NONE => Pulse::Unchecked,
        HealthStatusEnum::STARTING => Pulse::Starting,
        HealthStatusEnum::HEALTHY => Pulse::Healthy,
        HealthStatusEnum::UNHEALTHY => Pulse::Unhealthy {
            streak: health.failing_streak.and_then(|streak| u64::try_from(streak).ok()).unwrap_or_default(),
            output: health.log.iter().flatten().last().and_then(|probe| probe.output.clone()).unwrap_or_default(),
        },
    }
}

fn exit(state: &ContainerState) -> Exit {
    let cause = if state.oom_killed == Some(true) { ExitCause::OutOfMemory } else { ExitCause::Own };
    Exit { code: state.exit_code, cause }
}

fn address(network: &NetworkSettings) -> Option<IpAddr> {
    let networks = network.networks.as_ref()?;
    // By name, so that a container on several networks does not seem to move.
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
