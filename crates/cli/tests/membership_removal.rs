//! Servers without a vote, removed nodes, and the errors each of them returns.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "support/test_cluster.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod test_cluster;

use std::fs;

use test_cluster::{Cluster, Node, eventually, join, longshore, refused};

/// A manifest whose `sleep` time identifies its processes: no two tests use the same.
fn manifest(seconds: &str, replicas: u32) -> String {
    format!(
        "name: shop\nservices:\n  web:\n    image: none\n    command: [sleep, \"{seconds}\"]\n    x-longshore: {{ driver: exec }}\n    deploy: {{ replicas: {replicas} }}\n"
    )
}

fn apply(cluster: &Cluster, on: usize, manifest: &str) {
    let file = cluster.folder.path().join("shop.yaml");
    fs::write(&file, manifest).unwrap();
    cluster.nodes[on].expect_json(&["apply", "-f", file.to_str().unwrap()]);
}

/// Number of processes with this `sleep` time.
fn sleepers(seconds: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| *line == format!("sleep\0{seconds}\0").into_bytes()).count()
}

/// Waits until the second server has the log; before that it forwards requests.
fn wait_for_the_log(cluster: &Cluster) {
    eventually("n2 keeps the log", || (cluster.members(1, "keeps_log").len() == 2).then_some(()));
}

#[test]
fn the_second_of_two_servers_answers_like_the_first() {
    let cluster = Cluster::of(2);
    let second = &cluster.nodes[1];
    wait_for_the_log(&cluster);
    assert_eq!(cluster.members(1, "votes"), ["n1"]);

    apply(&cluster, 1, &manifest("7101", 2));
    assert_eq!(cluster.running(1, 2).len(), 2);
    assert_eq!(
        second.expect_json(&["rebalance", "--plan"]),
        serde_json::json!([]),
        "asked of the leader, by way of n2"
    );

    // It has joined and was never started, so it can be removed without `--force`.
    let token = second.text(&["cluster", "token"]);
    let third = cluster.new_node("n3");
    assert!(join(&third, &second.address, &token).status.success());
    second.expect_json(&["node", "rm", "n3"]);
    assert_eq!(second.expect_json(&["cluster", "status"])["members"].as_array().unwrap().len(), 2);

    let backup = cluster.folder.path().join("two.backup");
    second.text(&["backup", backup.to_str().unwrap()]);
    let audit = cluster.nodes[0].expect_json(&["audit"]);
    let handed_out = audit.as_array().unwrap().iter().find(|entry| entry["action"] == "backup_taken");
    assert_eq!(handed_out.unwrap()["outcome"], "done", "{audit:#}");
    second.expect_json(&["rm", "shop"]);
}

#[test]
fn the_second_of_two_servers_recovers_when_the_first_is_lost() {
    let mut cluster = Cluster::of(2);
    wait_for_the_log(&cluster);
    apply(&cluster, 1, &manifest("7303", 2));
    cluster.running(1, 2);
    cluster.nodes.iter_mut().for_each(Node::kill);
    let recovered =
        longshore().args(["cluster", "recover", "--data-dir"]).arg(&cluster.nodes[1].data).output().unwrap();
    assert!(recovered.status.success(), "{}", String::from_utf8_lossy(&recovered.stderr));
    cluster.nodes[1].start();
    let status = eventually("n2 leads alone", || cluster.nodes[1].json(&["status"]));
    assert_eq!(
        (&status["deployments"][0]["name"], cluster.members(1, "votes")),
        (&"shop".into(), vec!["n2".to_owned()])
    );
    // One of two nodes is not more than half, so its replicas are replaced without confirmation.
    eventually("all of it runs on n2", || (cluster.running(1, 2) == ["n2", "n2"]).then_some(()));
    cluster.nodes[1].expect_json(&["rm", "shop"]);
}

#[test]
fn a_removed_node_stops_its_replicas_and_explains_how_to_rejoin() {
    let mut cluster = Cluster::of(1);
    let token = eventually("a token", || {
        let made = cluster.nodes[0].ask(&["cluster", "token", "--worker"]);
        made.status.success().then(|| String::from_utf8(made.stdout).unwrap())
    });
    cluster.add(Some(&token));
    eventually("n2 is ready", || (cluster.nodes[0].json(&["node", "ls"])?.as_array()?.len() == 2).then_some(()));
    apply(&cluster, 0, &manifest("7202", 2));
    let mut nodes = cluster.running(0, 2);
    nodes.sort();
    assert_eq!(nodes, ["n1", "n2"]);
    assert_eq!(sleepers("7202"), 2);

    cluster.nodes[0].expect_json(&["node", "rm", "--force", "n2"]);
    let said = eventually("n2 was told", || {
        let output = cluster.nodes[1].ask(&["status"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (!output.status.success() && said.contains("node_removed")).then_some(said)
    });
    assert!(said.contains("longshore cluster join"), "{said}");
    assert_eq!(cluster.running(0, 2), ["n1", "n1"]);
    eventually("what it ran has ended", || (sleepers("7202") == 2).then_some(()));
    let log = fs::read_to_string(cluster.nodes[1].data.with_extension("log")).unwrap();
    assert_eq!(log.matches("no longer part of its cluster").count(), 1, "said once: {log}");
    cluster.nodes[0].expect_json(&["rm", "shop"]);
    eventually("nothing is left", || (sleepers("7202") == 0).then_some(()));
}

#[test]
fn a_server_removed_while_down_learns_of_it_on_return() {
    let mut cluster = Cluster::of(3);
    let away = (cluster.leader() + 1) % 3;
    let asked = (away + 1) % 3;
    cluster.nodes[away].kill();
    let name = cluster.nodes[away].name.clone();
    cluster.nodes[asked].expect_json(&["node", "rm", "--force", &name]);
    cluster.nodes[away].start();
    eventually("it was told", || {
        let output = cluster.nodes[away].ask(&["status"]);
        (!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("node_removed")).then_some(())
    });
    assert!(refused(&cluster.nodes[away].ask(&["node", "ls"])).contains("longshore cluster join"));
    assert_eq!(cluster.nodes[asked].expect_json(&["node", "ls"]).as_array().unwrap().len(), 2);
}
