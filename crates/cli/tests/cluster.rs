//! Several daemons as real processes, each on a loopback address of its own: joining, failover, recovery and access.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "support/test_cluster.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod test_cluster;

use std::time::Duration;

use rustix::process::Signal;
use test_cluster::{Cluster, Node, eventually, files_containing, join, longshore, refused};

#[test]
fn three_nodes_survive_their_leader_and_take_it_back() {
    let mut cluster = Cluster::of(3);
    cluster.apply(2);
    let mut nodes = cluster.running(1, 3);
    nodes.sort();
    assert_eq!(nodes, ["n1", "n2", "n3"], "every node takes its share");

    let leader = cluster.leader();
    cluster.nodes[leader].kill();
    let follower = (leader + 1) % 3;
    // Accepted once the remaining two have elected a leader.
    eventually("writes again", || cluster.nodes[follower].json(&["scale", "shop", "web=4"]));
    let nodes = cluster.running(follower, 4);
    assert!(nodes.iter().all(|node| *node != cluster.nodes[leader].name), "{nodes:?}");

    cluster.nodes[leader].start();
    eventually("it is back", || {
        let nodes = cluster.nodes[leader].json(&["node", "ls"])?;
        nodes.as_array()?.iter().all(|node| node["health"] == "ready").then_some(())
    });
    let status = cluster.nodes[leader].expect_json(&["status"]);
    assert_eq!(status["deployments"][0]["revision"], 2, "what was decided without it reached it: {status:#}");
    cluster.nodes[leader].expect_json(&["rm", "shop"]);
}

const TALK: &str = "\
name: talk
services:
  web:
    image: none
    command: [sh, -c, \"echo hello from $$LONGSHORE_NODE; exec sleep 600\"]
    x-longshore: { driver: exec }
    deploy: { replicas: 3 }
";

#[test]
fn logs_and_exec_of_every_node_work_from_every_other() {
    let mut cluster = Cluster::of(3);
    let file = cluster.folder.path().join("talk.yaml");
    std::fs::write(&file, TALK).unwrap();
    cluster.nodes[0].expect_json(&["apply", "-f", file.to_str().unwrap()]);
    cluster.running(0, 3);
    let status = cluster.nodes[0].expect_json(&["status"]);
    let word = |row: &serde_json::Value, name: &str| row[name].as_str().unwrap().to_owned();
    let rows = status["replicas"].as_array().unwrap().iter();
    let replicas: Vec<(String, String)> = rows.map(|row| (word(row, "id"), word(row, "node"))).collect();
    let mut all: Vec<String> = replicas.iter().map(|(id, node)| format!("{id} | hello from {node}")).collect();
    all.sort();
    for asked in &cluster.nodes {
        for (id, node) in &replicas {
            assert_eq!(asked.text(&["exec", id, "sh", "-c", "echo $LONGSHORE_NODE"]), *node, "asked of {}", asked.name);
            let output = asked.ask(&["exec", id, "sh", "-c", "exit 7"]);
            assert_eq!(output.status.code(), Some(7), "asked of {}", asked.name);
        }
        eventually("all lines", || {
            let mut lines: Vec<String> = asked.text(&["logs", "talk"]).lines().map(str::to_owned).collect();
            lines.sort();
            (lines == all).then_some(())
        });
    }

    // An unreachable node is named, and the logs of the others are still printed.
    let gone = (cluster.leader() + 1) % 3;
    cluster.nodes[gone].kill();
    let (name, asked) = (cluster.nodes[gone].name.clone(), &cluster.nodes[(gone + 1) % 3]);
    let (id, _) = replicas.iter().find(|(_, node)| *node == name).unwrap();
    let output = asked.ask(&["logs", "talk"]);
    let (said, noted) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.lines().count() == 2, "{said}{noted}");
    assert!(noted.starts_with(&format!("{id}: `{name}` does not answer")), "{noted}");
    let said = refused(&asked.ask(&["exec", id, "true"]));
    assert!(said.contains("node_unreachable") && said.contains(&name), "{said}");
    cluster.nodes[gone].start();
    let asked = &cluster.nodes[(gone + 1) % 3];
    eventually("it answers again", || asked.ask(&["exec", id, "true"]).status.success().then_some(()));
    cluster.nodes[gone].expect_json(&["rm", "talk"]);
}

#[test]
fn a_minority_refuses_writes_and_a_suspended_leader_resumes_as_follower() {
    let mut cluster = Cluster::of(3);
    let leader = cluster.leader();
    cluster.nodes[leader].signal(Signal::STOP);
    let (second, third) = ((leader + 1) % 3, (leader + 2) % 3);
    eventually("writes again", || cluster.nodes[second].json(&["token", "create", "a", "--role", "view"]));
    cluster.nodes[leader].signal(Signal::CONT);
    let names = |cluster: &Cluster, at: usize| -> Option<Vec<String>> {
        let rows = cluster.nodes[at].json(&["token", "ls"])?;
        Some(rows.as_array()?.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect())
    };
    eventually("the sleeper knows", || (names(&cluster, leader)? == ["a"]).then_some(()));

    let alone = cluster.leader();
    for other in [leader, second, third].into_iter().filter(|other| *other != alone) {
        cluster.nodes[other].kill();
    }
    let said = refused(&cluster.nodes[alone].ask(&["token", "create", "b", "--role", "view"]));
    assert!(said.contains("quorum_lost") || said.contains("leader_lost"), "{said}");
    for other in (0..3).filter(|other| *other != alone) {
        cluster.nodes[other].start();
    }
    eventually("writes again", || cluster.nodes[alone].json(&["token", "create", "c", "--role", "view"]));
    let names = names(&cluster, alone).unwrap();
    // The refused write may have been committed after all: the error does not exclude it.
    assert!(names.contains(&"a".to_owned()) && names.contains(&"c".to_owned()), "{names:?}");
}

#[test]
fn every_server_reports_the_load_of_every_node() {
    let cluster = Cluster::of(3);
    for node in &cluster.nodes {
        let rows = eventually("all have measured themselves", || {
            let rows = node.json(&["node", "ls"])?.as_array()?.clone();
            (rows.len() == 3 && rows.iter().all(|row| row["load"].is_object())).then_some(rows)
        });
        for row in rows {
            let share = |name: &str| row["load"][name].as_u64().unwrap();
            assert!((1..=1_000_000).contains(&share("memory_millionths")), "{row:#}");
            assert!(share("cpu_millionths") <= 1_000_000, "{row:#}");
        }
    }
    let inspected = cluster.nodes[1].ask(&["node", "inspect", "n1"]);
    assert!(String::from_utf8_lossy(&inspected.stdout).contains("of its memory in use"), "{inspected:?}");
}

#[test]
fn all_nodes_killed_at_once_come_back_with_all_state() {
    let mut cluster = Cluster::of(3);
    cluster.apply(0);
    cluster.running(0, 3);
    let before = cluster.nodes[0].expect_json(&["cluster", "status"]);
    cluster.nodes.iter_mut().for_each(Node::kill);
    cluster.nodes.iter_mut().for_each(Node::start);
    cluster.running(2, 3);
    let status = cluster.nodes[1].expect_json(&["status"]);
    for replica in status["replicas"].as_array().unwrap() {
        assert_eq!((&replica["generation"], &replica["restarts"]), (&1.into(), &0.into()), "{replica:#}");
    }
    assert!(cluster.nodes[1].expect_json(&["cluster", "status"])["index"].as_u64() >= before["index"].as_u64());
    cluster.nodes[1].expect_json(&["rm", "shop"]);
    eventually("gone", || cluster.nodes[0].json(&["status"])?["replicas"].as_array()?.is_empty().then_some(()));
}

#[test]
fn a_server_whose_log_is_gone_does_not_start_and_says_how_to_come_back() {
    let mut cluster = Cluster::of(3);
    let (leader, lost) = (cluster.leader(), (cluster.leader() + 1) % 3);
    for part in ["store/log", "store"] {
        cluster.nodes[lost].kill();
        let (path, away) = (cluster.nodes[lost].data.join(part), cluster.nodes[lost].data.join("away"));
        std::fs::rename(&path, &away).unwrap();
        cluster.nodes[lost].start();
        let ended = eventually("it ends", || cluster.nodes[lost].daemon.as_mut().unwrap().try_wait().unwrap());
        assert!(!ended.success());
        let log = std::fs::read_to_string(cluster.nodes[lost].log_file()).unwrap();
        assert!(log.contains("is gone, and") && log.contains("node rm"), "{log}");
        cluster.nodes[leader].expect_json(&["node", "label", "n1", "still=writing"]);

        // With its log it is a member as before.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::rename(&away, &path).unwrap();
        cluster.nodes[lost].start();
        eventually("it is back", || cluster.nodes[lost].json(&["cluster", "status"]));
    }
}

#[test]
fn a_join_token_admits_one_node_and_a_removed_node_is_refused() {
    let mut cluster = Cluster::of(1);
    eventually("ready", || cluster.nodes[0].json(&["node", "ls"]));
    let token = cluster.nodes[0].text(&["cluster", "token", "--worker"]);
    cluster.add(Some(&token));
    eventually("n2 is ready", || {
        let nodes = cluster.nodes[0].json(&["node", "ls"])?;
        nodes.as_array()?.iter().any(|node| node["name"] == "n2" && node["health"] == "ready").then_some(())
    });

    let third = cluster.new_node("n3");
    let server = cluster.nodes[0].address.clone();
    assert!(refused(&join(&third, &server, &token)).contains("join_token_invalid"), "a token used before");
    let expired = cluster.nodes[0].text(&["cluster", "token", "--valid", "0s"]);
    assert!(refused(&join(&third, &server, &expired)).contains("join_token_expired"));
    let mut forged = cluster.nodes[0].text(&["cluster", "token"]);
    let pin_begins = forged.rfind('-').unwrap() + 1;
    let other = if forged[pin_begins..].starts_with('0') { "1" } else { "0" };
    forged.replace_range(pin_begins..=pin_begins, other);
    let said = refused(&join(&third, &server, &forged));
    assert!(said.contains("not a server of the cluster that the token names"), "another authority: {said}");

    let said = refused(&cluster.nodes[1].ask(&["status"]));
    assert!(said.contains("not_a_server"), "a worker rules nothing: {said}");
    cluster.nodes[0].expect_json(&["node", "rm", "--force", "n2"]);
    cluster.nodes[1].kill();
    cluster.nodes[1].start();
    std::thread::sleep(Duration::from_secs(3));
    let nodes = cluster.nodes[0].expect_json(&["node", "ls"]);
    assert_eq!(nodes.as_array().unwrap().len(), 1, "a removed node's certificate opened something: {nodes:#}");
}

#[test]
fn a_token_allows_its_role_and_scope_until_it_is_revoked() {
    let cluster = Cluster::of(1);
    let node = &cluster.nodes[0];
    eventually("ready", || node.json(&["node", "ls"]));
    cluster.apply(0);
    let with = |token: &str, arguments: &[&str]| {
        longshore().args(arguments).args(["--address", &node.address, "--token", token]).output().unwrap()
    };
    let create = |arguments: &[&str]| node.text(&[&["token", "create"], arguments].concat());
    let viewer = create(&["eyes", "--role", "view"]);
    let deployer = create(&["ci", "--role", "deploy", "--deployment", "shop"]);
    let elsewhere = create(&["other", "--role", "deploy", "--deployment", "blog"]);
    let expired = create(&["old", "--role", "admin", "--valid", "0s"]);

    assert!(with(&viewer, &["status"]).status.success());
    assert!(refused(&with(&viewer, &["scale", "shop", "web=2"])).contains("forbidden"), "wrong role");
    assert!(with(&deployer, &["scale", "shop", "web=2"]).status.success());
    assert!(refused(&with(&deployer, &["node", "ls"])).contains("forbidden"), "the whole cluster");
    assert!(refused(&with(&deployer, &["node", "pause", "n1"])).contains("forbidden"), "wrong role");
    assert!(refused(&with(&elsewhere, &["scale", "shop", "web=1"])).contains("forbidden"), "wrong scope");
    let in_prod = with(
        &deployer,
        &["apply", "--namespace", "prod", "-f", cluster.folder.path().join("compose.yaml").to_str().unwrap()],
    );
    assert!(refused(&in_prod).contains("forbidden"), "a deployment of the same name in another namespace");
    let seen = String::from_utf8(with(&elsewhere, &["status"]).stdout).unwrap();
    assert!(!seen.contains("shop"), "another deployment shows: {seen}");
    assert!(refused(&with(&expired, &["status"])).contains("unauthenticated"), "expired");
    let wrong = viewer.replacen(viewer.split('-').nth(3).unwrap(), &"0".repeat(32), 1);
    assert!(refused(&with(&wrong, &["status"])).contains("unauthenticated"), "wrong secret");

    let id = viewer.split('-').nth(2).unwrap();
    node.expect_json(&["token", "rm", id]);
    assert!(refused(&with(&viewer, &["status"])).contains("unauthenticated"), "revoked");
    for secret in [&viewer, &deployer, &elsewhere].map(|token| token.split('-').nth(3).unwrap().to_owned()) {
        assert!(files_containing(&node.data, secret.as_bytes()).is_empty(), "a token's secret is on disk");
    }
    node.expect_json(&["rm", "shop"]);
}

#[test]
fn a_server_recovers_from_a_lost_majority_and_a_backup_restores_the_cluster() {
    let mut cluster = Cluster::of(3);
    cluster.apply(0);
    cluster.running(0, 3);
    let backup = cluster.folder.path().join("cluster.backup");
    cluster.nodes[0].text(&["backup", backup.to_str().unwrap()]);
    // Committed after the backup, so that recovery and restore differ.
    cluster.nodes[0].expect_json(&["scale", "shop", "web=2"]);
    cluster.running(0, 2);
    cluster.nodes.iter_mut().for_each(Node::kill);

    let recovered =
        longshore().args(["cluster", "recover", "--data-dir"]).arg(&cluster.nodes[2].data).output().unwrap();
    assert!(recovered.status.success(), "{}", String::from_utf8_lossy(&recovered.stderr));
    cluster.nodes[2].start();
    let status = eventually("n3 leads alone", || cluster.nodes[2].json(&["status"]));
    assert_eq!(status["deployments"][0]["revision"], 2);
    assert_eq!(cluster.members(2, "votes"), ["n3"]);
    // Half of the nodes or more are down, so their replicas are replaced only after an operator declares the nodes
    // lost. Until then `why` says so.
    let lost = eventually("what is lost says so", || {
        let status = cluster.nodes[2].json(&["status"])?;
        let rows = status["replicas"].as_array()?.clone();
        let lost: Vec<_> = rows.into_iter().filter(|row| row["state"] != "running").collect();
        (!lost.is_empty() && lost.iter().all(|row| row["code"] == "node_lost")).then_some(lost)
    });
    let (replica, node) = (lost[0]["id"].as_str().unwrap(), lost[0]["node"].as_str().unwrap());
    let why = eventually("and why", || {
        let why = cluster.nodes[2].json(&["why", replica])?;
        why["pending"]["explain"].as_str()?.contains("longshore node lost").then_some(why)
    });
    assert_eq!((&why["answer"], &why["pending"]["reason"]), (&"waits".into(), &"node_lost".into()), "{why:#}");
    assert!(why["pending"]["explain"].as_str().unwrap().contains(&format!("`{node}` is down")), "{why:#}");
    let why = cluster.nodes[2].expect_json(&["why", "shop/web"]);
    assert!(why["placed"].as_u64() < why["desired"].as_u64(), "what is lost counts as placed: {why:#}");
    for gone in ["n1", "n2"] {
        eventually("it is noticed", || cluster.nodes[2].json(&["node", "lost", gone]));
    }
    assert_eq!(cluster.running(2, 2), ["n3", "n3"]);
    cluster.nodes[2].kill();

    let data = cluster.folder.path().join("n9");
    let restore = || {
        let mut command = longshore();
        command.args(["restore", backup.to_str().unwrap(), "--node", "n9", "--data-dir"]).arg(&data);
        command.output().unwrap()
    };
    let restored = restore();
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    assert!(refused(&restore()).contains("belongs to node `n9`"), "a folder in use is not overwritten");
    let node = cluster.new_node("n9");
    cluster.nodes.push(node);
    cluster.nodes[3].start();
    let status = eventually("n9 leads alone", || cluster.nodes[3].json(&["status"]));
    assert_eq!(status["deployments"][0]["revision"], 1, "as it was when the backup was made");
    let token = cluster.nodes[3].text(&["cluster", "token"]);
    let joining = cluster.new_node("n10");
    let joined = join(&joining, &cluster.nodes[3].address, &token);
    assert!(joined.status.success(), "its authority signs on: {}", String::from_utf8_lossy(&joined.stderr));
}

#[test]
fn a_data_directory_is_initialised_once_and_its_server_starts_the_cluster() {
    let mut cluster = Cluster::of(1);
    let mut node = cluster.new_node("m1");
    let init = || {
        let mut command = longshore();
        command.args(["cluster", "init", "--node", "m1", "--advertise", &node.address, "--data-dir"]).arg(&node.data);
        command.output().unwrap()
    };
    let made = init();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(refused(&init()).contains("belongs to node `m1`"), "a cluster was made twice in one folder");
    node.start();
    cluster.nodes.push(node);
    let status = eventually("m1 leads", || cluster.nodes[1].json(&["cluster", "status"]));
    let said = String::from_utf8(made.stdout).unwrap();
    assert!(said.contains(status["cluster"].as_str().unwrap()), "{said}");
}
