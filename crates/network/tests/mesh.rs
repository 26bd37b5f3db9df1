//! Machines in a mesh: namespaces on one switch, our own WireGuard in each. Needs root.

#![expect(clippy::unwrap_used, reason = "what fails here ends the test")]

#[path = "mesh/lab.rs"]
mod lab;

use std::{
    fs,
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use lab::{DEVICE, Lab, Machine, Running, Underlay, eventually, join, run, state, state_of};
use longshore_model::MeshKind;
use longshore_network::{
    MeshMode, NetworkNode,
    mesh::{Mesh, Reach},
};

/// Bytes that no encryption produces by chance.
const MARK: &[u8] = b"plain-text-of-the-lab";
/// Bytes that are sent without encryption on purpose.
const CONTROL: &[u8] = b"sent-beside-the-mesh";

fn wait_for_answers(from: &Machine, to: &Machine) {
    eventually("an answer over IPv4", || from.reaches(to.ipv4()));
    eventually("an answer over IPv6", || from.reaches(to.ipv6()));
}

/// Sends `amount` bytes over TCP; returns what arrived.
fn transfer(from: &Machine, to: &Machine, address: IpAddr, amount: usize) -> usize {
    let listener = to.inside(move || TcpListener::bind(SocketAddr::new(address, 0)).unwrap());
    let target = listener.local_addr().unwrap();
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let (mut buffer, mut total) = (vec![0; 1 << 16], 0);
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            assert!(buffer[..count].iter().all(|byte| *byte == b'x'), "bytes were changed on the way");
            total += count;
        }
        total
    });
    from.inside(move || {
        let mut stream = TcpStream::connect_timeout(&target, Duration::from_secs(10)).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
        let chunk = vec![b'x'; 1 << 16];
        let mut left = amount;
        while left > 0 {
            let count = left.min(chunk.len());
            stream.write_all(&chunk[..count]).unwrap();
            left -= count;
        }
    });
    receiver.join().unwrap()
}

/// Sends one datagram; returns what arrived.
fn datagram(from: &Machine, to: &Machine, address: IpAddr, payload: Vec<u8>) -> Vec<u8> {
    let receiver = to.inside(move || UdpSocket::bind(SocketAddr::new(address, 0)).unwrap());
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let target = receiver.local_addr().unwrap();
    from.inside(move || {
        let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        UdpSocket::bind(any).unwrap().send_to(&payload, target).unwrap();
    });
    let mut buffer = vec![0; 65_536];
    let (count, _) = receiver.recv_from(&mut buffer).unwrap();
    buffer.truncate(count);
    buffer
}

#[test]
fn three_machines_reach_each_other_over_both_families_with_tcp_and_datagrams_of_any_size() {
    let mut lab = Lab::new(1500);
    let (mut a, mut b, mut c) = (lab.machine(), lab.machine(), lab.machine());
    join(&mut [&mut a, &mut b, &mut c], Underlay::Ipv4);
    for (from, to) in [(&a, &b), (&b, &c), (&c, &a)] {
        wait_for_answers(from, to);
    }
    for address in [IpAddr::from(b.ipv4()), IpAddr::from(b.ipv6())] {
        assert_eq!(transfer(&a, &b, address, 20 << 20), 20 << 20);
        let large: Vec<u8> = (0..60_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        assert_eq!(datagram(&a, &b, address, large.clone()), large);
    }
}

#[test]
fn packets_of_the_whole_mtu_pass_unfragmented_and_larger_ones_are_told_the_mtu() {
    let mut lab = Lab::new(1500);
    let (mut a, mut b) = (lab.machine(), lab.machine());
    join(&mut [&mut a, &mut b], Underlay::Ipv6);
    wait_for_answers(&a, &b);
    assert!(a.program(&format!("ping -c 1 -W 5 -M do -s 1392 {}", b.ipv4())).0);
    let (passes, output) = a.program(&format!("ping -c 1 -W 5 -M do -s 1393 {}", b.ipv4()));
    assert!(!passes && output.contains("mtu=1420"), "{output}");
    assert!(a.program(&format!("ping -c 1 -W 5 -M do -s 1372 {}", b.ipv6())).0);
}

#[test]
fn a_hundred_megabytes_arrive_over_an_underlay_of_1400_bytes() {
    let mut lab = Lab::new(1400);
    let (mut a, mut b) = (lab.machine(), lab.machine());
    join(&mut [&mut a, &mut b], Underlay::Ipv6);
    wait_for_answers(&a, &b);
    assert_eq!(transfer(&a, &b, b.ipv4().into(), 100 << 20), 100 << 20);
}

#[test]
fn not_one_readable_byte_is_on_the_underlay() {
    let mut lab = Lab::new(1500);
    let (mut a, mut b) = (lab.machine(), lab.machine());
    join(&mut [&mut a, &mut b], Underlay::Ipv4);
    wait_for_answers(&a, &b);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture");
    let capture = format!("ip netns exec {} tcpdump -Z root -U -i br0 -w {}", lab.switch(), file.display());
    let capture = Running::start(&capture);
    eventually("the capture of a ping", || {
        a.reaches(b.ipv4());
        fs::metadata(&file).is_ok_and(|file| file.len() > 100)
    });
    let marked: Vec<u8> = MARK.iter().copied().cycle().take(20_000).collect();
    assert_eq!(datagram(&a, &b, b.ipv4().into(), marked.clone()), marked);
    // The capture would see it: over the underlay itself it does.
    assert_eq!(datagram(&a, &b, [192, 168, 77, 2].into(), CONTROL.to_vec()), CONTROL);
    let contains = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    eventually("the capture of both datagrams", || {
        fs::read(&file).is_ok_and(|bytes| bytes.len() > marked.len() && contains(&bytes, CONTROL))
    });
    drop(capture);
    let captured = fs::read(&file).unwrap();
    assert!(!contains(&captured, MARK), "the payload was readable");
    assert!(!contains(&captured, &b.ipv4().octets()), "an address of the overlay was readable");
}

#[test]
fn a_removed_machine_is_ignored_within_a_second() {
    let mut lab = Lab::new(1500);
    let (mut a, mut b, mut c) = (lab.machine(), lab.machine(), lab.machine());
    join(&mut [&mut a, &mut b, &mut c], Underlay::Ipv4);
    wait_for_answers(&c, &a);
    let began = Instant::now();
    let rest = [a.node(Underlay::Ipv4), b.node(Underlay::Ipv4)];
    a.learn(&rest);
    assert!(began.elapsed() < Duration::from_secs(1));
    assert!(!c.reaches(a.ipv4()) && !c.reaches(a.ipv6()), "a removed machine was answered");
    wait_for_answers(&b, &a);
    wait_for_answers(&b, &c);
}

#[test]
fn a_machine_cannot_speak_for_the_addresses_of_another() {
    let mut lab = Lab::new(1500);
    let (mut a, mut b, mut c) = (lab.machine(), lab.machine(), lab.machine());
    join(&mut [&mut a, &mut b, &mut c], Underlay::Ipv4);
    wait_for_answers(&c, &a);
    let foreign = b.ipv4();
    run(&format!("ip -n {} addr add {foreign}/32 dev {DEVICE}", c.namespace));
    assert!(!c.program(&format!("ping -c 1 -W 1 -I {foreign} {}", a.ipv4())).0);
    let receiver = a.inside({
        let address = a.ipv4();
        move || UdpSocket::bind(SocketAddr::new(address.into(), 0)).unwrap()
    });
    receiver.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let target = receiver.local_addr().unwrap();
    let own = c.ipv4();
    c.inside(move || {
        let send = |from: IpAddr, text: &[u8]| {
            UdpSocket::bind(SocketAddr::new(from, 0)).unwrap().send_to(text, target).unwrap();
        };
        send(foreign.into(), b"forged");
        send(own.into(), b"true");
    });
    let mut buffer = [0; 16];
    let (count, from) = receiver.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..count], from.ip()), (&b"true"[..], IpAddr::from(own)));
}

#[test]
fn a_machine_that_moves_to_another_address_is_followed() {
    let mut lab = Lab::new(1500);
    let (mut a, mut b) = (lab.machine(), lab.machine());
    join(&mut [&mut a, &mut b], Underlay::Ipv4);
    wait_for_answers(&a, &b);
    run(&format!("ip -n {} addr del 192.168.77.2/24 dev eth0", b.namespace));
    run(&format!("ip -n {} addr add 192.168.77.22/24 dev eth0", b.namespace));
    eventually("an answer of the machine that moved", || b.reaches(a.ipv4()));
    assert!(a.reaches(b.ipv4()));
    let endpoint = a.mesh.as_ref().unwrap().status()[0].1.endpoint;
    assert_eq!(endpoint, Some("192.168.77.22:51820".parse().unwrap()));
}

#[test]
fn a_machine_follows_its_network_state_and_knows_which_peers_answer() {
    let mut lab = Lab::new(1500);
    let machines = [lab.bare_machine(), lab.bare_machine(), lab.bare_machine()];
    let folders = machines.each_ref().map(|_| tempfile::tempdir().unwrap());
    let meshes: Vec<Mesh> =
        machines.iter().zip(&folders).map(|(machine, folder)| machine.follow(folder.path())).collect();
    // Before a machine has an identity it is a node without one.
    let bare: Vec<NetworkNode> = machines.iter().map(|machine| machine.node_with(None)).collect();
    for mesh in &meshes {
        mesh.update(&state(&bare));
    }
    eventually("identities", || meshes.iter().all(|mesh| mesh.report().identity.is_some()));
    let joined: Vec<NetworkNode> =
        machines.iter().zip(&meshes).map(|(machine, mesh)| machine.node_with(mesh.report().identity)).collect();
    for (machine, mesh) in machines.iter().zip(&meshes) {
        let report = mesh.report();
        assert_eq!((report.mtu, report.problem), (Some(1420), None));
        machine.address(report.device.as_deref().unwrap());
        mesh.update(&state(&joined));
    }
    let answers = |mesh: &Mesh| mesh.report().peers.values().filter(|peer| peer.reach == Reach::Reachable).count();
    eventually("answers of all peers", || meshes.iter().all(|mesh| answers(mesh) == 2));
    assert!(machines[0].reaches(machines[1].ipv4()));
    run(&format!("ip -n {} link set eth0 down", machines[2].namespace));
    let began = Instant::now();
    let third = machines[2].name();
    eventually("the silent machine", || meshes[..2].iter().all(|mesh| mesh.report().unreachable().contains(&third)));
    assert!(began.elapsed() < Duration::from_secs(6), "it took {:?}", began.elapsed());
    assert_eq!(answers(&meshes[0]), 1);
    run(&format!("ip -n {} link set eth0 up", machines[2].namespace));
    eventually("the machine that is back", || answers(&meshes[0]) == 2);
    meshes[0].update(&state(&joined[..2]));
    eventually("the removal", || meshes[0].report().peers.len() == 1);
    assert!(!machines[2].reaches(machines[0].ipv4()));
}

#[test]
fn vxlan_joins_machines_if_it_is_named_and_a_removed_one_is_not_sent_to() {
    let mut lab = Lab::new(1500);
    let machines = [lab.bare_machine(), lab.bare_machine()];
    let folders = machines.each_ref().map(|_| tempfile::tempdir().unwrap());
    let meshes = [machines[0].follow(folders[0].path()), machines[1].follow(folders[1].path())];
    let state = |nodes: &[NetworkNode]| state_of(MeshMode::Vxlan, nodes);
    for (machine, mesh) in machines.iter().zip(&meshes) {
        mesh.update(&state(&[machine.node_with(None)]));
        eventually("an identity", || mesh.report().identity.is_some());
        assert_eq!(mesh.report().kind, Some(MeshKind::Vxlan));
    }
    let nodes = [0, 1].map(|index: usize| machines[index].node_with(meshes[index].report().identity));
    for (index, other) in [(0, 1), (1, 0)] {
        let device = meshes[index].report().device.unwrap();
        let (namespace, next_hop) = (&machines[index].namespace, machines[other].ipv4());
        run(&format!("ip -n {namespace} addr add {}/32 dev {device}", machines[index].ipv4()));
        run(&format!("ip -n {namespace} addr add {}/128 dev {device} nodad", machines[index].ipv6()));
        run(&format!("ip -n {namespace} route add {next_hop}/32 via {next_hop} dev {device} onlink"));
        run(&format!("ip -n {namespace} route add {}/128 dev {device}", machines[other].ipv6()));
        meshes[index].update(&state(&nodes));
    }
    wait_for_answers(&machines[0], &machines[1]);
    assert_eq!(transfer(&machines[0], &machines[1], machines[1].ipv4().into(), 1 << 20), 1 << 20);
    eventually("an answered probe", || meshes[0].report().peers.values().all(|peer| peer.reach == Reach::Reachable));
    meshes[0].update(&state(&nodes[..1]));
    eventually("the removal", || !machines[0].reaches(machines[1].ipv4()));
}

#[test]
fn a_machine_without_overlay_addresses_has_no_device() {
    let mut lab = Lab::new(1500);
    let (machine, folder) = (lab.bare_machine(), tempfile::tempdir().unwrap());
    let mesh = machine.follow(folder.path());
    run(&format!("ip -n {} addr flush dev lo", machine.namespace));
    mesh.update(&state(&[machine.node_with(None)]));
    // It looks every second; the state is read long before the second look.
    thread::sleep(Duration::from_secs(2));
    assert_eq!((mesh.report().device, mesh.report().problem), (None, None));
    run(&format!("ip -n {} addr add {}/128 dev lo", machine.namespace, machine.ipv6()));
    eventually("a device", || mesh.report().device.is_some());
}

#[test]
fn a_device_that_somebody_deletes_is_made_again() {
    let mut lab = Lab::new(1500);
    let (machine, folder) = (lab.bare_machine(), tempfile::tempdir().unwrap());
    let mesh = machine.follow(folder.path());
    mesh.update(&state(&[machine.node_with(None)]));
    eventually("a device", || mesh.report().device.is_some());
    let device = mesh.report().device.unwrap();
    run(&format!("ip -n {} link del {device}", machine.namespace));
    eventually("the device again", || machine.program(&format!("ip link show dev {device}")).0);
    eventually("a mesh without trouble", || mesh.report().problem.is_none());
}

#[test]
fn a_mesh_that_starts_again_keeps_its_device_and_is_back_at_once() {
    let mut lab = Lab::new(1500);
    let (mut a, mut b) = (lab.machine(), lab.machine());
    join(&mut [&mut a, &mut b], Underlay::Ipv4);
    wait_for_answers(&a, &b);
    b.start(1420);
    let nodes = [a.node(Underlay::Ipv4), b.node(Underlay::Ipv4)];
    b.learn(&nodes);
    let began = Instant::now();
    eventually("an answer after the restart", || a.reaches(b.ipv4()));
    assert!(began.elapsed() < Duration::from_secs(4), "it took {:?}", began.elapsed());
    let status = a.mesh.as_ref().unwrap().status();
    assert!(status[0].1.received_bytes > 0 && status[0].1.last_handshake.is_some());
    assert_eq!(a.mesh.as_ref().unwrap().failure(), None);
}
