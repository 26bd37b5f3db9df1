//! Rolling updates of containers on three hosts with an engine each: as fast as it is safe, and nothing is short because of
//! a version that does not work.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "support/test_cluster.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod test_cluster;

#[path = "support/load.rs"]
mod load;

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    process::Output,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use load::{Load, get};
use serde_json::Value;
use test_cluster::{Cluster, eventually};

const PORT: u16 = 18_490;

/// Six web servers. `life` is what happens after the server was started.
fn web(version: &str, life: &str, further: &str) -> String {
    let page = "mkdir -p /tmp/www; echo $$VERSION > /tmp/www/index.html";
    format!(
        "\
name: shop
services:
  web:
    image: busybox:1
    pull_policy: never
    command: [\"sh\", \"-c\", \"{page}; {life}\"]
    environment:
      VERSION: \"{version}\"
    ports: [\"{PORT}:80\"]
    stop_grace_period: 1s
    deploy:
      replicas: 6
{further}"
    )
}

const SERVES: &str = "exec httpd -f -p 80 -h /tmp/www";

fn apply(cluster: &Cluster, text: &str) -> Output {
    let file = cluster.folder.path().join("shop.yaml");
    fs::write(&file, text).unwrap();
    cluster.nodes[0].ask(&["apply", "-f", file.to_str().unwrap(), "--wait"])
}

/// The fewest replicas of the service that were seen running while `act` was at work.
fn fewest_running<T>(cluster: &Cluster, act: impl FnOnce() -> T) -> (T, usize) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut fewest = usize::MAX;
            while !over.load(Ordering::Relaxed) {
                fewest = fewest.min(running(cluster));
                thread::sleep(Duration::from_millis(100));
            }
            fewest
        });
        let acted = act();
        over.store(true, Ordering::Relaxed);
        (acted, watch.join().unwrap())
    })
}

fn running(cluster: &Cluster) -> usize {
    let status = cluster.nodes[0].expect_json(&["status", "shop"]);
    let rows = status["replicas"].as_array().unwrap().iter().filter(|row| row["state"] == "running");
    rows.map(|row| row["id"].to_string()).collect::<BTreeSet<_>>().len()
}

fn rollout(cluster: &Cluster) -> Value {
    cluster.nodes[0].expect_json(&["status", "shop"])["deployments"][0]["rollout"].clone()
}

/// Every engine made the image by itself; a service runs one and the same everywhere.
fn share_the_image(cluster: &Cluster) {
    let file = cluster.folder.path().join("image.tar");
    let engines: Vec<_> = cluster.nodes.iter().map(|node| node.engine.as_ref().unwrap()).collect();
    engines[0].docker(&["save", "--output", file.to_str().unwrap(), "busybox:1"]);
    for engine in &engines[1..] {
        engine.docker(&["load", "--input", file.to_str().unwrap()]);
    }
}

#[test]
fn six_replicas_change_within_three_monitor_times_and_a_bad_version_takes_nothing_with_it() {
    let cluster = Cluster::on_engines(3);
    share_the_image(&cluster);
    let applied = apply(&cluster, &web("one", SERVES, ""));
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    let address = SocketAddr::from(([10, 213, 77, 1], PORT));
    eventually("served", || get(address).ok().filter(|page| page.contains("one")));

    let load = Load::start(address);
    let begun = Instant::now();
    let (applied, fewest) = fewest_running(&cluster, || apply(&cluster, &web("two", SERVES, "")));
    let took = begun.elapsed();
    let served = load.end();
    println!("six of six changed in {took:?}, at least {fewest} running, {served:?}");
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    assert_eq!((served.failed, fewest), (0, 6), "{served:?}");
    // Three monitor times of five seconds and six starts; one after the other would take six monitor times.
    assert!(took < Duration::from_secs(30), "the monitor times did not overlap: {took:?}");

    let sick = "    healthcheck: { test: [\"CMD\", \"false\"], interval: 1s, retries: 2 }\n";
    let after = |seconds: u32| format!("httpd -p 80 -h /tmp/www; sleep {seconds}; echo out of luck; exit 7");
    let stories = [
        ("dies at once", after(0), "", 6, "restart_exhausted"),
        ("dies after 3 s", after(3), "", 6, "restart_exhausted"),
        ("is never healthy", SERVES.to_owned(), sick, 6, "restart_exhausted"),
        ("dies after 8 s", after(8), "", 5, "failed_again"),
    ];
    for (what, life, further, least, code) in stories {
        let (applied, fewest) = fewest_running(&cluster, || apply(&cluster, &web(what, &life, further)));
        let said = String::from_utf8_lossy(&applied.stderr).into_owned();
        let ended = eventually("rolled back", || {
            let rollout = rollout(&cluster);
            (rollout["state"] == "rolled_back").then_some(rollout)
        });
        println!("{what}: at least {fewest} running; {said}");
        assert!(!applied.status.success(), "{what}: {said}");
        assert!(fewest >= least, "{what}: {fewest} running at the lowest");
        assert_eq!(ended["failure_reason"], code, "{what}: {ended:#}");
        assert!(said.contains(code), "{what}: {said}");
        eventually("whole again", || (running(&cluster) == 6).then_some(()));
    }
}
