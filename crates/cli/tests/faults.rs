//! Network partitions and killed leaders in a cluster of real processes, each in a network namespace of its own, while
//! clients write and read. The history of the clients must be linearizable.
//!
//! `make soak` runs the long versions.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "../../store/tests/cluster/checker.rs"]
mod checker;
#[path = "support/test_cluster.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod test_cluster;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use checker::{Action, Operation, linearizable};
use longshore_api::{Client, ClientError, Endpoint, LabelRequest};
use serde_json::Value;
use test_cluster::{Cluster, Node, eventually, refused};

/// Registers are labels of this node.
const NODE: &str = "n1";
const REGISTERS: u64 = 6;

/// Clients that write and read at random members until they are stopped.
struct Clients {
    ended: Arc<AtomicBool>,
    history: Arc<Mutex<BTreeMap<String, Vec<Operation>>>>,
    acknowledged: Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    fn start(cluster: &Cluster, count: u64) -> Self {
        let sockets: Vec<PathBuf> = cluster.nodes.iter().map(|node| node.data.join("longshore.sock")).collect();
        let mut clients =
            Self { ended: Arc::default(), history: Arc::default(), acknowledged: Arc::default(), threads: Vec::new() };
        for number in 1..=count {
            let (ended, history) = (Arc::clone(&clients.ended), Arc::clone(&clients.history));
            let (sockets, acknowledged) = (sockets.clone(), Arc::clone(&clients.acknowledged));
            clients.threads.push(std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(client(number, &sockets, &ended, &history, &acknowledged));
            }));
        }
        clients
    }

    /// Writes acknowledged so far.
    fn written(&self) -> usize {
        self.acknowledged.lock().unwrap().values().map(BTreeSet::len).sum()
    }

    /// Stops the clients; returns the number of operations and of acknowledged writes.
    fn end(self) -> (usize, usize) {
        let written = self.written();
        self.ended.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        let history = self.history.lock().unwrap();
        for (register, operations) in history.iter() {
            assert!(linearizable(operations), "no order explains {register}: {operations:#?}");
        }
        (history.values().map(Vec::len).sum(), written)
    }
}

async fn client(
    number: u64,
    sockets: &[PathBuf],
    ended: &AtomicBool,
    history: &Mutex<BTreeMap<String, Vec<Operation>>>,
    acknowledged: &Mutex<BTreeMap<String, BTreeSet<String>>>,
) {
    let mut noise = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1;
    let mut count = 0;
    while !ended.load(Ordering::Relaxed) {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        count += 1;
        let socket = &sockets[usize::try_from((noise >> 33) % sockets.len() as u64).unwrap()];
        let client = Client::new(Endpoint::Unix(socket.clone()));
        let register = format!("r{}", (noise >> 20) % REGISTERS);
        let called = Instant::now();
        let operation = if (noise >> 50).is_multiple_of(2) {
            let value = format!("{number}-{count}");
            let labels = BTreeMap::from([(register.clone(), value.clone())]);
            match client.label(NODE, &LabelRequest { labels }).await {
                Ok(_) => {
                    acknowledged.lock().unwrap().entry(register.clone()).or_default().insert(value.clone());
                    Some((Action::Write(value), Some(Instant::now())))
                }
                // The write was never sent.
                Err(ClientError::Unreachable { .. }) => None,
                // The write may still take effect.
                Err(_) => Some((Action::Write(value), None)),
            }
        } else {
            let node = client.node(NODE).await.ok();
            node.map(|node| (Action::Read(node.labels.get(&register).cloned()), Some(Instant::now())))
        };
        if let Some((action, returned)) = operation {
            history.lock().unwrap().entry(register).or_default().push(Operation { action, called, returned });
        }
        // The backtracking checker needs short histories.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Time until any node accepts a write again.
fn writes_again(cluster: &Cluster, mark: &str) -> Duration {
    let since = Instant::now();
    eventually("writes again", || {
        let alive = cluster.nodes.iter().filter(|node| node.daemon.is_some());
        alive.into_iter().find_map(|node| node.json(&["node", "label", NODE, &format!("mark={mark}")]))
    });
    since.elapsed()
}

fn with_its_node(cluster: &Cluster) {
    eventually("the node is known", || known(&cluster.nodes[0]));
}

/// The node whose labels are the registers, as another sees it.
fn known(asked: &Node) -> Option<Value> {
    let nodes = asked.json(&["node", "ls"])?;
    nodes.as_array()?.iter().find(|node| node["name"] == NODE).cloned()
}

#[test]
fn an_isolated_leader_refuses_requests_and_the_majority_continues() {
    let cluster = Cluster::in_namespaces(3);
    with_its_node(&cluster);
    let clients = Clients::start(&cluster, 3);
    let leader = cluster.leader();
    cluster.nodes[leader].cable("down");
    let majority = (leader + 1) % 3;
    eventually("the majority goes on", || cluster.nodes[majority].json(&["node", "label", NODE, "mark=without"]));
    let said = refused(&cluster.nodes[leader].ask(&["node", "label", NODE, "mark=alone"]));
    assert!(said.contains("quorum_lost") || said.contains("leader_lost"), "{said}");
    let said = refused(&cluster.nodes[leader].ask(&["node", "ls"]));
    assert!(said.contains("quorum_lost"), "nor does it answer with what may be old: {said}");
    cluster.nodes[leader].cable("up");
    eventually("it knows what it missed", || {
        let node = known(&cluster.nodes[leader])?;
        (node["labels"]["mark"] == "without").then_some(())
    });
    // Few operations would prove nothing.
    eventually("enough was done", || (clients.written() > 30).then_some(()));
    let (operations, written) = clients.end();
    assert!(operations >= written);
}

/// Kills leaders one after the other, two by default, and prints how long each failover took.
fn kill_leaders(voters: usize) {
    let rounds: usize = env::var("LONGSHORE_LEADERS_KILLED").map_or(2, |rounds| rounds.parse().unwrap());
    let mut cluster = Cluster::in_namespaces(voters);
    with_its_node(&cluster);
    let clients = Clients::start(&cluster, 4);
    let mut took = Vec::new();
    for round in 0..rounds {
        let leader = cluster.leader();
        cluster.nodes[leader].kill();
        took.push(writes_again(&cluster, &round.to_string()));
        cluster.nodes[leader].start();
        eventually("it is back", || known(&cluster.nodes[leader]));
    }
    let (operations, written) = clients.end();
    took.sort();
    println!(
        "{voters} voters, {rounds} leaders killed: writes again after {:?} at best, {:?} in the middle, {:?} at worst; \
         {operations} operations, {written} acknowledged writes, one order explains them",
        took[0],
        took[rounds / 2],
        took[rounds - 1]
    );
}

#[test]
fn leaders_of_three_voters_are_killed_one_after_the_other() {
    kill_leaders(3);
}

#[test]
fn leaders_of_five_voters_are_killed_one_after_the_other() {
    kill_leaders(5);
}
