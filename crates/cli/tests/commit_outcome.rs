//! What a client is told about a write while voters fail: the reported commit outcome is always true.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "support/test_cluster.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod test_cluster;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use longshore_api::{ApplyRequest, Client, ClientError, Endpoint};
use rustix::process::Signal;
use test_cluster::{Cluster, eventually};

/// Deployments by the reported outcome of their write.
type Outcomes = BTreeMap<String, Vec<String>>;

/// Concurrent writers: some are always between commit and answer.
const WRITERS: usize = 16;
/// At most so many rounds until a writer was between commit and answer when the voters stopped.
const ROUNDS: usize = 10;

fn manifest(name: &str) -> ApplyRequest {
    let text = "\
services:
  web: { image: none, command: [sleep, \"600\"], x-longshore: { driver: exec }, deploy: { replicas: 0 } }
";
    let file = "/w/compose.yaml".to_owned();
    ApplyRequest {
        files: vec![file.clone()],
        texts: BTreeMap::from([(file, text.to_owned())]),
        working_directory: "/w".to_owned(),
        name: Some(name.to_owned()),
        ..ApplyRequest::default()
    }
}

/// Applies deployments one by one until one is refused or `ended` is set.
fn writer(socket: PathBuf, mark: String, ended: Arc<AtomicBool>) -> JoinHandle<Outcomes> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = Client::new(Endpoint::Unix(socket));
        let mut said = Outcomes::new();
        for number in 0.. {
            let name = format!("d-{mark}-{number}");
            let outcome = match runtime.block_on(client.apply(&manifest(&name))) {
                Ok(_) => "acknowledged".to_owned(),
                Err(ClientError::Refused(envelope)) => {
                    let outcome = envelope.details.get("commit").or_else(|| envelope.details.get("fate"));
                    let outcome = outcome.map_or("refused", |outcome| outcome.as_str().unwrap());
                    if outcome == "committed" {
                        assert_eq!(envelope.code, "quorum_lost");
                        assert!(envelope.hint().unwrap().contains("the change was committed"), "{envelope:?}");
                        assert!(envelope.details["index"].as_u64().unwrap() > 0, "{envelope:?}");
                    }
                    outcome.to_owned()
                }
                Err(error) => panic!("{error}"),
            };
            let over = outcome != "acknowledged" || ended.load(Ordering::Relaxed);
            said.entry(outcome).or_default().push(name);
            if over {
                break;
            }
        }
        said
    })
}

#[test]
fn a_write_committed_before_the_voters_fail_is_reported_as_committed_and_survives() {
    let cluster = Cluster::of(3);
    let mut caught = 0;
    for round in 0..ROUNDS {
        let leader = cluster.leader();
        let others: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
        let ended = Arc::<AtomicBool>::default();
        let socket = cluster.nodes[leader].data.join("longshore.sock");
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| writer(socket.clone(), format!("{round}-{number}"), Arc::clone(&ended)))
            .collect();
        std::thread::sleep(Duration::from_millis(700));
        for at in &others {
            cluster.nodes[*at].signal(Signal::STOP);
        }
        // Every writer is refused without a quorum; one that is answered just before would continue forever.
        std::thread::sleep(Duration::from_secs(5));
        ended.store(true, Ordering::Relaxed);
        let mut said = Outcomes::new();
        for (outcome, names) in writers.into_iter().flat_map(|writer| writer.join().unwrap()) {
            said.entry(outcome).or_default().extend(names);
        }
        for at in &others {
            cluster.nodes[*at].signal(Signal::CONT);
        }
        let status = eventually("they decide again", || cluster.nodes[leader].json(&["status"]));
        let deployments = status["deployments"].as_array().unwrap().iter();
        let there: std::collections::BTreeSet<&str> = deployments.map(|it| it["name"].as_str().unwrap()).collect();
        for (outcome, names) in &said {
            let kept = names.iter().filter(|name| there.contains(name.as_str())).count();
            match outcome.as_str() {
                "acknowledged" | "committed" => assert_eq!(kept, names.len(), "{outcome}: {names:?}"),
                "not_appended" | "refused" => assert_eq!(kept, 0, "{outcome}: {names:?}"),
                "unknown" => {}
                other => panic!("what is `{other}`?"),
            }
        }
        caught += said.get("committed").map_or(0, Vec::len);
        if caught > 0 {
            return;
        }
    }
    panic!("no writer was ever between its decision and its answer");
}
