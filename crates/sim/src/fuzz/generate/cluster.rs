//! The generated cluster: settings, nodes, faults and images.

use crate::fuzz::{
    rng::Rng,
    tree::{Tree, map, scalar, scalars},
};

const ZONES: &[&str] = &["east", "west", "north"];

/// Settings, most of them short, so that an hour of virtual time covers what otherwise takes a day.
pub(super) fn config(rng: &mut Rng) -> Tree {
    let mut config = map([
        ("gc_finished", scalar(rng.pick(&["20s", "90s"]))),
        ("gc_nodes", scalar(rng.pick(&["20s", "5m"]))),
        ("address_cooldown", scalar(rng.pick(&["5s", "1m"]))),
    ]);
    if rng.percent(40) {
        config.set("preemption", scalar("on"));
    }
    if rng.percent(30) {
        config.set("default_memory", scalar("100MiB"));
    }
    if rng.percent(20) {
        config.set("faulty_after_failures", scalar(rng.between(1, 3)));
    }
    if rng.percent(20) {
        config.set("heartbeat_interval", scalar("2s"));
    }
    config
}

pub(super) fn nodes(rng: &mut Rng) -> Vec<Tree> {
    let count = rng.between(2, 8);
    (1..=count).map(|number| node(&format!("n-{number}"), rng)).collect()
}

pub(super) fn node(name: &str, rng: &mut Rng) -> Tree {
    let memory = rng.pick(&["1GiB", "2GiB", "4GiB"]);
    let mut node = map([("name", scalar(name)), ("cpu", scalar(rng.between(1, 4))), ("memory", scalar(memory))]);
    if rng.percent(80) {
        node.set("labels", map([("zone", scalar(rng.pick(ZONES)))]));
    }
    if rng.percent(15) {
        node.set("pool", scalar("batch"));
    }
    if rng.percent(15) {
        node.set("disk", scalar("24GiB"));
    }
    if rng.percent(25) {
        node.set("addresses", scalar(rng.between(2, 8)));
    }
    if rng.percent(25) {
        node.set("devices", map([("gpu", scalar(rng.between(1, 3)))]));
    }
    if rng.percent(10) {
        node.set("arch", scalar("arm64"));
    }
    if rng.percent(10) {
        node.set("reserved", map([("memory", scalar("256MiB"))]));
    }
    node
}

/// Random faults. Half of the scenarios have none, as their failures are easier to understand.
pub(super) fn faults(rng: &mut Rng) -> Option<Tree> {
    if rng.percent(50) {
        return None;
    }
    let mut faults = map([("seed", scalar(rng.between(1, 1_000_000)))]);
    let options: [(&str, &[&str]); 6] = [
        ("loss", &["0.01", "0.05", "0.2"]),
        ("duplicate", &["0.05", "0.3"]),
        ("delay", &["50ms", "800ms", "3s"]),
        ("agent_restart", &["0.005", "0.03"]),
        ("leader_change", &["0.002", "0.02", "0.2"]),
        ("clock_step", &["300ms", "4s"]),
    ];
    for (key, values) in options {
        if rng.percent(60) {
            faults.set(key, scalar(rng.pick(values)));
        }
    }
    Some(faults)
}

/// Image behaviours. Crashing images exit before any generated restart window ends, so that their restarts are exhausted.
pub(super) fn images() -> Tree {
    let some = || scalars(["n-1", "n-2"]);
    map([
        ("slow:1", map([("start", scalar("20s"))])),
        ("heavy:1", map([("pull", scalar("15s"))])),
        ("gone:1", map([("pull", scalar("fail"))])),
        ("gone:2", map([("pull", scalar("fail")), ("on", some())])),
        ("sick:1", map([("healthy", scalar("false"))])),
        ("sick:2", map([("healthy", scalar("false")), ("on", some())])),
        ("stuck:1", map([("start", scalar("90s"))])),
        ("crash:1", map([("exits", scalar(1)), ("after", scalar("1s"))])),
        ("crash:2", map([("exits", scalar(137)), ("after", scalar("0s")), ("on", some())])),
        ("late:1", map([("exits", scalar(1)), ("after", scalar("8s"))])),
        ("late:2", map([("start", scalar("5s")), ("exits", scalar(1)), ("after", scalar("17s"))])),
        ("none:1", map([("pull", scalar("not_found"))])),
        ("none:2", map([("pull", scalar("denied")), ("on", some())])),
        ("ends:1", map([("exits", scalar(0)), ("after", scalar("1s"))])),
        ("job:1", map([("exits", scalar(0)), ("after", scalar("3s"))])),
        ("job:2", map([("exits", scalar(0)), ("after", scalar("45s"))])),
        ("job:3", map([("exits", scalar(1)), ("after", scalar("2s"))])),
        ("job:4", map([("exits", scalar(1)), ("after", scalar("1s")), ("on", some())])),
    ])
}

/// Images of services, weighted towards those that work.
pub(super) const OF_SERVICES: &[&str] = &[
    "good:1", "good:1", "good:2", "good:2", "good:3", "good:3", "good:4", "slow:1", "heavy:1", "gone:1", "gone:2",
    "sick:1", "sick:2", "stuck:1", "crash:1", "crash:2", "ends:1", "late:1", "late:2", "none:1", "none:2",
];

/// Images of jobs.
pub(super) const OF_JOBS: &[&str] =
    &["job:1", "job:1", "job:2", "job:2", "job:3", "job:4", "gone:2", "crash:1", "sick:2", "good:1"];
