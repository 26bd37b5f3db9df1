//! Where what runs can be reached from this machine.
//!
//! Owns: the one place that knows what each driver does with a published port.
//! Invariant: an address that is printed is one that was bound, not one that was wished for.

use std::collections::BTreeSet;

use longshore_api::{Deployment, Replica, Service};

/// Service and address, each once.
pub(super) fn of(deployment: &Deployment, replicas: &[Replica]) -> BTreeSet<(String, String)> {
    let running = replicas.iter().filter(|it| it.deployment == deployment.name && it.state == "running");
    let services = deployment.services.iter();
    let all = running.flat_map(|replica| {
        let service = services.clone().find(|service| service.name == replica.service);
        let addresses = service.map(|service| of_replica(service, replica)).unwrap_or_default();
        addresses.into_iter().map(|address| (replica.service.clone(), address))
    });
    all.collect()
}

fn of_replica(service: &Service, replica: &Replica) -> Vec<String> {
    if service.driver == "exec" {
        // A plain process binds what it likes, and the manifest says what that is.
        let tcp = service.ports.iter().filter(|port| port.protocol == "tcp");
        return tcp.map(|port| format!("http://localhost:{}", port.target)).collect();
    }
    // The engine says what it bound, each as `80/tcp=0.0.0.0:32768`.
    let bound = replica.details.get("ports").and_then(|ports| ports.as_array()).into_iter().flatten();
    bound.filter_map(|binding| address(binding.as_str()?)).collect()
}

fn address(binding: &str) -> Option<String> {
    let (target, bound) = binding.split_once('=')?;
    let (ip, port) = bound.rsplit_once(':')?;
    // The same port once more for IPv6 helps nobody who reads.
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
    fn what_the_engine_bound_becomes_an_address() {
        assert_eq!(address("80/tcp=0.0.0.0:32768").as_deref(), Some("http://localhost:32768"));
        assert_eq!(address("80/tcp=127.0.0.1:8080").as_deref(), Some("http://localhost:8080"));
        assert_eq!(address("53/udp=10.0.0.7:53").as_deref(), Some("10.0.0.7:53/udp"));
        assert_eq!(address("80/tcp=:::32768"), None);
    }
}
