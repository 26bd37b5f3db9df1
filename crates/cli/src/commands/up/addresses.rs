//! Addresses at which the services of a deployment can be reached from this machine.
//!
//! Owns: what each driver does with a published port.
//! Invariant: a container's address is one that the engine has bound, not one that the manifest asks for.

use std::collections::BTreeSet;

use longshore_api::{Deployment, Driver, Protocol, Replica, ReplicaState, Service};

/// Pairs of service and address, without duplicates.
pub(super) fn of_deployment(deployment: &Deployment, replicas: &[Replica]) -> BTreeSet<(String, String)> {
    let running = replicas.iter().filter(|it| it.deployment == deployment.name && it.state == ReplicaState::Running);
    let services = deployment.services.iter();
    let all = running.flat_map(|replica| {
        let service = services.clone().find(|service| service.name == replica.service);
        let addresses = service.map(|service| of_replica(service, replica)).unwrap_or_default();
        addresses.into_iter().map(|address| (replica.service.clone(), address))
    });
    all.collect()
}

fn of_replica(service: &Service, replica: &Replica) -> Vec<String> {
    if service.driver == Driver::Exec {
        // The daemon does not see which ports a process binds; the manifest names them.
        let tcp = service.ports.iter().filter(|port| port.protocol == Protocol::Tcp);
        return tcp.map(|port| format!("http://localhost:{}", port.target)).collect();
    }
    // The engine reports each binding as `80/tcp=0.0.0.0:32768`.
    let bound = replica.details.get("ports").and_then(|ports| ports.as_array()).into_iter().flatten();
    bound.filter_map(|binding| address(binding.as_str()?)).collect()
}

fn address(binding: &str) -> Option<String> {
    let (target, bound) = binding.split_once('=')?;
    let (ip, port) = bound.rsplit_once(':')?;
    // The engine binds every port for IPv6 too; one address per port is enough.
    if ip.contains(':') {
        return None;
    }
    let host = if matches!(ip, "" | "0.0.0.0" | "127.0.0.1") { "localhost" } else { ip };
    Some(if target.ends_with("/tcp") { format!("http://{host}:{port}") } else { format!("{host}:{port}/udp") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_of_the_engine_becomes_an_address() {
        assert_eq!(address("80/tcp=0.0.0.0:32768").as_deref(), Some("http://localhost:32768"));
        assert_eq!(address("80/tcp=127.0.0.1:8080").as_deref(), Some("http://localhost:8080"));
        assert_eq!(address("53/udp=10.0.0.7:53").as_deref(), Some("10.0.0.7:53/udp"));
        assert_eq!(address("80/tcp=:::32768"), None);
    }
}
