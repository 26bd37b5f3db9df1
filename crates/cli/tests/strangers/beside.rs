//! Lines and commands of replicas: for whom, and for how long.

use std::{
    fs,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use crate::rig::{Cluster, Node, eventually, longshore, part};

/// On the worker, which keeps no state and is asked by the server.
const MANIFEST: &str = "\
name: shop
services:
  web:
    image: none
    command: [sh, -c, \"echo hello; exec sleep 600\"]
    x-longshore: { driver: exec }
    deploy: { placement: { constraints: [\"node.hostname == n2\"] } }
";

fn from_afar(server: &Node, token: &str, arguments: &[&str]) -> Command {
    let mut command = longshore();
    command.args(arguments).env("LONGSHORE_ADDRESS", &server.address).env("LONGSHORE_TOKEN", token);
    command
}

fn told(output: &Output) -> (Option<i32>, String) {
    let text = if output.status.success() { &output.stdout } else { &output.stderr };
    (output.status.code(), String::from_utf8_lossy(text).trim().to_owned())
}

/// Ends of connections with these nodes: those that notice when the other end vanishes without a word, and the others.
/// The kernel has a timer for the first, whose kind is the sixth field of its table.
fn ends(nodes: &[Node]) -> (usize, usize) {
    let ports: Vec<String> = nodes.iter().map(|node| port(&node.address)).collect();
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let established = rows.filter(|row| row[3] == "01");
    let theirs = established.filter(|row| ports.iter().any(|port| row[1].ends_with(port) || row[2].ends_with(port)));
    let (tended, others): (Vec<_>, Vec<_>) = theirs.partition(|row| row[5].starts_with("02:"));
    (tended.len(), others.len())
}

fn port(address: &str) -> String {
    let (_, port) = address.rsplit_once(':').unwrap();
    format!(":{:04X}", port.parse::<u16>().unwrap())
}

#[test]
fn lines_and_commands_of_a_worker_are_for_those_whose_they_are_and_end_with_their_token() {
    let cluster = Cluster::with_worker();
    let (server, folder) = (&cluster.nodes[0], cluster.folder.path());
    assert!(server.apply(folder, MANIFEST).status.success());
    let eyes = server.token(&["eyes", "--role", "view"]);
    let ops = server.token(&["ops", "--role", "deploy", "--deployment", "shop"]);
    let blog = server.token(&["blog", "--role", "deploy", "--deployment", "blog"]);
    let ask = |token: &str, arguments: &[&str]| told(&from_afar(server, token, arguments).output().unwrap());
    eventually("its lines are there", || (ask(&eyes, &["logs", "shop"]).1 == "shop-web-0 | hello").then_some(()));

    let where_am_i = ["exec", "shop-web-0", "sh", "-c", "echo $LONGSHORE_NODE"];
    assert_eq!(ask(&ops, &where_am_i), (Some(0), "n2".to_owned()));
    for (token, arguments, code) in [
        (&eyes, &where_am_i[..], "forbidden"),
        (&blog, &where_am_i[..], "not_found"),
        (&blog, &["logs", "shop"], "not_found"),
        (&blog, &["logs", "shop-web-0"], "not_found"),
        (&ops, &["exec", "shop-web-1", "true"], "not_found"),
    ] {
        let (status, said) = ask(token, arguments);
        assert!(status == Some(1) && said.contains(code), "{arguments:?}: {said}");
    }

    let begun = |arguments: &[&str]| -> Child {
        let mut command = from_afar(server, &ops, arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut open = [begun(&["logs", "shop", "-f"]), begun(&["exec", "shop-web-0", "sleep", "600"])];
    std::thread::sleep(Duration::from_secs(1));
    assert!(open.iter_mut().all(|child| child.try_wait().unwrap().is_none()));
    // Lines and a command, each from here to the server and from there to the worker.
    eventually("an end that vanishes is noticed by the other", || {
        let (tended, others) = ends(&cluster.nodes);
        (tended >= 8 && others == 0).then_some(())
    });
    server.told(&["token", "rm", &part(&ops, 2)]);
    let revoked = Instant::now();
    for child in &mut open {
        eventually("it ends with its token", || child.try_wait().unwrap());
    }
    assert!(revoked.elapsed() < Duration::from_secs(2), "{:?}", revoked.elapsed());
    assert!(ask(&ops, &where_am_i).1.contains("unauthenticated"));
    server.told(&["rm", "shop"]);
}
