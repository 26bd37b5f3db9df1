//! What `plan` and `whatif` say is what then happens: random manifests, counts and drains on a real daemon of four nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{machine::Machine, terminal::PATIENCE};

/// Changes tried, one after the other, each from the state the one before left.
const CHANGES: u64 = 24;

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

/// The state once nothing happens any more: nothing is under way, nothing is foreseen, and it looks the same twice.
fn at_rest(machine: &Machine) -> (Seats, BTreeSet<String>) {
    let until = Instant::now() + PATIENCE;
    let mut last: Option<Value> = None;
    loop {
        let status = machine.json(&["status"]);
        let replicas = status["replicas"].as_array().unwrap();
        let still = replicas.iter().all(|it| it["state"] == "running" || it["node"].is_null());
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
        let (replicas, memory) = (dice.below(5), dice.one_of(wishes.memory));
        let strategy = dice.one_of(&["spread", "pack", "binpack"]);
        let (order, parallel) = (dice.one_of(&["start-first", "stop-first"]), 1 + dice.below(3));
        let _ = write!(
            text,
            "  {service}:\n    image: none\n    command: [sleep, \"600\"]\n    stop_grace_period: 1s\n    \
             environment: {{ VERSION: \"{}\" }}\n    x-longshore: {{ driver: exec, placement: {strategy} }}\n    \
             deploy:\n      replicas: {replicas}\n      resources: {{ limits: {{ memory: {memory} }} }}\n      \
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

#[test]
fn what_is_foreseen_is_what_happens() {
    let mut machine = Machine::new();
    machine.start_daemon(4);
    for (node, zone) in [("n", "east"), ("n-2", "east"), ("n-3", "west")] {
        machine.json(&["node", "label", node, &format!("zone={zone}")]);
    }
    let mut dice = Dice(0x5eed_cafe);
    let (mut kinds, mut foreseen_moves) = (BTreeSet::new(), 0);
    for turn in 0..CHANGES {
        // Now and then everything begins anew.
        if turn % 8 == 7 {
            let _ = machine.ask(&["rm", "left", "--wait"]);
        }
        let (before, _) = at_rest(&machine);
        let node = dice.one_of(&["n", "n-2", "n-3", "n-4"]);
        let (foreseen, said) = match dice.below(4) {
            0 if turn > 2 => {
                kinds.insert("drain");
                let answer = machine.json(&["whatif", "--drain", node]);
                machine.json(&["node", "drain", node]);
                (after(before, answer["moves"].as_array().unwrap().iter()), answer)
            }
            1 if turn > 2 => {
                kinds.insert("scale");
                let status = machine.json(&["status"]);
                let deployment = &status["deployments"][0];
                let (name, service) = (deployment["name"].as_str().unwrap(), &deployment["services"][0]["name"]);
                let (service, count) = (service.as_str().unwrap(), dice.below(6));
                let answer = machine.json(&["whatif", "--scale", &format!("{name}/{service}={count}")]);
                machine.json(&["scale", name, &format!("{service}={count}")]);
                (after(before, answer["moves"].as_array().unwrap().iter()), answer)
            }
            _ => {
                kinds.insert("apply");
                let name = dice.one_of(&["left", "right"]);
                let known = machine.json(&["status"])["deployments"].to_string().contains(&format!("\"{name}\""));
                let wishes = if known { &POSSIBLE } else { &ANYTHING };
                machine.write("random.yaml", &manifest(&mut dice, name, wishes));
                let answer = machine.json(&["plan", "-f", "random.yaml"]);
                machine.json(&["apply", "-f", "random.yaml"]);
                let services = answer["services"].as_array().unwrap().iter();
                let moves = services.flat_map(|it| it["replicas"].as_array().unwrap());
                let foreseen = after(before, moves.chain(answer["elsewhere"].as_array().unwrap()));
                let pending =
                    answer["services"].as_array().unwrap().iter().flat_map(|it| it["pending"].as_array().unwrap());
                let ours = waiting(pending);
                let (_, real) = at_rest(&machine);
                let real: BTreeSet<String> =
                    real.into_iter().filter(|it| it.contains(&format!("\"{name}\""))).collect();
                assert_eq!(ours, real, "turn {turn}: {answer:#}");
                (foreseen, answer)
            }
        };
        assert_eq!(said["rest"], "reached", "turn {turn}: {said:#}");
        let (real, _) = at_rest(&machine);
        assert_eq!(foreseen, real, "turn {turn}: {said:#}");
        foreseen_moves += said.to_string().matches("\"replica\":").count();
        machine.json(&["node", "activate", node]);
    }
    assert_eq!(kinds.len(), 3, "{kinds:?}");
    assert!(foreseen_moves > 30, "only {foreseen_moves} moves were foreseen");
    for deployment in machine.json(&["status"])["deployments"].as_array().unwrap() {
        machine.json(&["rm", deployment["name"].as_str().unwrap(), "--wait"]);
    }
    assert_eq!(machine.processes(), []);
}
