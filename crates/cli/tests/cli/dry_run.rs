//! `plan` and `whatif` predict what then happens: random manifests, counts, drains and quotas on a real daemon with
//! four nodes. Manifests have services of every kind and strategy, canaries, constraints, and requests that no node
//! meets.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    process::Output,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Pid;
use serde_json::Value;

use crate::{machine::Machine, terminal::TIMEOUT};

/// Number of consecutive changes.
const CHANGES: u64 = 36;

/// A seed whose changes cover every case.
const SEED: u64 = 1_234_567;

/// A xorshift generator: the same numbers for the same seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn one_of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[usize::try_from(self.below(words.len() as u64)).unwrap()]
    }
}

/// The nodes of the machine.
const NODES: [&str; 4] = ["n", "n-2", "n-3", "n-4"];

/// Node and generation of each replica.
type Placements = BTreeMap<String, (String, u64)>;

fn placements(status: &Value) -> Placements {
    let rows = status["replicas"].as_array().unwrap().iter().filter(|row| row["node"].is_string());
    let mut placements = Placements::new();
    for row in rows {
        let (id, node) = (row["id"].as_str().unwrap(), row["node"].as_str().unwrap());
        let generation = row["generation"].as_u64().unwrap();
        let known = placements.entry(id.to_owned()).or_insert((node.to_owned(), generation));
        if known.1 < generation {
            *known = (node.to_owned(), generation);
        }
    }
    placements
}

/// The placements after the moves of an answer.
fn after<'a>(mut placements: Placements, moves: impl Iterator<Item = &'a Value>) -> Placements {
    for step in moves {
        let id = step["replica"].as_str().unwrap().to_owned();
        match step["to"].as_str() {
            Some(node) => drop(placements.insert(id, (node.to_owned(), step["generation"].as_u64().unwrap()))),
            None => drop(placements.remove(&id)),
        }
    }
    placements
}

/// How many of which service have no node, for which reason.
fn waiting<'a>(pending: impl Iterator<Item = &'a Value>) -> BTreeSet<String> {
    let row = |it: &Value| format!("{} {} {} {}", it["deployment"], it["service"], it["count"], it["reason"]);
    pending.map(row).collect()
}

/// The `sleep` time of jobs, which no other process uses.
const WORK: &str = "1.5";

/// Whether no job runs and every ended job is reported: no dry run can predict when a job ends.
fn is_done(machine: &Machine, replicas: &[Value]) -> bool {
    let processes = machine.processes();
    let works = |pid: Pid| {
        let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == WORK.as_bytes())
    };
    let running = replicas.iter().filter(|row| row["state"] == "running").count();
    running == processes.len() && !processes.iter().any(|(_, pid)| works(*pid))
}

/// The state once the cluster has converged: no change in progress, none predicted, and two equal polls.
fn converged(machine: &Machine) -> (Placements, BTreeSet<String>) {
    let until = Instant::now() + TIMEOUT;
    let mut last: Option<Value> = None;
    loop {
        let status = machine.json(&["status"]);
        let replicas = status["replicas"].as_array().unwrap();
        let at_rest = |it: &Value| matches!(it["state"].as_str(), Some("running" | "completed" | "pending"));
        let still = replicas.iter().all(at_rest) && is_done(machine, replicas);
        let now = machine.json(&["whatif"]);
        let still = still && now["moves"].as_array().unwrap().is_empty();
        if still && last.as_ref() == Some(&status) {
            return (placements(&status), waiting(now["pending"].as_array().unwrap().iter()));
        }
        last = still.then_some(status);
        assert!(Instant::now() < until, "it never converges: {}", machine.json(&["status"]));
        thread::sleep(Duration::from_millis(200));
    }
}

/// What a manifest may ask for.
struct Requests {
    memory: &'static [&'static str],
    zones: &'static [&'static str],
}

/// Also values that no node satisfies: new replicas then wait.
const ANYTHING: Requests = Requests { memory: &["16m", "64m", "900g"], zones: &["east", "west", "north"] };
/// Only values that nodes satisfy: a rollout that cannot be placed fails after minutes, too long for this test.
const POSSIBLE: Requests = Requests { memory: &["16m", "64m", "256m"], zones: &["east", "west"] };

/// A manifest of one to three services.
fn manifest(rng: &mut Rng, name: &str, requests: &Requests) -> String {
    let mut text = format!("name: {name}\nservices:\n");
    for service in ["api", "job", "web"].iter().take(1 + usize::try_from(rng.below(3)).unwrap()) {
        let memory = rng.one_of(requests.memory);
        let usual = if *service == "job" { "replicated-job" } else { "replicated" };
        let kind = rng.one_of(&[usual, usual, usual, "global", "replicated-job", "global-job"]);
        // A job must run longer than it takes to stop the replicas it waits for.
        let command = if kind.ends_with("job") { format!("sleep, \"{WORK}\"") } else { "sleep, \"600\"".to_owned() };
        let count = match kind {
            "replicated" | "replicated-job" => format!("replicas: {}\n      ", rng.below(5)),
            _ => String::new(),
        };
        let canary = if kind == "replicated" && rng.below(2) == 0 { ", canary: 1" } else { "" };
        let strategy = match kind {
            "replicated" | "replicated-job" => format!(", placement: {}", rng.one_of(&["spread", "pack", "binpack"])),
            _ => String::new(),
        };
        let (order, parallel) = (rng.one_of(&["start-first", "stop-first"]), 1 + rng.below(3));
        let _ = write!(
            text,
            "  {service}:\n    image: none\n    command: [{command}]\n    stop_grace_period: 1s\n    \
             environment: {{ VERSION: \"{}\" }}\n    x-longshore: {{ driver: exec{strategy}{canary} }}\n    \
             deploy:\n      mode: {kind}\n      {count}resources: {{ limits: {{ memory: {memory} }} }}\n      \
             update_config: {{ parallelism: {parallel}, order: {order}, monitor: 50ms }}\n",
            rng.below(3),
        );
        if rng.below(3) == 0 {
            let _ = writeln!(
                text,
                "      placement: {{ constraints: [ \"node.labels.zone == {}\" ] }}",
                rng.one_of(requests.zones)
            );
        }
    }
    text
}

/// Which cases the run has covered.
#[derive(Default)]
struct Coverage {
    kinds: BTreeSet<&'static str>,
    moves: usize,
    waiting: usize,
    refused: usize,
    held: usize,
}

/// A prediction, and the placements it leads to.
struct Prediction {
    placements: Placements,
    waiting: Option<BTreeSet<String>>,
    said: Value,
}

/// Predicts a drain, a scale or a manifest and carries it out. Returns `None` if both were refused.
fn change(
    machine: &Machine,
    rng: &mut Rng,
    turn: u64,
    before: Placements,
    coverage: &mut Coverage,
) -> Option<Prediction> {
    let node = rng.one_of(&NODES);
    match rng.below(5) {
        0 if turn > 2 => {
            coverage.kinds.insert("drain");
            let said = machine.json(&["whatif", "--drain", node]);
            machine.json(&["node", "drain", node]);
            Some(Prediction {
                placements: after(before, said["moves"].as_array().unwrap().iter()),
                waiting: None,
                said,
            })
        }
        1 if turn > 2 => {
            coverage.kinds.insert("scale");
            scaled(machine, rng, before)
        }
        _ => {
            coverage.kinds.insert("apply");
            applied(machine, rng, before, coverage)
        }
    }
}

fn scaled(machine: &Machine, rng: &mut Rng, before: Placements) -> Option<Prediction> {
    let status = machine.json(&["status"]);
    let deployments = status["deployments"].as_array().unwrap().iter();
    let mut services =
        deployments.flat_map(|it| it["services"].as_array().unwrap().iter().map(|service| (&it["name"], service)));
    let (name, service) = services.find(|(_, service)| service["strategy"] != "global")?;
    let path = format!("{}/{}", name.as_str().unwrap(), service["name"].as_str().unwrap());
    let count = rng.below(6);
    let said = machine.json(&["whatif", "--scale", &format!("{path}={count}")]);
    let service = format!("{}={count}", service["name"].as_str().unwrap());
    machine.json(&["scale", name.as_str().unwrap(), &service]);
    Some(Prediction { placements: after(before, said["moves"].as_array().unwrap().iter()), waiting: None, said })
}

fn applied(machine: &Machine, rng: &mut Rng, before: Placements, coverage: &mut Coverage) -> Option<Prediction> {
    let name = rng.one_of(&["left", "right"]);
    let known = machine.json(&["status"])["deployments"].to_string().contains(&format!("\"{name}\""));
    let requests = if known { &POSSIBLE } else { &ANYTHING };
    machine.write("random.yaml", &manifest(rng, name, requests));
    let ceiling = rng.below(12).to_string();
    if rng.below(3) == 0 {
        machine.json(&["quota", "set", "default", "--replicas", &ceiling]);
    }
    let planned = machine.ask(&["plan", "-f", "random.yaml", "-o", "json"]);
    let done = machine.ask(&["apply", "-f", "random.yaml"]);
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(planned.status.code(), done.status.code(), "plan: {}\napply: {}", said(&planned), said(&done));
    if !done.status.success() {
        assert_eq!(said(&planned), said(&done));
        assert!(said(&done).contains("(quota_exceeded)"), "{}", said(&done));
        coverage.refused += 1;
        return None;
    }
    let answer: Value = serde_json::from_slice(&planned.stdout).unwrap();
    let services = answer["services"].as_array().unwrap();
    let moves = services.iter().flat_map(|it| it["replicas"].as_array().unwrap());
    let placements = after(before, moves.chain(answer["elsewhere"].as_array().unwrap()));
    let waiting = waiting(services.iter().flat_map(|it| it["pending"].as_array().unwrap()));
    coverage.waiting += waiting.len();
    Some(Prediction { placements, waiting: Some(waiting), said: answer })
}

#[test]
fn predictions_of_plan_and_whatif_come_true() {
    let mut machine = Machine::new();
    machine.start_daemon(4);
    for (node, zone) in [("n", "east"), ("n-2", "east"), ("n-3", "west")] {
        machine.json(&["node", "label", node, &format!("zone={zone}")]);
    }
    // `LONGSHORE_SEED` tries other changes.
    let seed = std::env::var("LONGSHORE_SEED").map_or(SEED, |seed| seed.parse().unwrap());
    let (mut rng, mut coverage) = (Rng(seed), Coverage::default());
    for turn in 0..CHANGES {
        // Every eighth turn begins with a new deployment.
        if turn % 8 == 7 {
            let _ = machine.ask(&["rm", "left", "--wait"]);
        }
        let (before, _) = converged(&machine);
        let Some(predicted) = change(&machine, &mut rng, turn, before.clone(), &mut coverage) else {
            assert_eq!(converged(&machine).0, before, "turn {turn}: what was refused changed something");
            machine.json(&["quota", "rm", "default"]);
            continue;
        };
        let said = predicted.said;
        let (real, waits) = converged(&machine);
        assert_eq!(predicted.placements, real, "turn {turn}: {said:#}");
        if let Some(waiting) = predicted.waiting {
            let ours = |it: &String| it.starts_with(&said["deployment"].to_string());
            assert_eq!(waiting, waits.into_iter().filter(ours).collect(), "turn {turn}: {said:#}");
        }
        coverage.moves += said.to_string().matches("\"replica\":").count();
        promote_waiting(&machine, &said, turn, &mut coverage);
        machine.json(&["quota", "rm", "default"]);
        for node in NODES {
            machine.json(&["node", "activate", node]);
        }
    }
    assert_eq!(coverage.kinds.len(), 3, "{:?}", coverage.kinds);
    let Coverage { moves, waiting, refused, held, .. } = coverage;
    let enough = moves > 60 && waiting > 3 && refused > 1 && held > 1;
    assert!(enough || seed != SEED, "only {moves} moves, {waiting} waiting, {refused} refused, {held} held");
    for deployment in machine.json(&["status"])["deployments"].as_array().unwrap() {
        machine.json(&["rm", deployment["name"].as_str().unwrap(), "--wait"]);
    }
    assert_eq!(machine.processes(), []);
}

/// A rollout that was predicted to wait for promotion waits for it, and is promoted.
fn promote_waiting(machine: &Machine, said: &Value, turn: u64, coverage: &mut Coverage) {
    let status = machine.json(&["status"]);
    let deployments = status["deployments"].as_array().unwrap();
    let waits: Vec<&Value> = deployments.iter().filter(|it| it["rollout"]["state"] == "awaiting_promotion").collect();
    assert_eq!(said["rest"] == "waiting", !waits.is_empty(), "turn {turn}: {said:#} {waits:#?}");
    for deployment in waits {
        coverage.held += 1;
        machine.json(&["promote", deployment["name"].as_str().unwrap()]);
    }
}
