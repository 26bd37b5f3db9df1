//! Published ports of containers on three hosts with an engine each: every host answers, whatever happens to the
//! replicas behind the port.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "support/test_cluster.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod test_cluster;

#[path = "support/load.rs"]
mod load;

use std::{
    fs,
    net::{SocketAddr, UdpSocket},
    process::{Command, Stdio},
    time::Duration,
};

use load::{Load, get};
use serde_json::Value;
use test_cluster::{Cluster, eventually};

const PORT: u16 = 18_480;

/// A web server whose page names its version and replica.
fn web(version: &str, ports: &str) -> String {
    let page = "mkdir -p /tmp/www; echo $$VERSION of $$LONGSHORE_REPLICA > /tmp/www/index.html";
    format!(
        "\
name: shop
services:
  web:
    image: busybox:1
    pull_policy: never
    command: [\"sh\", \"-c\", \"{page}; exec httpd -f -p 80 -h /tmp/www\"]
    environment:
      VERSION: \"{version}\"
    ports: [{ports}]
    stop_grace_period: 2s
    deploy:
      replicas: 2
      update_config:
        order: start-first
        monitor: 1s
"
    )
}

/// A server for datagrams: this very binary, with the libraries of this machine.
fn datagrams() -> String {
    format!(
        "\
name: udp
services:
  echo:
    image: busybox:1
    pull_policy: never
    command: [/longshore, hello, \"0.0.0.0:53\"]
    ports: [\"{PORT}:53/udp\"]
    volumes:
      - \"{}:/longshore:ro\"
      - /lib:/lib:ro
      - /lib64:/lib64:ro
      - /usr/lib:/usr/lib:ro
",
        env!("CARGO_BIN_EXE_longshore")
    )
}

fn host(number: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 213, 77, number], port))
}

fn apply(cluster: &Cluster, text: &str) {
    let file = cluster.folder.path().join("shop.yaml");
    fs::write(&file, text).unwrap();
    let applied = cluster.nodes[0].ask(&["apply", "-f", file.to_str().unwrap(), "--wait"]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
}

fn restarts(cluster: &Cluster) -> u64 {
    let status = cluster.nodes[0].expect_json(&["status", "shop"]);
    status["replicas"].as_array().unwrap().iter().map(|row| row["restarts"].as_u64().unwrap()).sum()
}

#[test]
fn every_host_answers_on_a_published_port_and_clients_notice_neither_an_update_nor_a_killed_container() {
    let cluster = Cluster::on_engines(3);
    apply(&cluster, &web("one", &format!("\"{PORT}:80\"")));
    let used: Vec<usize> = cluster.nodes.iter().map(|node| node.engine.as_ref().unwrap().running().len()).collect();
    assert!(used.contains(&0) && used.iter().sum::<usize>() == 2, "one host has no replica: {used:?}");
    for number in 1..=3 {
        eventually("served", || get(host(number, PORT)).ok().filter(|page| page.contains("one of shop-web-")));
    }

    // The host without a replica relays to the two others.
    let number = u8::try_from(used.iter().position(|count| *count == 0).unwrap() + 1).unwrap();
    let load = Load::start(host(number, PORT));
    apply(&cluster, &web("two", &format!("\"{PORT}:80\"")));
    let rolled = load.end();
    println!("rolled under load: {rolled:?}");
    assert!(rolled.requests > 400, "too few requests to prove anything: {rolled:?}");
    assert_eq!(rolled.failed, 0, "{rolled:?}");

    let mut engines = cluster.nodes.iter().filter_map(|node| node.engine.as_ref());
    let engine = engines.find(|engine| !engine.running().is_empty()).unwrap();
    engine.docker(&["kill", "--signal", "KILL", &engine.running()[0]]);
    let load = Load::start(host(number, PORT));
    eventually("restarted", || (restarts(&cluster) == 1).then_some(()));
    let killed = load.end();
    println!("a container killed: {killed:?}");
    assert_eq!(killed.failed, 0, "{killed:?}");

    answer_datagrams(&cluster);
    take_a_port_on_one_host(&cluster);
}

fn answer_datagrams(cluster: &Cluster) {
    apply(cluster, &datagrams());
    let client = UdpSocket::bind("0.0.0.0:0").unwrap();
    client.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    for number in 1..=3 {
        eventually("answered", || {
            client.send_to(b"ping", host(number, PORT)).unwrap();
            let mut buffer = [0; 100];
            let (length, from) = client.recv_from(&mut buffer).ok()?;
            let answer = String::from_utf8_lossy(&buffer[..length]).into_owned();
            (from == host(number, PORT) && answer.ends_with(": ping")).then_some(())
        });
    }
}

/// A port that another program of one host has is that host's condition, and the others serve it.
fn take_a_port_on_one_host(cluster: &Cluster) {
    let taken = PORT + 1;
    let namespace = format!("--net=/run/netns/{}", cluster.nodes[1].namespace.as_ref().unwrap());
    let mut holder = Command::new("nsenter")
        .args([&namespace, "busybox", "httpd", "-f", "-p", &taken.to_string()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("taken", || get(host(2, taken)).err().filter(|error| error.to_string().contains("answered")));
    apply(cluster, &web("two", &format!("\"{PORT}:80\", \"{taken}:80\"")));
    let conditions = |node: &str| cluster.nodes[0].expect_json(&["node", "inspect", node])["conditions"].clone();
    eventually("said", || (conditions("n2")[0]["code"] == "port_taken_on_node").then_some(()));
    for number in [1, 3] {
        eventually("served elsewhere", || get(host(number, taken)).ok());
        assert_eq!(conditions(&format!("n{number}")), Value::Array(Vec::new()));
    }
    holder.kill().unwrap();
    holder.wait().unwrap();
    eventually("served there, too", || get(host(2, taken)).ok());
    eventually("no longer said", || (conditions("n2") == Value::Array(Vec::new())).then_some(()));
}
