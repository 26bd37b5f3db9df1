//! Addresses at which the services of a deployment can be reached from this machine.
//!
//! Owns: which address a published port has here.
//! Invariant: a port for the whole cluster is named by its published number; any other by what was bound for it.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use longshore_api::{Deployment, Port, PortMode, Protocol, Replica, ReplicaState, Service};

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
    service.ports.iter().flat_map(|port| published(port).map_or_else(|| bound(port, replica), |it| vec![it])).collect()
}

/// The address of a port that every node listens on.
fn published(port: &Port) -> Option<String> {
    let number = port.published.filter(|_| port.mode == PortMode::Ingress)?;
    let named: Option<IpAddr> = port.host_ip.as_deref().and_then(|ip| ip.parse().ok());
    let host = match named {
        Some(ip) if !ip.is_unspecified() && !ip.is_loopback() => ip,
        Some(IpAddr::V6(ip)) if ip.is_loopback() => ip.into(),
        Some(_) | None => return Some(printed(&port.protocol, &format!("localhost:{number}"))),
    };
    Some(printed(&port.protocol, &SocketAddr::new(host, number).to_string()))
}

/// The addresses that were bound for a port of the replica's node.
fn bound(port: &Port, replica: &Replica) -> Vec<String> {
    let bound = replica.bound_ports().into_iter();
    let own = bound.filter(|bound| bound.is_for(port.target, port.protocol.as_str()));
    own.filter_map(|bound| address(&port.protocol, bound.at)).collect()
}

fn address(protocol: &Protocol, bound: SocketAddr) -> Option<String> {
    // Engines bind every port for IPv6 too; one address per port is enough.
    let IpAddr::V4(ip) = bound.ip() else { return None };
    let here = ip.is_unspecified() || ip == Ipv4Addr::LOCALHOST;
    let host = if here { "localhost".to_owned() } else { ip.to_string() };
    Some(printed(protocol, &format!("{host}:{}", bound.port())))
}

fn printed(protocol: &Protocol, address: &str) -> String {
    if *protocol == Protocol::Tcp { format!("http://{address}") } else { format!("{address}/{protocol}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_of_the_engine_becomes_an_address() {
        let at = |bound: &str| bound.parse().unwrap();
        let tcp = |bound| address(&Protocol::Tcp, at(bound));
        assert_eq!(tcp("0.0.0.0:32768").as_deref(), Some("http://localhost:32768"));
        assert_eq!(tcp("127.0.0.1:8080").as_deref(), Some("http://localhost:8080"));
        assert_eq!(address(&Protocol::Udp, at("10.0.0.7:53")).as_deref(), Some("10.0.0.7:53/udp"));
        assert_eq!(tcp("[::]:32768"), None);
    }

    #[test]
    fn a_published_port_is_named_by_its_number_and_by_the_address_it_listens_on() {
        let port = |protocol, host_ip: Option<&str>| Port {
            target: 80,
            published: Some(8080),
            protocol,
            mode: PortMode::Ingress,
            host_ip: host_ip.map(str::to_owned),
        };
        assert_eq!(published(&port(Protocol::Tcp, None)).as_deref(), Some("http://localhost:8080"));
        assert_eq!(published(&port(Protocol::Tcp, Some("127.0.0.1"))).as_deref(), Some("http://localhost:8080"));
        assert_eq!(published(&port(Protocol::Tcp, Some("10.0.0.7"))).as_deref(), Some("http://10.0.0.7:8080"));
        assert_eq!(published(&port(Protocol::Udp, None)).as_deref(), Some("localhost:8080/udp"));
        assert_eq!(published(&Port { mode: PortMode::Host, ..port(Protocol::Tcp, None) }), None);
    }
}
