//! The examples in help texts do what they say, typed into a shell as they are printed.

use std::{
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{shop, tree::Tree};
use crate::machine::Machine;

/// Examples that do not succeed here, and why that is right.
const OTHERWISE: &[(&str, i32, &str)] = &[
    ("longshore cluster join 10.0.0.1:7474 --advertise 10.0.0.2:7474 --token-file token", 1, "there is no token"),
    ("longshore cluster recover", 1, "there is nothing to go on with in an empty folder"),
    ("longshore exec -it shop-web-0 sh", 1, "there is no terminal"),
    ("longshore node lost n9", 1, "there is no such node"),
    ("longshore node rm n1 --force", 1, "the last server stays"),
    ("longshore node rm n1 --wait", 1, "the last server stays"),
    ("longshore pause shop", 1, "nothing changes"),
    ("longshore promote shop --wait", 1, "nothing changes"),
    ("longshore resume shop --wait", 1, "nothing changes"),
    ("longshore rollback shop", 1, "there was nothing before"),
    ("longshore rollback shop --to 3 --wait", 1, "there was no third"),
    ("longshore token rm 1f6d0c2b9a4e7385", 1, "there is no such token"),
];
/// Examples that go on until somebody ends them.
const STAYS: &[&str] = &[
    "longshore audit --type node_intent_set -f",
    "longshore logs shop/web -f --tail 20",
    "longshore server --node n1",
    "longshore status shop -w",
];

#[test]
fn every_example_in_a_help_text_does_what_it_says() {
    let machine = shop();
    let tree = Tree::of(&machine);
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
            ready(&machine);
            let ended = ends_within(&machine, example, Duration::from_secs(20));
            let expected = OTHERWISE.iter().find(|(line, ..)| *line == example).map_or(0, |(_, code, _)| *code);
            let expected = if STAYS.contains(&example) { None } else { Some(expected) };
            if ended.0 != expected {
                wrong.push(format!("`{example}` ends with {:?}, not {expected:?}, and says\n{}", ended.0, ended.1));
            }
            tried.push(example);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(without, Vec::<&String>::new(), "commands without an example");
    let listed = OTHERWISE.iter().map(|(line, ..)| line).chain(STAYS);
    let stale: Vec<&&str> = listed.filter(|line| !tried.contains(line)).collect();
    assert_eq!(stale, Vec::<&&str>::new(), "examples that are in no help text any more");
    ready(&machine);
    let _ = machine.ask(&["rm", "shop", "--wait"]);
}

/// The shop runs on two nodes, whatever the example before has done.
fn ready(machine: &Machine) {
    let _ = fs::remove_dir_all(machine.path("other"));
    for node in machine.json(&["node", "ls"]).as_array().unwrap() {
        let name = node["name"].as_str().unwrap();
        if node["intent"] != "active" {
            let _ = machine.ask(&["node", "activate", name]);
        }
    }
    let _ = machine.ask(&["node", "mend", "n1"]);
    // One that is still on its way out has to be gone first.
    machine.wait_for("a shop", || machine.ask(&["apply", "-f", "compose.yaml", "--wait"]).status.success());
}

/// The exit code of a line typed into a shell, or nothing where it goes on, which is ended then; and what it said.
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
    let until = Instant::now() + if STAYS.contains(&line.trim_start_matches("exec ")) { limit / 10 } else { limit };
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
