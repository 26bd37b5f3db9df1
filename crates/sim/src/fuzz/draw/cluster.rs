//! The cluster of a drawn scenario: settings, nodes, and how images behave on them.

use crate::fuzz::{
    dice::Dice,
    tree::{Tree, map, word, words},
};

const ZONES: &[&str] = &["east", "west", "north"];

/// Settings, most of them short, so that a run of an hour sees what otherwise takes a day.
pub(super) fn config(dice: &mut Dice) -> Tree {
    let mut config = map([
        ("gc_finished", word(dice.pick(&["20s", "90s"]))),
        ("gc_nodes", word(dice.pick(&["20s", "5m"]))),
        ("address_cooldown", word(dice.pick(&["5s", "1m"]))),
    ]);
    if dice.percent(40) {
        config.set("preemption", word("on"));
    }
    if dice.percent(30) {
        config.set("default_memory", word("100MiB"));
    }
    if dice.percent(20) {
        config.set("faulty_after_failures", word(dice.between(1, 3)));
    }
    if dice.percent(20) {
        config.set("heartbeat_interval", word("2s"));
    }
    config
}

pub(super) fn nodes(dice: &mut Dice) -> Vec<Tree> {
    let count = dice.between(2, 8);
    (1..=count).map(|number| node(&format!("n-{number}"), dice)).collect()
}

pub(super) fn node(name: &str, dice: &mut Dice) -> Tree {
    let memory = dice.pick(&["1GiB", "2GiB", "4GiB"]);
    let mut node = map([("name", word(name)), ("cpu", word(dice.between(1, 4))), ("memory", word(memory))]);
    if dice.percent(80) {
        node.set("labels", map([("zone", word(dice.pick(ZONES)))]));
    }
    if dice.percent(15) {
        node.set("pool", word("batch"));
    }
    if dice.percent(15) {
        node.set("disk", word("24GiB"));
    }
    if dice.percent(25) {
        node.set("addresses", word(dice.between(2, 8)));
    }
    if dice.percent(25) {
        node.set("devices", map([("gpu", word(dice.between(1, 3)))]));
    }
    if dice.percent(10) {
        node.set("arch", word("arm64"));
    }
    if dice.percent(10) {
        node.set("reserved", map([("memory", word("256MiB"))]));
    }
    node
}

/// How unreliable everything is: half of the time not at all, as what is wrong without that is easier to read.
pub(super) fn faults(dice: &mut Dice) -> Option<Tree> {
    if dice.percent(50) {
        return None;
    }
    let mut faults = map([("seed", word(dice.between(1, 1_000_000)))]);
    let chances: [(&str, &[&str]); 6] = [
        ("loss", &["0.01", "0.05", "0.2"]),
        ("duplicate", &["0.05", "0.3"]),
        ("delay", &["50ms", "800ms", "3s"]),
        ("agent_restart", &["0.005", "0.03"]),
        ("leader_change", &["0.002", "0.02", "0.2"]),
        ("clock_step", &["300ms", "4s"]),
    ];
    for (key, values) in chances {
        if dice.percent(60) {
            faults.set(key, word(dice.pick(values)));
        }
    }
    Some(faults)
}

/// How images behave. What crashes does so sooner than any restart window drawn, so that it is given up in the end.
pub(super) fn images() -> Tree {
    let some = || words(["n-1", "n-2"]);
    map([
        ("slow:1", map([("start", word("20s"))])),
        ("heavy:1", map([("pull", word("15s"))])),
        ("gone:1", map([("pull", word("fail"))])),
        ("gone:2", map([("pull", word("fail")), ("on", some())])),
        ("sick:1", map([("healthy", word("false"))])),
        ("sick:2", map([("healthy", word("false")), ("on", some())])),
        ("stuck:1", map([("start", word("90s"))])),
        ("crash:1", map([("exits", word(1)), ("after", word("1s"))])),
        ("crash:2", map([("exits", word(137)), ("after", word("0s")), ("on", some())])),
        ("ends:1", map([("exits", word(0)), ("after", word("1s"))])),
        ("job:1", map([("exits", word(0)), ("after", word("3s"))])),
        ("job:2", map([("exits", word(0)), ("after", word("45s"))])),
        ("job:3", map([("exits", word(1)), ("after", word("2s"))])),
        ("job:4", map([("exits", word(1)), ("after", word("1s")), ("on", some())])),
    ])
}

/// Images of a service; good ones come up more often.
pub(super) const OF_SERVICES: &[&str] = &[
    "good:1", "good:1", "good:2", "good:2", "good:3", "good:3", "good:4", "slow:1", "heavy:1", "gone:1", "gone:2",
    "sick:1", "sick:2", "stuck:1", "crash:1", "crash:2", "ends:1",
];

/// Images of a job.
pub(super) const OF_JOBS: &[&str] =
    &["job:1", "job:1", "job:2", "job:2", "job:3", "job:4", "gone:2", "crash:1", "sick:2", "good:1"];
