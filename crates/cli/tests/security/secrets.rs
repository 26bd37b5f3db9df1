//! Secrets from where they are stored to the replica that reads them, and to nobody else.

use std::{collections::BTreeSet, fs, path::Path};

use longshore_model::{
    Generation, GroupKey, ReplicaKey, SlotIndex, SlotKey, agent_protocol::FileRequest, container::FileKind,
};
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    raw_http::{connect, exchange, message, with_certificate_of},
    test_cluster::{Cluster, Node, eventually},
};

/// A replica on the given node that copies its secret to a file of the test.
fn manifest(name: &str, node: &str, declared: &str, output: &Path) -> String {
    let output = output.display();
    format!(
        "\
name: {name}
services:
  web:
    image: none
    command: [sh, -c, 'cat $$LONGSHORE_FILE_DB_PASS > {output}; exec sleep 600']
    secrets: [db-pass]
    x-longshore: {{ driver: exec }}
    deploy: {{ placement: {{ constraints: [\"node.hostname == {node}\"] }} }}
secrets:
  db-pass: {declared}
"
    )
}

fn put(node: &Node, contents: &str, more: &[&str]) -> Value {
    let file = node.data.with_extension("typed");
    fs::write(&file, contents).unwrap();
    let stored = node.expect_json(&[&["secret", "put", "db-pass", "--file", file.to_str().unwrap()], more].concat());
    fs::remove_file(file).unwrap();
    stored
}

fn shown(output: &Path, wanted: &str) {
    eventually(&format!("the replica reads `{wanted}`"), || {
        fs::read_to_string(output).is_ok_and(|text| text == wanted).then_some(())
    });
}

fn refused(output: &std::process::Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Status and code of the answer to a node that requests a file.
fn fetched(cluster: &Cluster, by: usize, wanted: &FileRequest) -> (u16, String) {
    let (server, node) = (&cluster.nodes[0], &cluster.nodes[by]);
    let body = rmp_serde::to_vec_named(wanted).unwrap();
    let bytes = message("/peer/file", Some(&node.name), &body);
    let answer = exchange(&mut connect(server, with_certificate_of(node, server)), &bytes).unwrap();
    (answer.status, answer.code())
}

#[test]
fn a_secret_reaches_only_nodes_that_need_it_and_a_new_version_is_rolled_out() {
    let mut cluster = Cluster::exposed_with_worker();
    let token = cluster.nodes[0].text(&["cluster", "token", "--worker"]);
    cluster.add(Some(&token));
    let (node, folder) = (&cluster.nodes[0], cluster.folder.path().to_owned());
    let output = tempfile::NamedTempFile::new().unwrap();
    let applied = node.apply(&folder, &manifest("shop", "n2", "{external: true}", output.path()));
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    eventually("it waits for the secret", || {
        let why = node.json(&["why", "shop-web-0"])?;
        (why["pending"]["reason"] == "secrets_missing").then_some(())
    });
    assert_eq!(put(node, "one", &[])["version"], 1);
    shown(output.path(), "one");
    assert_eq!(put(node, "two", &[])["version"], 2);
    shown(output.path(), "two");

    let replica = eventually("it runs", || {
        let status = node.json(&["status"])?;
        let mut replicas = status["replicas"].as_array()?.iter();
        replicas.find(|replica| replica["state"] == "running" && replica["node"] == "n2").cloned()
    });
    let group = GroupKey { namespace: "default".into(), deployment: "shop".into(), service: "web".into() };
    let generation = Generation(u32::try_from(replica["generation"].as_u64().unwrap()).unwrap());
    let key = ReplicaKey { group, slot: SlotKey::Index(SlotIndex(0)), generation };
    let own = FileRequest { key, name: "db-pass".into(), kind: FileKind::Secret, version: None };
    assert_eq!(fetched(&cluster, 1, &own).0, 200, "the node that runs it");
    let forbidden = (403, "forbidden".to_owned());
    assert_eq!(fetched(&cluster, 2, &own), forbidden, "a node that does not run it");
    let mut foreign = own.clone();
    foreign.key.group.namespace = "team".into();
    assert_eq!(fetched(&cluster, 1, &foreign), forbidden, "another namespace");
    foreign.key.group = GroupKey { deployment: "blog".into(), ..own.key.group.clone() };
    assert_eq!(fetched(&cluster, 1, &foreign), forbidden, "another deployment");
    let other = FileRequest { name: "other".into(), ..own.clone() };
    assert_eq!(fetched(&cluster, 1, &other), forbidden, "a secret it does not need");
    let mut old = own;
    old.key.generation = Generation(generation.0 + 100);
    assert_eq!(fetched(&cluster, 1, &old), forbidden, "a replica that does not exist");

    let listed = node.expect_json(&["secret", "ls"]);
    assert_eq!((&listed[0]["version"], &listed[0]["used_by"][0]), (&2.into(), &"shop/web".into()), "{listed:#}");
    let said = refused(&node.ask(&["secret", "rm", "db-pass"]));
    assert!(said.contains("secret_in_use") && said.contains("service `web` of deployment `shop`"), "{said}");
    assert!(refused(&node.ask(&["secret", "rm", "nothing"])).contains("unknown_secret"));
    node.expect_json(&["rm", "shop"]);
    node.expect_json(&["secret", "rm", "db-pass"]);
    assert_eq!(node.expect_json(&["secret", "ls"]), serde_json::json!([]));
}

#[test]
fn a_secret_of_one_deployment_is_refused_to_every_other() {
    let cluster = Cluster::exposed(1);
    let (node, folder) = (&cluster.nodes[0], cluster.folder.path());
    let output = tempfile::NamedTempFile::new().unwrap();
    put(node, "ours", &["--deployment", "shop"]);
    let theirs = manifest("blog", "n1", "{external: true}", output.path());
    assert!(refused(&node.apply(folder, &theirs)).contains("secret_out_of_scope"));
    fs::write(folder.join("pass.txt"), "mine now").unwrap();
    let overwriting = manifest("blog", "n1", "{file: ./pass.txt, name: db-pass}", output.path());
    assert!(refused(&node.apply(folder, &overwriting)).contains("secret_out_of_scope"));
    assert!(node.apply(folder, &manifest("shop", "n1", "{external: true}", output.path())).status.success());
    shown(output.path(), "ours");
    node.expect_json(&["rm", "shop"]);
}

#[test]
fn a_secret_may_be_any_bytes_and_arrives_as_it_was_stored() {
    let cluster = Cluster::exposed_with_worker();
    let (node, folder) = (&cluster.nodes[0], cluster.folder.path());
    let output = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = (0..=255).chain([0, 10, 13]).collect();
    let file = folder.join("key.bin");
    fs::write(&file, &bytes).unwrap();
    node.expect_json(&["secret", "put", "db-pass", "--file", file.to_str().unwrap()]);
    assert!(node.apply(folder, &manifest("shop", "n2", "{external: true}", output.path())).status.success());
    eventually("it is shown", || (fs::read(output.path()).unwrap() == bytes).then_some(()));
    node.expect_json(&["rm", "shop"]);

    let brought: Vec<u8> = bytes.iter().rev().copied().collect();
    fs::write(&file, &brought).unwrap();
    assert!(node.apply(folder, &manifest("blog", "n2", "{file: ./key.bin}", output.path())).status.success());
    eventually("a manifest brings it along", || (fs::read(output.path()).unwrap() == brought).then_some(()));
    node.expect_json(&["rm", "blog"]);
}

#[test]
fn a_secret_from_a_manifest_file_is_stored_and_rolled_out_when_it_changes() {
    let cluster = Cluster::exposed_with_worker();
    let (node, folder) = (&cluster.nodes[0], cluster.folder.path());
    let output = tempfile::NamedTempFile::new().unwrap();
    let text = manifest("shop", "n2", "{file: ./pass.txt}", output.path());
    let missing = refused(&node.apply(folder, &text));
    assert!(missing.contains("pass.txt"), "{missing}");
    fs::write(folder.join("pass.txt"), "planted-one-77d1").unwrap();
    assert!(node.apply(folder, &text).status.success());
    shown(output.path(), "planted-one-77d1");
    assert!(node.apply(folder, &text).status.success(), "the same once more");
    let listed = node.expect_json(&["secret", "ls"]);
    let row = |at: &str| listed[0][at].clone();
    assert_eq!((row("name"), row("version"), row("deployment")), ("shop_db-pass".into(), 1.into(), "shop".into()));
    fs::write(folder.join("pass.txt"), "two").unwrap();
    assert!(node.apply(folder, &text).status.success());
    shown(output.path(), "two");
    // The old content is on no node's disk and in no log.
    for node in &cluster.nodes {
        assert!(!crate::secret_leaks::is_on_disk(&node.data, "planted-one-77d1"));
        assert!(!fs::read_to_string(node.log_file()).unwrap().contains("planted-one-77d1"));
    }
    node.expect_json(&["rm", "shop"]);
}

fn keys(node: &Node) -> BTreeSet<String> {
    let vault: Value = serde_json::from_slice(&fs::read(node.data.join("vault.json")).unwrap()).unwrap();
    vault["keys"].as_object().unwrap().keys().cloned().collect()
}

#[test]
fn a_new_key_is_on_every_server_before_use_and_the_old_one_is_deleted_even_if_the_leader_dies() {
    let mut cluster = Cluster::exposed(3);
    let output = tempfile::NamedTempFile::new().unwrap();
    put(&cluster.nodes[0], "kept", &[]);
    let status = cluster.nodes[0].expect_json(&["cluster", "status"]);
    let leader = (0..3).find(|at| status["members"][*at]["leads"] == true).unwrap();
    let (follower, other) = ((leader + 1) % 3, (leader + 2) % 3);

    cluster.nodes[follower].signal(Signal::STOP);
    let said = refused(&cluster.nodes[leader].ask(&["cluster", "rotate-key"]));
    assert!(said.contains("not_ready") && said.contains("every server needs it"), "{said}");
    cluster.nodes[follower].signal(Signal::CONT);
    put(&cluster.nodes[leader], "kept still", &[]);
    eventually("it sees everybody again", || cluster.nodes[follower].json(&["node", "ls"]));

    // Requested through a follower; the leader, which re-encrypts everything, is killed right after the commit.
    let rotated = eventually("a new key", || cluster.nodes[other].json(&["cluster", "rotate-key"]));
    let mut daemon = cluster.nodes[leader].daemon.take().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let number = rotated["key"].to_string();
    for at in [follower, other] {
        eventually("only the new key is left", || (keys(&cluster.nodes[at]) == [number.clone()].into()).then_some(()));
    }
    cluster.nodes[leader].start();
    eventually("also where it was down", || (keys(&cluster.nodes[leader]) == [number.clone()].into()).then_some(()));

    // Old secrets can be decrypted, the CA signs, and new secrets are encrypted and decrypted.
    let (node, folder) = (&cluster.nodes[other], cluster.folder.path());
    let text = manifest("shop", "n1", "{external: true}", output.path());
    let applied = eventually("applied", || Some(node.apply(folder, &text)).filter(|output| output.status.success()));
    drop(applied);
    shown(output.path(), "kept still");
    put(node, "after", &[]);
    shown(output.path(), "after");
    let token = cluster.nodes[0].text(&["cluster", "token", "--worker"]);
    cluster.add(Some(&token));
    let audit = cluster.nodes[0].expect_json(&["audit", "--limit", "1000"]);
    assert!(audit.as_array().unwrap().iter().any(|entry| entry["action"] == "key_rotated"));
    cluster.nodes[0].expect_json(&["rm", "shop"]);
}
