//! Workers when the leader is lost, with real processes in network namespaces of their own: killed, frozen, or cut off
//! without a word, which sends no packet that would tell anybody.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "support/test_cluster.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod test_cluster;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use test_cluster::{Cluster, Node, eventually};

/// How a leader is lost.
#[derive(Clone, Copy)]
enum Loss {
    /// Its process is killed; its machine refuses connections.
    Killed,
    /// Its process is stopped: connections stand, and nothing answers.
    Frozen,
    /// Its network link is down: packets are dropped.
    CutOff,
}

impl Loss {
    fn befall(self, leader: &mut Node) {
        match self {
            Self::Killed => leader.kill(),
            Self::Frozen => leader.signal(Signal::STOP),
            Self::CutOff => leader.cable("down"),
        }
    }

    /// Undoes it as far as the test's end needs it.
    fn end(self, leader: &Node) {
        if let Self::Frozen = self {
            leader.signal(Signal::CONT);
        }
    }
}

fn health(asked: &Node, name: &str) -> Option<String> {
    let nodes = asked.json(&["node", "ls"])?;
    let node = nodes.as_array()?.iter().find(|node| node["name"] == name)?;
    node["health"].as_str().map(str::to_owned)
}

/// The replicas on a node, with what a restart or a move would change.
fn replicas_on(asked: &Node, name: &str) -> Option<Vec<Value>> {
    let status = asked.json(&["status"])?;
    let rows = status["replicas"].as_array()?.iter().filter(|row| row["node"] == name);
    let kept = ["id", "state", "generation", "attempt", "restarts"];
    Some(rows.map(|row| kept.map(|key| row[key].clone()).into_iter().collect()).collect())
}

/// Loses the leader, and asks another server until the lost node is down: by then a worker that lost its way would be
/// down, too, and its replicas would run elsewhere.
fn the_worker_is_unaffected_by(loss: Loss) {
    let mut cluster = Cluster::with_early_worker(3);
    cluster.apply(0);
    cluster.running(0, 3);
    let leader = cluster.leader();
    let witness = (0..cluster.nodes.len()).find(|at| *at != leader && *at != 1).unwrap();
    let before = replicas_on(&cluster.nodes[witness], "n2").unwrap();
    assert!(!before.is_empty(), "the worker runs something");
    let leader_name = cluster.nodes[leader].name.clone();

    loss.befall(&mut cluster.nodes[leader]);
    let witness = &cluster.nodes[witness];
    eventually("the lost leader is down", || {
        let worker = health(witness, "n2");
        assert_ne!(worker.as_deref(), Some("down"), "a healthy worker is called down");
        (health(witness, &leader_name)? == "down").then_some(())
    });
    // As long again as a silent node has before it is down.
    let until = Instant::now() + Duration::from_secs(12);
    while Instant::now() < until {
        assert_ne!(health(witness, "n2").as_deref(), Some("down"), "a healthy worker is called down");
        std::thread::sleep(Duration::from_millis(200));
    }
    let after = eventually("the worker is ready", || {
        (health(witness, "n2")? == "ready").then(|| replicas_on(witness, "n2")).flatten()
    });
    for replica in before {
        assert!(after.contains(&replica), "{replica} was moved or restarted: {after:?}");
    }
    loss.end(&cluster.nodes[leader]);
}

#[test]
fn a_worker_that_knew_only_the_first_server_survives_its_death() {
    the_worker_is_unaffected_by(Loss::Killed);
}

#[test]
fn a_leader_that_freezes_takes_no_worker_down() {
    the_worker_is_unaffected_by(Loss::Frozen);
}

#[test]
fn a_leader_that_vanishes_without_a_word_takes_no_worker_down() {
    the_worker_is_unaffected_by(Loss::CutOff);
}
