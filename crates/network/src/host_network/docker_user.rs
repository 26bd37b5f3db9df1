//! The chain `DOCKER-USER`, which an engine leaves to the operator: what may reach a bridge of ours is accepted there.
//!
//! An engine drops what it did not ask for: packets of the mesh to a bridge of its own, and packets between two of its
//! bridges. Our table decides about both, so the engine must let them through.
//!
//! Owns: the rules with our comment. Must not touch: other rules, and firewalls without that chain.
//! Invariant: a rule is inserted once.

use std::{process::Stdio, time::Duration};

use tokio::process::Command;

use crate::render::DesiredNetwork;

/// Time the program may wait for the lock of others and take.
const TIMEOUT: Duration = Duration::from_secs(20);
const CHAIN: &str = "DOCKER-USER";

/// Inserts what is missing where the chain exists. Returns what was missing.
pub(super) async fn ensure(desired: &DesiredNetwork) -> Vec<String> {
    let mut repairs = Vec::new();
    for program in ["iptables", "ip6tables"] {
        let Some(listed) = run(program, &["-S", CHAIN]).await else { continue };
        for rule in rules(desired) {
            let is_there = |line: &str| {
                let pair = format!("-i {} -o {} ", rule[1], rule[3]);
                line.contains(&pair) && line.contains(&desired.names.table)
            };
            if listed.lines().any(is_there) {
                continue;
            }
            let words: Vec<&str> = ["-I", CHAIN].into_iter().chain(rule.iter().map(String::as_str)).collect();
            if run(program, &words).await.is_some() {
                repairs.push(format!("{program} did not accept packets from {} to {}", rule[1], rule[3]));
            }
        }
    }
    repairs
}

/// Removes every rule of this machine's table.
pub(super) async fn remove(table: &str) {
    for program in ["iptables", "ip6tables"] {
        let listed = run(program, &["-S", CHAIN]).await.unwrap_or_default();
        for line in listed.lines().filter(|line| line.contains(table)) {
            let words: Vec<String> = line.replacen("-A", "-D", 1).split_whitespace().map(unquoted).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let _ = run(program, &words).await;
        }
    }
}

fn unquoted(word: &str) -> String {
    word.trim_matches('"').to_owned()
}

/// From the mesh and from each bridge to each bridge.
fn rules(desired: &DesiredNetwork) -> Vec<Vec<String>> {
    let bridges = || desired.bridges.iter().map(|bridge| bridge.name.as_str());
    let sources = || bridges().chain([desired.names.mesh.as_str()]);
    let pairs = bridges().flat_map(|to| sources().filter(move |from| *from != to).map(move |from| (from, to)));
    let rule = |(from, to): (&str, &str)| {
        let words = ["-i", from, "-o", to, "-m", "comment", "--comment", &desired.names.table, "-j", "ACCEPT"];
        words.map(str::to_owned).to_vec()
    };
    pairs.map(rule).collect()
}

/// The output of a successful run; `None` if there is no such program or chain.
async fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).arg("-w").args(arguments).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(TIMEOUT, output).await.ok()?.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
