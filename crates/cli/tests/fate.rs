//! What a caller is told of a write while the voters go away: whatever is said of its fate turns out to be true.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by ending")]

#[path = "support/fleet.rs"]
#[expect(dead_code, reason = "other stories use the rest")]
mod fleet;

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

use fleet::{Cluster, eventually};
use longshore_api::{ApplyRequest, Client, ClientError, Endpoint};
use rustix::process::Signal;

/// Deployments by what was said of them.
type Said = BTreeMap<String, Vec<String>>;

/// Writers at once: some are always between their decision and its answer.
const WRITERS: usize = 16;
/// The voters are stopped so often, at most, until one of the writers was caught there.
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

/// Applies one deployment after the other until it is refused or told to end.
fn writer(socket: PathBuf, mark: String, ended: Arc<AtomicBool>) -> JoinHandle<Said> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = Client::new(Endpoint::Unix(socket));
        let mut said = Said::new();
        for number in 0.. {
            let name = format!("d-{mark}-{number}");
            let fate = match runtime.block_on(client.apply(&manifest(&name))) {
                Ok(_) => "acknowledged".to_owned(),
                Err(ClientError::Refused(envelope)) => {
                    let fate = envelope.details.get("fate").map_or("refused", |fate| fate.as_str().unwrap());
                    if fate == "committed" {
                        assert_eq!(envelope.code, "quorum_lost");
                        assert!(envelope.hint().unwrap().contains("it was decided"), "{envelope:?}");
                        assert!(envelope.details["index"].as_u64().unwrap() > 0, "{envelope:?}");
                    }
                    fate.to_owned()
                }
                Err(error) => panic!("{error}"),
            };
            let over = fate != "acknowledged" || ended.load(Ordering::Relaxed);
            said.entry(fate).or_default().push(name);
            if over {
                break;
            }
        }
        said
    })
}

#[test]
fn a_write_decided_just_before_the_voters_went_away_is_told_so_and_is_there_when_they_are_back() {
    let mut cluster = Cluster::of(3);
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
        // Every writer is refused once nobody decides; one that is answered just then would go on for ever.
        std::thread::sleep(Duration::from_secs(5));
        ended.store(true, Ordering::Relaxed);
        let mut said = Said::new();
        for (fate, names) in writers.into_iter().flat_map(|writer| writer.join().unwrap()) {
            said.entry(fate).or_default().extend(names);
        }
        for at in &others {
            cluster.nodes[*at].signal(Signal::CONT);
        }
        let status = eventually("they decide again", || cluster.nodes[leader].json(&["status"]));
        let deployments = status["deployments"].as_array().unwrap().iter();
        let there: std::collections::BTreeSet<&str> = deployments.map(|it| it["name"].as_str().unwrap()).collect();
        for (fate, names) in &said {
            let kept = names.iter().filter(|name| there.contains(name.as_str())).count();
            match fate.as_str() {
                "acknowledged" | "committed" => assert_eq!(kept, names.len(), "{fate}: {names:?}"),
                "not_appended" | "refused" => assert_eq!(kept, 0, "{fate}: {names:?}"),
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
