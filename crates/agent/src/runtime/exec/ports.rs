//! The ports of a plain process: which it is asked to listen on, and which it listens on.
//!
//! A process shares the machine's network, so replicas that listen on their target port would collide. Each gets a free
//! port per target instead, as `PORT` (the first target) and `PORT_<target>`. One that ignores them and listens on its
//! target port is found there.
//!
//! Owns: choosing free ports, their variables, and finding the sockets a process has.
//! Invariant: a port is reported only while a process of the replica itself listens on it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use longshore_model::service::{Port, PortMode, Protocol};
use rustix::process::Pid;

use crate::{
    shim::protocol::{ProcessId, ProcessPort, ProcessSpec, ProcessStatus, members},
    wakeups::Wakeups,
};

/// Attempts to find a number that is free with both protocols of a target.
const ATTEMPTS: usize = 32;
/// Most servers listen within a fraction of a second; the others are looked at less often as time passes.
const POLLS: [(usize, Duration); 3] =
    [(100, Duration::from_millis(50)), (240, Duration::from_millis(250)), (usize::MAX, Duration::from_secs(2))];

/// A free port for each target of a cluster-wide port; a port of the node is the target itself.
pub(super) fn assign(ports: &[Port]) -> io::Result<Vec<ProcessPort>> {
    let mut by_target: BTreeMap<u16, BTreeSet<Protocol>> = BTreeMap::new();
    for port in ports.iter().filter(|port| port.mode == PortMode::Ingress) {
        by_target.entry(port.target).or_default().insert(port.protocol);
    }
    // Held until all are chosen, so that no two are the same.
    let mut held = Vec::new();
    let mut chosen = BTreeMap::new();
    for (target, protocols) in by_target {
        let free = (0..ATTEMPTS).find_map(|_| free_port(&protocols).ok()).ok_or(io::ErrorKind::AddrInUse)?;
        chosen.insert(target, free.0);
        held.push(free);
    }
    let assigned = ports.iter().map(|port| {
        let free = chosen.get(&port.target).copied().filter(|_| port.mode == PortMode::Ingress);
        ProcessPort { target: port.target, protocol: port.protocol, port: free.unwrap_or(port.target) }
    });
    Ok(assigned.collect())
}

/// A number that is free with these protocols, and the sockets that keep it free.
fn free_port(protocols: &BTreeSet<Protocol>) -> io::Result<(u16, Option<TcpListener>, Option<UdpSocket>)> {
    let any = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let tcp = TcpListener::bind(any(0))?;
    let port = tcp.local_addr()?.port();
    let udp = protocols.contains(&Protocol::Udp).then(|| UdpSocket::bind(any(port))).transpose()?;
    Ok((port, Some(tcp), udp))
}

/// `PORT` and `PORT_<target>`.
pub(super) fn variables(ports: &[ProcessPort]) -> Vec<(String, String)> {
    let first = ports.iter().find(|port| port.protocol == Protocol::Tcp).or(ports.first());
    let first = first.map(|port| ("PORT".to_owned(), port.port.to_string()));
    let each = ports.iter().map(|port| (format!("PORT_{}", port.target), port.port.to_string()));
    first.into_iter().chain(each).collect()
}

/// Where the process listens, each `80/tcp=127.0.0.1:41234`.
pub(super) fn listening(spec: &ProcessSpec, status: &ProcessStatus) -> Vec<String> {
    let Some(child) = status.child.and_then(ProcessId::pid).filter(|_| !spec.ports.is_empty()) else {
        return Vec::new();
    };
    let shim = status.shim.and_then(ProcessId::pid);
    let mut pids: Vec<Pid> = members(&spec.cgroups).into_iter().filter(|pid| Some(*pid) != shim).collect();
    if pids.is_empty() {
        pids = process_group(child);
    }
    let owned: BTreeSet<u64> = pids.into_iter().flat_map(socket_inodes).collect();
    let mut found = Vec::new();
    for ProcessPort { target, protocol, port } in &spec.ports {
        let own = sockets(child, *protocol).into_iter().filter(|socket| owned.contains(&socket.inode));
        let own: Vec<SocketAddr> = own.map(|socket| socket.address).collect();
        let at = |number: u16| own.iter().filter(|address| address.port() == number).collect::<Vec<_>>();
        let addresses = Some(at(*port)).filter(|at| !at.is_empty()).unwrap_or_else(|| at(*target));
        found.extend(addresses.into_iter().map(|address| format!("{target}/{}={address}", protocol.as_str())));
    }
    found.sort();
    found.dedup();
    found
}

/// Wakes the replica's monitor whenever the process listens on more of its ports, until it listens on all.
pub(super) async fn watch(folder: PathBuf, spec: ProcessSpec, wakeups: Arc<Wakeups>) {
    let mut known = 0;
    for (count, pause) in POLLS {
        for _ in 0..count {
            let Some(status) = ProcessStatus::read(&folder) else { return };
            let targets = listening(&spec, &status)
                .iter()
                .filter_map(|at| at.split('=').next().map(str::to_owned))
                .collect::<BTreeSet<_>>()
                .len();
            if targets != known {
                known = targets;
                wakeups.wake(&spec.key);
            }
            let wanted: BTreeSet<_> = spec.ports.iter().map(|port| (port.target, port.protocol)).collect();
            if known >= wanted.len() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// A listening TCP socket, or an unconnected UDP socket.
struct Socket {
    address: SocketAddr,
    inode: u64,
}

fn sockets(seen_by: Pid, protocol: Protocol) -> Vec<Socket> {
    // The kernel's numbers for `LISTEN`, and for a UDP socket without a peer.
    let (name, state) = match protocol {
        Protocol::Tcp => ("tcp", "0A"),
        Protocol::Udp => ("udp", "07"),
        Protocol::Sctp => return Vec::new(),
    };
    let families = [name.to_owned(), format!("{name}6")];
    let tables = families.iter().map(|table| format!("/proc/{}/net/{table}", seen_by.as_raw_nonzero()));
    let texts: Vec<String> = tables.filter_map(|path| fs::read_to_string(path).ok()).collect();
    texts.iter().flat_map(|text| text.lines().skip(1)).filter_map(|line| socket(line, state)).collect()
}

/// One line of `/proc/net/tcp`: number, local address, peer, state, …, and in the tenth column the inode.
fn socket(line: &str, state: &str) -> Option<Socket> {
    let mut columns = line.split_whitespace();
    let address = columns.nth(1)?;
    if columns.nth(1)? != state {
        return None;
    }
    let inode = columns.nth(5)?.parse().ok()?;
    let (ip, port) = address.split_once(':')?;
    Some(Socket { address: SocketAddr::new(ip_of(ip)?, u16::from_str_radix(port, 16).ok()?), inode })
}

/// Addresses are printed as words of four bytes in the order of the machine.
fn ip_of(text: &str) -> Option<IpAddr> {
    let words = (0..text.len()).step_by(8).map(|at| u32::from_str_radix(text.get(at..at + 8)?, 16).ok());
    let bytes: Vec<u8> = words.collect::<Option<Vec<u32>>>()?.into_iter().flat_map(u32::to_ne_bytes).collect();
    match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(four) => Some(Ipv4Addr::from(four).into()),
        Err(_) => <[u8; 16]>::try_from(&bytes[..]).ok().map(|sixteen| Ipv6Addr::from(sixteen).into()),
    }
}

/// The inodes of the sockets a process has open.
fn socket_inodes(pid: Pid) -> Vec<u64> {
    let entries = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()).collect()
}

/// The processes of a group, whose leader is the replica's process.
fn process_group(leader: Pid) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| group_of(*pid) == Some(leader.as_raw_nonzero().get())).collect()
}

fn group_of(pid: Pid) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // After the name, which is in parentheses: state, parent, group.
    stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(target: u16, protocol: Protocol, mode: PortMode) -> Port {
        Port { target, published: None, protocol, mode, host_ip: None }
    }

    #[test]
    fn every_target_gets_a_free_port_and_both_protocols_of_one_target_the_same() {
        let ports = [
            port(80, Protocol::Tcp, PortMode::Ingress),
            port(53, Protocol::Tcp, PortMode::Ingress),
            port(53, Protocol::Udp, PortMode::Ingress),
            port(9000, Protocol::Tcp, PortMode::Host),
        ];
        let assigned = assign(&ports).unwrap();
        let numbers: Vec<u16> = assigned.iter().map(|port| port.port).collect();
        assert_eq!((numbers[1], numbers[3]), (numbers[2], 9000));
        assert!(numbers[0] != numbers[1] && numbers[0] != 80);
        let variables = variables(&assigned);
        assert_eq!(variables[0], ("PORT".to_owned(), numbers[0].to_string()));
        assert!(variables.contains(&("PORT_53".to_owned(), numbers[1].to_string())));
    }

    #[test]
    fn a_line_of_the_kernels_table_is_an_address_and_an_inode() {
        let word = format!("{:08X}", u32::from_ne_bytes([127, 0, 0, 1]));
        let line =
            format!("   0: {word}:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1");
        let found = socket(&line, "0A").unwrap();
        assert_eq!((found.address.to_string().as_str(), found.inode), ("127.0.0.1:8080", 4242));
        assert!(socket(&line, "07").is_none());
    }

    #[test]
    fn a_socket_of_a_process_is_found_by_its_inode() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = rustix::process::getpid();
        let inodes = socket_inodes(own);
        let found = sockets(own, Protocol::Tcp)
            .into_iter()
            .find(|socket| inodes.contains(&socket.inode) && socket.address == listener.local_addr().unwrap());
        assert!(found.is_some());
    }
}
