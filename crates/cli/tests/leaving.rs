//! Servers beyond the voters, nodes that are sent away, and what each of them is told.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by ending")]

#[path = "support/fleet.rs"]
#[expect(dead_code, reason = "other stories use the rest")]
mod fleet;

use std::fs;

use fleet::{Cluster, Node, eventually, join, longshore, refused};

/// Sleeps that are nobody else's: no two tests sleep for the same time.
fn manifest(seconds: &str, replicas: u32) -> String {
    format!(
        "name: shop\nservices:\n  web:\n    image: none\n    command: [sleep, \"{seconds}\"]\n    x-longshore: {{ driver: exec }}\n    deploy: {{ replicas: {replicas} }}\n"
    )
}

fn apply(cluster: &Cluster, on: usize, manifest: &str) {
    let file = cluster.folder.path().join("shop.yaml");
    fs::write(&file, manifest).unwrap();
    cluster.nodes[on].told(&["apply", "-f", file.to_str().unwrap()]);
}

/// Processes of this machine that sleep for so long.
fn sleepers(seconds: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| *line == format!("sleep\0{seconds}\0").into_bytes()).count()
}

/// Until the second of two servers keeps the log; before that it hands on what it is asked.
fn wait_for_the_log(cluster: &Cluster) {
    eventually("n2 keeps the log", || (cluster.members(1, "keeps_log").len() == 2).then_some(()));
}

#[test]
fn of_two_servers_the_second_is_asked_like_the_first() {
    let cluster = Cluster::of(2);
    let second = &cluster.nodes[1];
    wait_for_the_log(&cluster);
    assert_eq!(cluster.members(1, "votes"), ["n1"]);

    apply(&cluster, 1, &manifest("7101", 2));
    assert_eq!(cluster.running(1, 2).len(), 2);
    assert_eq!(second.told(&["rebalance", "--plan"]), serde_json::json!([]), "asked of the leader, by way of n2");

    // Let in, and never started: it has nothing to leave behind, and goes without force.
    let token = second.text(&["cluster", "token"]);
    let third = Node::beside(&cluster, "n3");
    assert!(join(&third, &second.address, &token).status.success());
    second.told(&["node", "rm", "n3"]);
    assert_eq!(second.told(&["cluster", "status"])["members"].as_array().unwrap().len(), 2);

    let backup = cluster.folder.path().join("two.backup");
    second.text(&["backup", backup.to_str().unwrap()]);
    let audit = cluster.nodes[0].told(&["audit"]);
    let handed_out = audit.as_array().unwrap().iter().find(|entry| entry["action"] == "backup_taken");
    assert_eq!(handed_out.unwrap()["outcome"], "done", "{audit:#}");
    second.told(&["rm", "shop"]);
}

#[test]
fn the_second_of_two_servers_goes_on_alone_when_the_first_is_gone_for_good() {
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
    // One of two is not more than half: what n1 ran is replaced without a word of anybody.
    eventually("all of it runs on n2", || (cluster.running(1, 2) == ["n2", "n2"]).then_some(()));
    cluster.nodes[1].told(&["rm", "shop"]);
}

#[test]
fn a_node_that_was_removed_is_told_ends_its_work_and_says_how_to_come_back() {
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

    cluster.nodes[0].told(&["node", "rm", "--force", "n2"]);
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
    cluster.nodes[0].told(&["rm", "shop"]);
    eventually("nothing is left", || (sleepers("7202") == 0).then_some(()));
}

#[test]
fn a_server_removed_while_it_was_away_learns_of_it_when_it_returns() {
    let mut cluster = Cluster::of(3);
    let away = (cluster.leader() + 1) % 3;
    let asked = (away + 1) % 3;
    cluster.nodes[away].kill();
    let name = cluster.nodes[away].name.clone();
    cluster.nodes[asked].told(&["node", "rm", "--force", &name]);
    cluster.nodes[away].start();
    eventually("it was told", || {
        let output = cluster.nodes[away].ask(&["status"]);
        (!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("node_removed")).then_some(())
    });
    assert!(refused(&cluster.nodes[away].ask(&["node", "ls"])).contains("longshore cluster join"));
    assert_eq!(cluster.nodes[asked].told(&["node", "ls"]).as_array().unwrap().len(), 2);
}
