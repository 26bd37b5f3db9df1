//! Throughput of our WireGuard in user space beside stock boringtun, in one run on one machine.
//!
//! Usage: `mesh_bench <path of boringtun-cli>`, as root, with `ip`, `wg` and `iperf3`. Prints one JSON object and fails if
//! ours is not six times as fast. Both ends and the load share the machine, so only the ratio says something.

#[expect(dead_code, reason = "the lab is part of the stories, which need more of it")]
#[path = "../tests/mesh/lab.rs"]
mod lab;

use std::{fs, net::IpAddr, process::ExitCode};

use lab::{Lab, Machine, Running, Underlay, eventually, join, run};
use serde_json::{Value, json};

/// The ratio that has to be reached.
const LIMIT: f64 = 6.0;
const SECONDS: u32 = 5;
/// Where iperf3 prints what arrived.
const THROUGHPUT: &str = "/end/sum_received/bits_per_second";

fn main() -> ExitCode {
    let stock = std::env::args().nth(1).expect("usage: mesh_bench <path of boringtun-cli>");
    let mut lab = Lab::new(1500);
    let (mut a, mut b) = (lab.machine(), lab.machine());
    join(&mut [&mut a, &mut b], Underlay::Ipv4);
    eventually("an answer over our mesh", || a.reaches(b.ipv4()));
    let theirs = Stock::start(&stock, &a, &b);
    eventually("an answer over stock boringtun", || a.reaches(theirs.ipv4));
    let bare = measure(&a, &b, "192.168.77.2".parse().expect("an address"));
    // One after the other, twice, so that a load from outside hits both.
    let rounds: Vec<[Figures; 4]> = (0..2)
        .map(|_| [b.ipv4().into(), b.ipv6().into(), theirs.ipv4, theirs.ipv6].map(|address| measure(&a, &b, address)))
        .collect();
    let [ours_v4, ours_v6, stock_v4, stock_v6] = [0, 1, 2, 3].map(|index| best(&rounds, index));
    let ratio = (ours_v4.gbit / stock_v4.gbit).min(ours_v6.gbit / stock_v6.gbit);
    let printed = json!({
        "bare": bare.json(), "ours_v4": ours_v4.json(), "ours_v6": ours_v6.json(),
        "stock_v4": stock_v4.json(), "stock_v6": stock_v6.json(), "ratio": ratio, "limit": LIMIT,
    });
    println!("{printed}");
    if ratio >= LIMIT { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[derive(Clone, Copy)]
struct Figures {
    gbit: f64,
    retransmits: u64,
}

impl Figures {
    fn json(self) -> Value {
        json!({ "gbit_per_s": (self.gbit * 1000.0).round() / 1000.0, "retransmits": self.retransmits })
    }
}

fn best(rounds: &[[Figures; 4]], index: usize) -> Figures {
    let figures = rounds.iter().map(|round| round[index]);
    figures.max_by(|a, b| a.gbit.total_cmp(&b.gbit)).expect("there are rounds")
}

fn measure(from: &Machine, to: &Machine, address: IpAddr) -> Figures {
    let _server = Running::start(&format!("ip netns exec {} iperf3 -s -1 -B {address}", to.namespace));
    let mut printed = Value::Null;
    eventually("a measurement", || {
        // Before its server listens, the client prints an error and succeeds.
        let (_, output) = from.program(&format!("iperf3 -c {address} -t {SECONDS} -J"));
        printed = serde_json::from_str(&output).unwrap_or_default();
        printed.pointer(THROUGHPUT).is_some()
    });
    Figures {
        gbit: printed.pointer(THROUGHPUT).and_then(Value::as_f64).expect("iperf3 prints a throughput") / 1e9,
        retransmits: printed.pointer("/end/sum_sent/retransmits").and_then(Value::as_u64).unwrap_or(0),
    }
}

/// Stock boringtun between the two machines.
struct Stock {
    ipv4: IpAddr,
    ipv6: IpAddr,
    _processes: [Running; 2],
    _keys: tempfile::TempDir,
}

impl Stock {
    fn start(program: &str, a: &Machine, b: &Machine) -> Self {
        let keys = tempfile::tempdir().expect("a folder");
        // The control socket of each is in one folder of the machine, so their names differ.
        let devices = ["a", "b"].map(|end| format!("nmb{}{end}", std::process::id()));
        let processes = [a, b].into_iter().zip(&devices).map(|(machine, device)| {
            let line = format!("ip netns exec {} {program} --disable-drop-privileges -f {device}", machine.namespace);
            Running::start(&line)
        });
        let processes: Vec<Running> = processes.collect();
        let publics = devices.each_ref().map(|device| {
            let private = shell("wg genkey", "");
            fs::write(keys.path().join(device), &private).expect("a key file");
            shell("wg pubkey", &private)
        });
        for (machine, number, other) in [(a, 1, 2), (b, 2, 1)] {
            let (device, namespace) = (&devices[number - 1], &machine.namespace);
            eventually("the control socket", || {
                fs::exists(format!("/var/run/wireguard/{device}.sock")).unwrap_or(false)
            });
            run(&format!(
                "ip netns exec {namespace} wg set {device} private-key {} listen-port 4000 peer {} \
                 allowed-ips 10.9.9.{other}/32,fd99::{other}/128 endpoint 192.168.77.{other}:4000",
                keys.path().join(device).display(),
                publics[other - 1],
            ));
            run(&format!("ip -n {namespace} addr add 10.9.9.{number}/24 dev {device}"));
            run(&format!("ip -n {namespace} addr add fd99::{number}/64 dev {device} nodad"));
            run(&format!("ip -n {namespace} link set {device} up mtu 1420"));
        }
        let processes = processes.try_into().ok().expect("two processes");
        let [ipv4, ipv6] = ["10.9.9.2", "fd99::2"].map(|address| address.parse().expect("an address"));
        Self { ipv4, ipv6, _processes: processes, _keys: keys }
    }
}

fn shell(line: &str, input: &str) -> String {
    let command = format!("printf '%s' '{input}' | {line}");
    let output = std::process::Command::new("sh").args(["-c", &command]).output().expect("a shell");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
