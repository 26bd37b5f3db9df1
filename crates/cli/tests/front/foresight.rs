//! What `plan` and `whatif` say is what then happens: random manifests, counts, drains and quotas on a real daemon of four
//! nodes. Manifests have services of every kind and strategy, canaries, constraints, and wishes that no node meets.

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

use crate::{machine::Machine, terminal::PATIENCE};

/// Changes tried, one after the other, each from the state the one before left.
const CHANGES: u64 = 36;

/// Changes that have everything in them.
const SEED: u64 = 1_234_567;

/// A stream of numbers from a seed; enough to be unlike, and the same every time.
struct Dice(u64);

impl Dice {
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

/// Where each replica is, and which decision that was.
type Seats = BTreeMap<String, (String, u64)>;

fn seats(status: &Value) -> Seats {
    let rows = status["replicas"].as_array().unwrap().iter().filter(|row| row["node"].is_string());
    let mut seats = Seats::new();
    for row in rows {
        let (id, node) = (row["id"].as_str().unwrap(), row["node"].as_str().unwrap());
        let generation = row["generation"].as_u64().unwrap();
        let known = seats.entry(id.to_owned()).or_insert((node.to_owned(), generation));
        if known.1 < generation {
            *known = (node.to_owned(), generation);
        }
    }
    seats
}

/// The seats after the moves of an answer.
fn after<'a>(mut seats: Seats, moves: impl Iterator<Item = &'a Value>) -> Seats {
    for step in moves {
        let id = step["replica"].as_str().unwrap().to_owned();
        match step["to"].as_str() {
            Some(node) => drop(seats.insert(id, (node.to_owned(), step["generation"].as_u64().unwrap()))),
            None => drop(seats.remove(&id)),
        }
    }
    seats
}

/// How many of which service have no node, for which reason.
fn waiting<'a>(pending: impl Iterator<Item = &'a Value>) -> BTreeSet<String> {
    let row = |it: &Value| format!("{} {} {} {}", it["deployment"], it["service"], it["count"], it["reason"]);
    pending.map(row).collect()
}

/// The argument that work which ends has, and nothing else.
const WORK: &str = "1.5";

/// Whether no work that ends is being done, and what has ended is known to have: nobody can foresee when it does.
fn is_done(machine: &Machine, replicas: &[Value]) -> bool {
    let processes = machine.processes();
    let works = |pid: Pid| {
        let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == WORK.as_bytes())
    };
    let running = replicas.iter().filter(|row| row["state"] == "running").count();
    running == processes.len() && !processes.iter().any(|(_, pid)| works(*pid))
}

/// The state once nothing happens any more: nothing is under way, nothing is foreseen, and it looks the same twice.
fn at_rest(machine: &Machine) -> (Seats, BTreeSet<String>) {
    let until = Instant::now() + PATIENCE;
    let mut last: Option<Value> = None;
    loop {
        let status = machine.json(&["status"]);
        let replicas = status["replicas"].as_array().unwrap();
        let at_rest = |it: &Value| matches!(it["state"].as_str(), Some("running" | "completed" | "pending"));
        let still = replicas.iter().all(at_rest) && is_done(machine, replicas);
        let now = machine.json(&["whatif"]);
        let still = still && now["moves"].as_array().unwrap().is_empty();
        if still && last.as_ref() == Some(&status) {
            return (seats(&status), waiting(now["pending"].as_array().unwrap().iter()));
        }
        last = still.then_some(status);
        assert!(Instant::now() < until, "it never comes to rest: {}", machine.json(&["status"]));
        thread::sleep(Duration::from_millis(200));
    }
}

/// What a manifest may ask for.
struct Wishes {
    memory: &'static [&'static str],
    zones: &'static [&'static str],
}

/// Things no node has, too: what is new then waits.
const ANYTHING: Wishes = Wishes { memory: &["16m", "64m", "900g"], zones: &["east", "west", "north"] };
/// Things that can be had: a change that cannot is given up after minutes, and nobody wants to wait for that here.
const POSSIBLE: Wishes = Wishes { memory: &["16m", "64m", "256m"], zones: &["east", "west"] };

/// A manifest of one to three services.
fn manifest(dice: &mut Dice, name: &str, wishes: &Wishes) -> String {
    let mut text = format!("name: {name}\nservices:\n");
    for service in ["api", "job", "web"].iter().take(1 + usize::try_from(dice.below(3)).unwrap()) {
        let memory = dice.one_of(wishes.memory);
        let usual = if *service == "job" { "replicated-job" } else { "replicated" };
        let kind = dice.one_of(&[usual, usual, usual, "global", "replicated-job", "global-job"]);
        // Nobody can foresee how long work takes; this takes longer than it takes to stop what it has to wait for.
        let command = if kind.ends_with("job") { format!("sleep, \"{WORK}\"") } else { "sleep, \"600\"".to_owned() };
        let count = match kind {
            "replicated" | "replicated-job" => format!("replicas: {}\n      ", dice.below(5)),
            _ => String::new(),
        };
        let canary = if kind == "replicated" && dice.below(2) == 0 { ", canary: 1" } else { "" };
        let strategy = match kind {
            "replicated" | "replicated-job" => format!(", placement: {}", dice.one_of(&["spread", "pack", "binpack"])),
            _ => String::new(),
        };
        let (order, parallel) = (dice.one_of(&["start-first", "stop-first"]), 1 + dice.below(3));
        let _ = write!(
            text,
            "  {service}:\n    image: none\n    command: [{command}]\n    stop_grace_period: 1s\n    \
             environment: {{ VERSION: \"{}\" }}\n    x-longshore: {{ driver: exec{strategy}{canary} }}\n    \
             deploy:\n      mode: {kind}\n      {count}resources: {{ limits: {{ memory: {memory} }} }}\n      \
             update_config: {{ parallelism: {parallel}, order: {order}, monitor: 50ms }}\n",
            dice.below(3),
        );
        if dice.below(3) == 0 {
            let _ = writeln!(
                text,
                "      placement: {{ constraints: [ \"node.labels.zone == {}\" ] }}",
                dice.one_of(wishes.zones)
            );
        }
    }
    text
}

/// What was tried, and what came of it.
#[derive(Default)]
struct Tally {
    kinds: BTreeSet<&'static str>,
    moves: usize,
    waiting: usize,
    refused: usize,
    held: usize,
}

/// An answer about the future, and the seats it leads to.
struct Foreseen {
    seats: Seats,
    waiting: Option<BTreeSet<String>>,
    said: Value,
}

/// Asks what a drain, another count or a manifest would do, and has it done. Nothing where both were refused.
fn change(machine: &Machine, dice: &mut Dice, turn: u64, before: Seats, tally: &mut Tally) -> Option<Foreseen> {
    let node = dice.one_of(&NODES);
    match dice.below(5) {
        0 if turn > 2 => {
            tally.kinds.insert("drain");
            let said = machine.json(&["whatif", "--drain", node]);
            machine.json(&["node", "drain", node]);
            Some(Foreseen { seats: after(before, said["moves"].as_array().unwrap().iter()), waiting: None, said })
        }
        1 if turn > 2 => {
            tally.kinds.insert("scale");
            scaled(machine, dice, before)
        }
        _ => {
            tally.kinds.insert("apply");
            applied(machine, dice, before, tally)
        }
    }
}

fn scaled(machine: &Machine, dice: &mut Dice, before: Seats) -> Option<Foreseen> {
    let status = machine.json(&["status"]);
    let deployments = status["deployments"].as_array().unwrap().iter();
    let mut services =
        deployments.flat_map(|it| it["services"].as_array().unwrap().iter().map(|service| (&it["name"], service)));
    let (name, service) = services.find(|(_, service)| service["strategy"] != "global")?;
    let path = format!("{}/{}", name.as_str().unwrap(), service["name"].as_str().unwrap());
    let count = dice.below(6);
    let said = machine.json(&["whatif", "--scale", &format!("{path}={count}")]);
    let service = format!("{}={count}", service["name"].as_str().unwrap());
    machine.json(&["scale", name.as_str().unwrap(), &service]);
    Some(Foreseen { seats: after(before, said["moves"].as_array().unwrap().iter()), waiting: None, said })
}

fn applied(machine: &Machine, dice: &mut Dice, before: Seats, tally: &mut Tally) -> Option<Foreseen> {
    let name = dice.one_of(&["left", "right"]);
    let known = machine.json(&["status"])["deployments"].to_string().contains(&format!("\"{name}\""));
    let wishes = if known { &POSSIBLE } else { &ANYTHING };
    machine.write("random.yaml", &manifest(dice, name, wishes));
    let ceiling = dice.below(12).to_string();
    if dice.below(3) == 0 {
        machine.json(&["quota", "set", "default", "--replicas", &ceiling]);
    }
    let planned = machine.ask(&["plan", "-f", "random.yaml", "-o", "json"]);
    let done = machine.ask(&["apply", "-f", "random.yaml"]);
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(planned.status.code(), done.status.code(), "plan: {}\napply: {}", said(&planned), said(&done));
    if !done.status.success() {
        assert_eq!(said(&planned), said(&done));
        assert!(said(&done).contains("(quota_exceeded)"), "{}", said(&done));
        tally.refused += 1;
        return None;
    }
    let answer: Value = serde_json::from_slice(&planned.stdout).unwrap();
    let services = answer["services"].as_array().unwrap();
    let moves = services.iter().flat_map(|it| it["replicas"].as_array().unwrap());
    let seats = after(before, moves.chain(answer["elsewhere"].as_array().unwrap()));
    let waiting = waiting(services.iter().flat_map(|it| it["pending"].as_array().unwrap()));
    tally.waiting += waiting.len();
    Some(Foreseen { seats, waiting: Some(waiting), said: answer })
}

#[test]
fn what_is_foreseen_is_what_happens() {
    let mut machine = Machine::new();
    machine.start_daemon(4);
    for (node, zone) in [("n", "east"), ("n-2", "east"), ("n-3", "west")] {
        machine.json(&["node", "label", node, &format!("zone={zone}")]);
    }
    // Another seed tries other changes; one that fails is worth keeping.
    let seed = std::env::var("LONGSHORE_SEED").map_or(SEED, |seed| seed.parse().unwrap());
    let (mut dice, mut tally) = (Dice(seed), Tally::default());
    for turn in 0..CHANGES {
        // Now and then everything begins anew.
        if turn % 8 == 7 {
            let _ = machine.ask(&["rm", "left", "--wait"]);
        }
        let (before, _) = at_rest(&machine);
        let Some(foreseen) = change(&machine, &mut dice, turn, before.clone(), &mut tally) else {
            assert_eq!(at_rest(&machine).0, before, "turn {turn}: what was refused changed something");
            machine.json(&["quota", "rm", "default"]);
            continue;
        };
        let said = foreseen.said;
        let (real, waits) = at_rest(&machine);
        assert_eq!(foreseen.seats, real, "turn {turn}: {said:#}");
        if let Some(waiting) = foreseen.waiting {
            let ours = |it: &String| it.starts_with(&said["deployment"].to_string());
            assert_eq!(waiting, waits.into_iter().filter(ours).collect(), "turn {turn}: {said:#}");
        }
        tally.moves += said.to_string().matches("\"replica\":").count();
        go_on(&machine, &said, turn, &mut tally);
        machine.json(&["quota", "rm", "default"]);
        for node in NODES {
            machine.json(&["node", "activate", node]);
        }
    }
    assert_eq!(tally.kinds.len(), 3, "{:?}", tally.kinds);
    let Tally { moves, waiting, refused, held, .. } = tally;
    let enough = moves > 60 && waiting > 3 && refused > 1 && held > 1;
    assert!(enough || seed != SEED, "only {moves} moves, {waiting} waiting, {refused} refused, {held} held");
    for deployment in machine.json(&["status"])["deployments"].as_array().unwrap() {
        machine.json(&["rm", deployment["name"].as_str().unwrap(), "--wait"]);
    }
    assert_eq!(machine.processes(), []);
}

/// A change that was foreseen to wait for a word waits for it, and is told to go on.
fn go_on(machine: &Machine, said: &Value, turn: u64, tally: &mut Tally) {
    let status = machine.json(&["status"]);
    let deployments = status["deployments"].as_array().unwrap();
    let waits: Vec<&Value> = deployments.iter().filter(|it| it["rollout"]["state"] == "awaiting_promotion").collect();
    assert_eq!(said["rest"] == "held", !waits.is_empty(), "turn {turn}: {said:#} {waits:#?}");
    for deployment in waits {
        tally.held += 1;
        machine.json(&["promote", deployment["name"].as_str().unwrap()]);
    }
}
