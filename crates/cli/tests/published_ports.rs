//! Published ports of plain processes: `"8080:80"` answers on 8080, whatever happens to the replicas behind it.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "cli/machine.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod machine;

#[path = "support/load.rs"]
mod load;

#[path = "cli/terminal.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod terminal;

use std::{
    net::{TcpListener, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use load::{Load, get};
use machine::Machine;
use rustix::process::{Signal, kill_process};
use serde_json::Value;

/// A web server without containers, whose page names its replica.
fn manifest(ports: &str, replicas: u32, greeting: &str, command: &str) -> String {
    format!(
        "\
name: shop
services:
  web:
    image: none
    command: {command}
    environment:
      GREETING: {greeting}
    ports: [{ports}]
    stop_grace_period: 2s
    deploy:
      replicas: {replicas}
      update_config:
        order: start-first
        monitor: 1s
    x-longshore:
      driver: exec
"
    )
}

const HELLO: &str = "[longshore, hello]";

fn apply(machine: &Machine, text: &str) {
    machine.write("compose.yaml", text);
    let applied = machine.ask(&["apply", "-f", "compose.yaml", "--wait"]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
}

fn conditions(machine: &Machine) -> Vec<String> {
    let status = machine.json(&["status"]);
    let listed = status["conditions"].as_array().cloned().unwrap_or_default();
    listed.iter().map(|it| it["code"].as_str().unwrap().to_owned()).collect()
}

fn served(machine: &Machine) -> bool {
    get(("127.0.0.1", machine.port)).is_ok()
}

#[test]
fn an_update_and_a_killed_replica_fail_no_request_on_the_published_port() {
    let mut machine = Machine::new();
    machine.start_daemon(3);
    let ports = format!("\"{}:80\"", machine.port);
    apply(&machine, &manifest(&ports, 2, "one", HELLO));
    machine.wait_for("served", || served(&machine));
    let both = [("127.0.0.1", machine.port), ("::1", machine.port)];
    for address in both.into_iter().filter(|(host, _)| TcpListener::bind((*host, 0)).is_ok()) {
        assert!(get(address).unwrap().contains("one from shop-web-"), "{address:?}");
    }

    let load = Load::start(([127, 0, 0, 1], machine.port));
    apply(&machine, &manifest(&ports, 2, "two", HELLO));
    let rolled = load.end();
    println!("rolled under load: {rolled:?}");
    assert!(rolled.requests > 400, "too few requests to prove anything: {rolled:?}");
    assert_eq!(rolled.failed, 0, "{rolled:?}");
    assert!(get(("127.0.0.1", machine.port)).unwrap().contains("two from"));

    // Requests that the killed process was answering are lost with it; from then on, none is.
    let (_, process) = machine.processes()[0].clone();
    kill_process(process, Signal::KILL).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let load = Load::start(([127, 0, 0, 1], machine.port));
    machine.wait_for("restarted", || {
        machine.json(&["status"])["replicas"].as_array().unwrap().iter().any(|it| it["restarts"] == 1)
    });
    let killed = load.end();
    println!("a replica killed: {killed:?}");
    assert_eq!(killed.failed, 0, "{killed:?}");
}

#[test]
fn the_only_replica_is_replaced_without_a_failed_request() {
    let mut machine = Machine::new();
    machine.start_daemon(1);
    // The server needs a while before it listens, and has no health check that would say so.
    let slow = "[sh, -c, \"sleep 1; exec longshore hello\"]";
    let ports = format!("\"{}:80\"", machine.port);
    apply(&machine, &manifest(&ports, 1, "one", slow));
    machine.wait_for("served", || served(&machine));
    let load = Load::start(([127, 0, 0, 1], machine.port));
    apply(&machine, &manifest(&ports, 1, "two", slow));
    machine.wait_for("the new one", || get(("127.0.0.1", machine.port)).is_ok_and(|page| page.contains("two from")));
    let rolled = load.end();
    println!("the only replica rolled: {rolled:?}");
    assert_eq!(rolled.failed, 0, "{rolled:?}");
}

#[test]
fn a_port_that_another_program_has_is_said_with_the_remedy_and_opens_once_it_is_free() {
    let mut machine = Machine::new();
    let holder = TcpListener::bind(("0.0.0.0", machine.port)).unwrap();
    machine.start_daemon(1);
    apply(&machine, &manifest(&format!("\"{}:80\"", machine.port), 1, "one", HELLO));
    assert_eq!(conditions(&machine), ["port_taken_on_node"]);
    let said = String::from_utf8(machine.ask(&["status"]).stdout).unwrap();
    let warning = said.lines().last().unwrap().replace(&machine.port.to_string(), "PORT");
    insta::assert_snapshot!(warning, @"warning: port_taken_on_node on n: port PORT/tcp is taken by another program of this machine; stop it (`ss -lnp 'sport = :PORT'` names it), or publish another port");
    let inspected = machine.json(&["node", "inspect", "n"]);
    assert_eq!(inspected["conditions"][0]["port"], machine.port, "{inspected:#}");
    drop(holder);
    machine.wait_for("healed", || conditions(&machine).is_empty());
    assert!(get(("127.0.0.1", machine.port)).unwrap().contains("one from shop-web-0"));
}

#[test]
fn a_second_daemon_of_the_machine_leaves_the_port_to_the_first_and_takes_it_over() {
    let (mut first, mut second) = (Machine::new(), Machine::new());
    let ports = format!("\"{}:80\"", first.port);
    for machine in [&mut first, &mut second] {
        machine.start_daemon(1);
    }
    apply(&first, &manifest(&ports, 1, "first", HELLO));
    apply(&second, &manifest(&ports, 1, "second", HELLO));
    assert_eq!(conditions(&second), ["port_taken_on_node"]);
    assert!(get(("127.0.0.1", first.port)).unwrap().contains("first from"));
    assert!(first.ask(&["rm", "shop"]).status.success());
    second.wait_for("taken over", || get(("127.0.0.1", first.port)).is_ok_and(|page| page.contains("second from")));
    assert!(conditions(&second).is_empty());
}

#[test]
fn a_daemon_that_is_killed_closes_no_port_and_restarts_nothing() {
    let mut machine = Machine::new();
    machine.start_daemon(1);
    apply(&machine, &manifest(&format!("\"{}:80\"", machine.port), 2, "one", HELLO));
    machine.wait_for("served", || served(&machine));
    let before = machine.processes();
    let mut daemon = machine.daemon.take().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(served(&machine));
    machine.start_daemon(1);
    assert!(served(&machine));
    assert_eq!(machine.processes(), before);
}

#[test]
fn a_process_that_ignores_its_variable_is_found_at_its_target_port_or_serves_the_port_itself() {
    let mut machine = Machine::new();
    machine.start_daemon(1);
    let target = Machine::new().port;
    let own = format!("[longshore, hello, \"127.0.0.1:{target}\"]");
    apply(&machine, &manifest(&format!("\"{}:{target}\"", machine.port), 1, "one", &own));
    machine.wait_for("served", || served(&machine));

    // Published and target port are the same number: the process has it.
    let own = format!("[longshore, hello, \"127.0.0.1:{}\"]", machine.port);
    assert!(machine.ask(&["rm", "shop"]).status.success());
    machine.wait_for("removed", || machine.processes().is_empty());
    apply(&machine, &manifest(&format!("\"{0}:{0}\"", machine.port), 1, "itself", &own));
    machine.wait_for("served", || get(("127.0.0.1", machine.port)).is_ok_and(|page| page.contains("itself from")));
    assert!(conditions(&machine).is_empty());

    // … unless it listens where its variable says.
    apply(&machine, &manifest(&format!("\"{0}:{0}\"", machine.port), 2, "proxied", HELLO));
    machine.wait_for("served", || get(("127.0.0.1", machine.port)).is_ok_and(|page| page.contains("proxied from")));
}

#[test]
fn a_named_address_and_a_range_listen_there_and_nowhere_else() {
    let mut machine = Machine::new();
    machine.start_daemon(1);
    // Below the range that the kernel hands out.
    let base = 10_000 + machine.port % 10_000;
    let ports = format!("\"127.0.0.2:{}:80\", \"{}-{}:90-91\"", machine.port, base, base + 1);
    apply(&machine, &manifest(&ports, 1, "one", HELLO));
    machine.wait_for("served", || get(("127.0.0.2", machine.port)).is_ok());
    assert!(TcpStream::connect(("127.0.0.1", machine.port)).is_err());
    for port in [base, base + 1] {
        assert!(TcpStream::connect(("127.0.0.1", port)).is_ok(), "{port}");
    }
    let status = machine.json(&["status"]);
    let published: Vec<&Value> = status["deployments"][0]["services"][0]["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["published"])
        .collect();
    assert_eq!(published.len(), 3, "{status:#}");
}

#[test]
fn one_number_on_two_addresses_leads_to_the_target_of_each() {
    let mut machine = Machine::new();
    machine.start_daemon(1);
    // The process listens on the port of its first target alone, so nothing answers behind the second.
    let ports = format!("\"127.0.0.2:{0}:80\", \"127.0.0.3:{0}:90\"", machine.port);
    apply(&machine, &manifest(&ports, 1, "one", HELLO));
    machine.wait_for("served", || get(("127.0.0.2", machine.port)).is_ok());
    assert!(get(("127.0.0.3", machine.port)).is_err(), "the target of another address is served");
}

#[test]
fn datagrams_are_answered_from_the_published_port_also_after_the_replica_was_replaced() {
    let mut machine = Machine::new();
    machine.start_daemon(1);
    let ports = format!("\"{}:53/udp\"", machine.port);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    for greeting in ["one", "two"] {
        apply(&machine, &manifest(&ports, 1, greeting, HELLO));
        let until = Instant::now() + Duration::from_secs(20);
        let answer = loop {
            assert!(Instant::now() < until, "no answer: {:#}", machine.json(&["status"]));
            client.send_to(b"ping\n", ("127.0.0.1", machine.port)).unwrap();
            let mut buffer = [0; 100];
            if let Ok((length, from)) = client.recv_from(&mut buffer)
                && buffer.starts_with(greeting.as_bytes())
            {
                assert_eq!(from.port(), machine.port);
                break String::from_utf8_lossy(&buffer[..length]).into_owned();
            }
        };
        assert_eq!(answer, format!("{greeting} from shop-web-0 on n: ping\n"));
    }
}
