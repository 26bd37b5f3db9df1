//! Machines as network namespaces on one switch, each with a mesh of its own.
//!
//! Owns: the namespaces, which are removed when the lab is dropped, and running code and programs inside of them.

#![expect(clippy::unwrap_used, reason = "what fails here ends the test")]

use std::{
    collections::BTreeSet,
    fs::File,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use longshore_model::{AddressPlan, Cursor, NodeName, StateIndex};
use longshore_network::{
    MeshIdentity, MeshMode, NetworkFeed, NetworkNode, NetworkSettings, NetworkState,
    mesh::{Mesh, MeshConfig, MeshKey, MeshPeers, UserspaceConfig, UserspaceMesh, mesh_mtu, mesh_peers},
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Name of the mesh device in every machine.
pub(crate) const DEVICE: &str = "lsm0";
/// The port that every machine prefers.
const PORT: u16 = 51_820;

/// A switch with machines.
pub(crate) struct Lab {
    name: String,
    underlay_mtu: u32,
    machines: u32,
}

/// A machine: one namespace, one node, one key.
pub(crate) struct Machine {
    pub(crate) namespace: String,
    pub(crate) number: u32,
    pub(crate) key: MeshKey,
    pub(crate) mesh: Option<UserspaceMesh>,
}

impl Lab {
    pub(crate) fn new(underlay_mtu: u32) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("nme-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let lab = Self { name, underlay_mtu, machines: 0 };
        let switch = lab.switch();
        run(&format!("ip netns add {switch}"));
        run(&format!("ip -n {switch} link add br0 type bridge"));
        run(&format!("ip -n {switch} link set br0 up"));
        lab
    }

    /// The namespace that all traffic between machines passes.
    pub(crate) fn switch(&self) -> String {
        format!("{}-sw", self.name)
    }

    /// Adds a machine with its mesh device and addresses, but without peers.
    pub(crate) fn machine(&mut self) -> Machine {
        let mut machine = self.bare_machine();
        machine.start(mesh_mtu([self.underlay_mtu]));
        machine.address(DEVICE);
        machine
    }

    /// Adds a machine without a mesh.
    pub(crate) fn bare_machine(&mut self) -> Machine {
        self.machines += 1;
        let (number, switch) = (self.machines, self.switch());
        let namespace = format!("{}-h{number}", self.name);
        run(&format!("ip netns add {namespace}"));
        run(&format!("ip -n {switch} link add p{number} type veth peer name eth0 netns {namespace}"));
        run(&format!("ip -n {switch} link set p{number} master br0 up mtu {}", self.underlay_mtu));
        run(&format!("ip -n {namespace} link set lo up"));
        run(&format!("ip -n {namespace} link set eth0 up mtu {}", self.underlay_mtu));
        run(&format!("ip -n {namespace} addr add 192.168.77.{number}/24 dev eth0"));
        run(&format!("ip -n {namespace} addr add fd77::{number}/64 dev eth0 nodad"));
        Machine { namespace, number, key: MeshKey::generate().unwrap(), mesh: None }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let machines = (1..=self.machines).map(|number| format!("{}-h{number}", self.name));
        for namespace in machines.chain([self.switch()]) {
            run(&format!("ip netns del {namespace}"));
        }
    }
}

impl Machine {
    /// Starts the mesh, as a process would that starts again.
    pub(crate) fn start(&mut self, mtu: u32) {
        self.mesh = None;
        let config = UserspaceConfig { device: DEVICE.to_owned(), port: PORT, mtu: mtu.try_into().unwrap() };
        let key = self.key.clone();
        self.mesh = Some(self.inside(move || UserspaceMesh::start(&config, &key).unwrap()));
    }

    /// Gives the device the machine's addresses, and a route to those of all others.
    pub(crate) fn address(&self, device: &str) {
        let namespace = &self.namespace;
        run(&format!("ip -n {namespace} addr add {}/32 dev {device}", self.ipv4()));
        run(&format!("ip -n {namespace} addr add {}/128 dev {device} nodad", self.ipv6()));
        run(&format!("ip -n {namespace} route add {} dev {device} src {}", plan().pool, self.ipv4()));
        run(&format!("ip -n {namespace} route add {} dev {device} src {}", plan().ipv6_network(), self.ipv6()));
    }

    pub(crate) fn name(&self) -> NodeName {
        NodeName::from(format!("node-{}", self.number).as_str())
    }

    /// Its IPv4 address in the mesh.
    pub(crate) fn ipv4(&self) -> Ipv4Addr {
        plan().ipv4_gateway(self.number).unwrap()
    }

    /// Its IPv6 address in the mesh.
    pub(crate) fn ipv6(&self) -> Ipv6Addr {
        plan().node_ipv6(self.number)
    }

    /// As other machines see it, at its underlay address of this family.
    pub(crate) fn node(&self, underlay: Underlay) -> NetworkNode {
        let mesh = MeshIdentity { public_key: self.key.public().to_string(), port: PORT };
        let ip = self.underlay(underlay);
        NetworkNode { ip: Some(ip), ..self.node_with(Some(mesh)) }
    }

    /// As other machines see it, with this identity.
    pub(crate) fn node_with(&self, mesh: Option<MeshIdentity>) -> NetworkNode {
        let ip = Some(self.underlay(Underlay::Ipv4));
        NetworkNode { name: self.name(), block: Some(self.number), ip, mesh, is_up: true }
    }

    fn underlay(&self, underlay: Underlay) -> IpAddr {
        match underlay {
            Underlay::Ipv4 => format!("192.168.77.{}", self.number).parse().unwrap(),
            Underlay::Ipv6 => format!("fd77::{}", self.number).parse().unwrap(),
        }
    }

    /// Starts a mesh that follows a network state, with its key in this folder. The machine has its overlay address, as it
    /// has from the host network.
    pub(crate) fn follow(&self, folder: &Path) -> Mesh {
        run(&format!("ip -n {} addr add {}/128 dev lo", self.namespace, self.ipv6()));
        let config = MeshConfig { data_dir: folder.to_owned(), local_nodes: BTreeSet::from([self.name()]) };
        self.inside(move || Mesh::start(config))
    }

    /// Tells the mesh which nodes there are.
    pub(crate) fn learn(&mut self, nodes: &[NetworkNode]) {
        let peers = self.peers(nodes);
        self.mesh.as_mut().unwrap().set_peers(peers);
    }

    fn peers(&self, nodes: &[NetworkNode]) -> MeshPeers {
        mesh_peers(&state(nodes), &BTreeSet::from([self.name()]), self.key.public())
    }

    /// Runs code in a thread that is in the machine's namespace; sockets and threads it makes stay there.
    pub(crate) fn inside<T: Send + 'static>(&self, run: impl FnOnce() -> T + Send + 'static) -> T {
        let path = PathBuf::from("/run/netns").join(&self.namespace);
        let thread = thread::spawn(move || {
            let namespace = File::open(path).unwrap();
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            run()
        });
        thread.join().unwrap()
    }

    /// Runs a program in the machine's namespace and returns whether it succeeded, with its output.
    pub(crate) fn program(&self, line: &str) -> (bool, String) {
        output(&format!("ip netns exec {} {line}", self.namespace))
    }

    /// Whether one ping of the address is answered.
    pub(crate) fn reaches(&self, address: impl Into<IpAddr>) -> bool {
        self.program(&format!("ping -c 1 -W 1 {}", address.into())).0
    }
}

/// Family of the addresses that machines know each other by.
#[derive(Clone, Copy)]
pub(crate) enum Underlay {
    Ipv4,
    Ipv6,
}

pub(crate) fn plan() -> AddressPlan {
    AddressPlan { prefix: Ipv6Addr::new(0xfd4c, 0x6f6e, 0x6773, 0, 0, 0, 0, 0), pool: "10.128.0.0/10".parse().unwrap() }
}

/// A state with these nodes.
pub(crate) fn state(nodes: &[NetworkNode]) -> NetworkState {
    state_of(MeshMode::Auto, nodes)
}

/// A state with these nodes, joined in this way.
pub(crate) fn state_of(mesh: MeshMode, nodes: &[NetworkNode]) -> NetworkState {
    let settings = NetworkSettings { cluster: "lab".to_owned(), addresses: plan(), mesh, mesh_port: PORT };
    let cursor = Cursor { incarnation: 0, index: StateIndex(1) };
    let (services, nodes) = (Vec::new(), nodes.to_vec());
    let mut state = NetworkState::default();
    state.apply(NetworkFeed::Snapshot { cursor, services, nodes, settings: Some(settings) });
    state
}

/// All machines know of each other.
pub(crate) fn join(machines: &mut [&mut Machine], underlay: Underlay) {
    let nodes: Vec<NetworkNode> = machines.iter().map(|machine| machine.node(underlay)).collect();
    for machine in machines {
        machine.learn(&nodes);
    }
}

/// Waits until `done` holds. The wait is long because machines of a test run are slow at times.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..30 {
        if done() {
            return;
        }
        thread::sleep(std::time::Duration::from_millis(200));
    }
    panic!("{what} did not happen");
}

/// A program that runs until it is dropped.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        Self(command.args(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id().cast_signed()) {
            // A capture is complete only if its program ends by itself.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// Runs a program that has to succeed.
pub(crate) fn run(line: &str) {
    let (is_fine, output) = output(line);
    assert!(is_fine, "{line}: {output}");
}

fn output(line: &str) -> (bool, String) {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}
