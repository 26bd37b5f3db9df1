//! Authorisation of `logs` and `exec`, also of sessions that are open when the token is revoked.

use std::{
    fs,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use crate::test_cluster::{Cluster, Node, eventually, longshore, token_part};

/// Runs on the worker, which keeps no state; the server forwards requests to it.
const MANIFEST: &str = "\
name: shop
services:
  web:
    image: none
    command: [sh, -c, \"echo hello; exec sleep 600\"]
    x-longshore: { driver: exec }
    deploy: { placement: { constraints: [\"node.hostname == n2\"] } }
";

fn remote_command(server: &Node, token: &str, arguments: &[&str]) -> Command {
    let mut command = longshore();
    command.args(arguments).env("LONGSHORE_ADDRESS", &server.address).env("LONGSHORE_TOKEN", token);
    command
}

fn exit_and_text(output: &Output) -> (Option<i32>, String) {
    let text = if output.status.success() { &output.stdout } else { &output.stderr };
    (output.status.code(), String::from_utf8_lossy(text).trim().to_owned())
}

/// Connections of these nodes with TCP keep-alive, and without. The sixth field of the kernel's table shows the
/// keep-alive timer.
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
fn logs_and_exec_on_a_worker_need_a_token_in_scope_and_end_when_it_is_revoked() {
    let cluster = Cluster::exposed_with_worker();
    let (server, folder) = (&cluster.nodes[0], cluster.folder.path());
    assert!(server.apply(folder, MANIFEST).status.success());
    server.expect_json(&["policy", "set", "default", "exec_users=root"]);
    let eyes = server.token(&["eyes", "--role", "view"]);
    let ops = server.token(&["ops", "--role", "deploy", "--deployment", "shop"]);
    let blog = server.token(&["blog", "--role", "deploy", "--deployment", "blog"]);
    let ask =
        |token: &str, arguments: &[&str]| exit_and_text(&remote_command(server, token, arguments).output().unwrap());
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
        let mut command = remote_command(server, &ops, arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut open = [begun(&["logs", "shop", "-f"]), begun(&["exec", "shop-web-0", "sleep", "600"])];
    std::thread::sleep(Duration::from_secs(1));
    assert!(open.iter_mut().all(|child| child.try_wait().unwrap().is_none()));
    // A log stream and a command, each with one connection to the server and one from there to the worker.
    eventually("an end that vanishes is noticed by the other", || {
        let (tended, others) = ends(&cluster.nodes);
        (tended >= 8 && others == 0).then_some(())
    });
    server.expect_json(&["token", "rm", &token_part(&ops, 2)]);
    let revoked = Instant::now();
    for child in &mut open {
        eventually("it ends with its token", || child.try_wait().unwrap());
    }
    assert!(revoked.elapsed() < Duration::from_secs(2), "{:?}", revoked.elapsed());
    assert!(ask(&ops, &where_am_i).1.contains("unauthenticated"));
    server.expect_json(&["rm", "shop"]);
}
