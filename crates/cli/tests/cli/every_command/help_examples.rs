//! The examples of help texts, run in a shell as they are printed.

use std::{
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{command_tree::CommandTree, shop};
use crate::machine::Machine;

/// Examples that fail on the test cluster, with the exit code and the reason.
const EXPECTED_FAILURES: &[(&str, i32, &str)] = &[
    ("longshore cluster join 10.0.0.1:7474 --advertise 10.0.0.2:7474 --token-file token", 1, "there is no token"),
    ("longshore cluster recover", 1, "the data directory is empty"),
    ("longshore exec -it shop-web-0 sh", 1, "there is no terminal"),
    ("longshore port front", 1, "there is no such service"),
    ("longshore port front 80", 1, "there is no such service"),
    ("longshore port shop/front 80/tcp", 1, "there is no such service"),
    ("longshore node lost n9", 1, "there is no such node"),
    ("longshore node rm n1 --force", 1, "the last server cannot be removed"),
    ("longshore node rm n1 --wait", 1, "the last server cannot be removed"),
    ("longshore pause shop", 1, "no rollout is in progress"),
    ("longshore policy test -n team -f compose.yaml", 2, "the namespace may not run plain processes as root"),
    ("longshore promote shop --wait", 1, "no rollout is in progress"),
    ("longshore resume shop --wait", 1, "no rollout is in progress"),
    ("longshore rollback shop", 1, "there is no earlier revision"),
    ("longshore rollback shop --to 3 --wait", 1, "there is no revision 3"),
    ("longshore token rm 1f6d0c2b9a4e7385", 1, "there is no such token"),
    ("longshore volume inspect shop_data", 1, "there is no such volume"),
    ("longshore volume rm shop_data --yes", 1, "there is no such volume"),
];
/// Examples that run until they are killed.
const ENDLESS: &[&str] = &[
    "longshore audit --type node_intent_set -f",
    "longshore events",
    "longshore events --deployment shop -o json",
    "longshore logs shop/web -f --tail 20",
    "longshore server --node n1",
    "longshore server --node n2 --pool batch --device gpu=4",
    "longshore status shop -w",
];

#[test]
fn every_example_in_a_help_text_works() {
    let machine = shop();
    let tree = CommandTree::of(&machine);
    machine.write("password.txt", "secret");
    machine.write("token.txt", "secret");
    let first = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/first.yaml");
    machine.write("scenario.yaml", &fs::read_to_string(first).unwrap());
    let (mut tried, mut without, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    for leaf in tree.leaves() {
        let examples = tree.examples(leaf);
        if examples.is_empty() {
            without.push(leaf);
        }
        for example in examples {
            restore_shop(&machine);
            let ended = ends_within(&machine, &with_first_replica(&machine, example), Duration::from_secs(20));
            let expected = EXPECTED_FAILURES.iter().find(|(line, ..)| *line == example).map_or(0, |(_, code, _)| *code);
            let expected = if ENDLESS.contains(&example) { None } else { Some(expected) };
            if ended.0 != expected {
                wrong.push(format!("`{example}` ends with {:?}, not {expected:?}, and says\n{}", ended.0, ended.1));
            }
            tried.push(example);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(without, Vec::<&String>::new(), "commands without an example");
    let listed = EXPECTED_FAILURES.iter().map(|(line, ..)| line).chain(ENDLESS);
    let stale: Vec<&&str> = listed.filter(|line| !tried.contains(line)).collect();
    assert_eq!(stale, Vec::<&&str>::new(), "listed examples that are in no help text");
    restore_shop(&machine);
    let _ = machine.ask(&["rm", "shop", "--wait"]);
}

/// The example with the replica that is the first now: a shop that was removed and applied again has new ids.
fn with_first_replica(machine: &Machine, example: &str) -> String {
    if example.starts_with("longshore sim") || !example.contains("shop-web-0") {
        return example.to_owned();
    }
    let status = machine.json(&["status", "shop"]);
    let ids = status["replicas"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap());
    example.replace("shop-web-0", ids.min_by_key(|id| (id.len(), *id)).unwrap())
}

/// Restores the deployment on two nodes, whatever the previous example did.
fn restore_shop(machine: &Machine) {
    let _ = fs::remove_dir_all(machine.path("other"));
    for node in machine.json(&["node", "ls"]).as_array().unwrap() {
        let name = node["name"].as_str().unwrap();
        if node["intent"] != "active" {
            let _ = machine.ask(&["node", "activate", name]);
        }
    }
    let _ = machine.ask(&["node", "heal", "n1"]);
    // A deployment that is being removed must be gone first.
    machine.wait_for("a shop", || machine.ask(&["apply", "-f", "compose.yaml", "--wait"]).status.success());
}

/// The exit code of a shell command and its output; no exit code if it was killed after the limit.
fn ends_within(machine: &Machine, line: &str, limit: Duration) -> (Option<i32>, String) {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_longshore"));
    let found = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let said = machine.path("said");
    let out = fs::File::create(&said).unwrap();
    let mut command = Command::new("sh");
    machine.prepare(&mut command);
    let line = if line.contains('|') { line.to_owned() } else { format!("exec {line}") };
    command.args(["-c", &line]).env("PATH", found);
    command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out);
    let mut child = command.spawn().unwrap();
    let until = Instant::now() + if ENDLESS.contains(&line.trim_start_matches("exec ")) { limit / 10 } else { limit };
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if Instant::now() > until {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        thread::sleep(Duration::from_millis(20));
    };
    (code, fs::read_to_string(said).unwrap())
}
