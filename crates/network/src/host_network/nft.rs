//! The `nft` program: loading a table, and reading whether it is still there as it was loaded.
//!
//! Owns: running the program. Must not touch: tables of other names. Invariant: a text is loaded as one transaction, or
//! not at all.

use std::{collections::BTreeSet, process::Stdio, time::Duration};

use tokio::{io::AsyncWriteExt as _, process::Command};

use super::ApplyError;
use crate::render::Ruleset;

/// Time the program may take. A table of thousands of services takes seconds.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The oldest version that knows everything the table uses.
const OLDEST: (u32, u32) = (1, 0);

/// Loads a text as one transaction.
pub(super) async fn load(text: &str) -> Result<(), ApplyError> {
    if text.is_empty() {
        return Ok(());
    }
    run(&["-f", "-"], text).await.map(drop)
}

/// Deletes a table, whether or not it exists.
pub(super) async fn delete(table: &str) -> Result<(), ApplyError> {
    load(&format!("table inet {table}\ndelete table inet {table}\n")).await
}

/// Why the program cannot be used; `None` if it can.
pub(super) async fn missing() -> Option<String> {
    let answer = match run(&["--version"], "").await {
        Ok(answer) => answer,
        Err(error) => return Some(format!("`nft` cannot be run: {}", longshore_model::error_chain(&error))),
    };
    let version = answer.split_whitespace().find_map(|word| parse_version(word.trim_start_matches('v')));
    match version {
        Some(version) if version >= OLDEST => None,
        Some((major, minor)) => Some(format!("`nft` is {major}.{minor}, and {}.{} is needed", OLDEST.0, OLDEST.1)),
        None => Some(format!("`nft` does not tell its version: {}", answer.trim())),
    }
}

fn parse_version(word: &str) -> Option<(u32, u32)> {
    let mut parts = word.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The first difference between the table and what was loaded; `None` if there is none.
pub(super) async fn difference(ruleset: &Ruleset) -> Result<Option<String>, ApplyError> {
    let Ok(listing) = run(&["-n", "list", "table", "inet", &ruleset.table], "").await else {
        return Ok(Some(format!("the table {} did not exist", ruleset.table)));
    };
    let (loaded, found) = (blocks(&ruleset.whole()), blocks(&listing));
    let changed = loaded.symmetric_difference(&found).next().map(|(name, _)| name.clone());
    Ok(changed.map(|name| format!("`{name}` of the table {} was changed", ruleset.table)))
}

/// Sets, maps and chains of a text, each with what can be compared whatever the form of the text: the elements of a set,
/// and the number of rules of a chain.
fn blocks(text: &str) -> BTreeSet<(String, BTreeSet<String>)> {
    let mut blocks = BTreeSet::new();
    let mut current: Option<(String, Vec<String>)> = None;
    for line in text.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (&words[..], &mut current) {
            ([kind @ ("set" | "map" | "chain"), name, "{"], _) => {
                current = Some((format!("{kind} {name}"), Vec::new()));
            }
            (["}"], _) => blocks.extend(current.take().map(|(name, lines)| (name.clone(), comparable(&name, &lines)))),
            ([] | ["#", ..], _) | (_, None) => {}
            (_, Some((_, lines))) => lines.push(line.to_owned()),
        }
    }
    blocks
}

fn comparable(name: &str, lines: &[String]) -> BTreeSet<String> {
    if name.starts_with("chain") {
        return BTreeSet::from([lines.len().to_string()]);
    }
    let text = lines.join(" ");
    let elements = text.split_once("elements = {").map_or("", |(_, rest)| rest.trim_end_matches('}'));
    elements.split(',').map(|element| element.trim().to_owned()).filter(|element| !element.is_empty()).collect()
}

async fn run(arguments: &[&str], input: &str) -> Result<String, ApplyError> {
    let failed = |reason: String| ApplyError::Nft(reason);
    let mut child = Command::new("nft")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let stdin = child.stdin.take();
    let writing = async {
        if let Some(mut stdin) = stdin {
            // The program reads its input only where it is told to.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let finished = async { tokio::join!(writing, child.wait_with_output()).1 };
    let output = tokio::time::timeout(TIMEOUT, finished).await;
    let output = output.map_err(|_| failed(format!("no answer within {} s", TIMEOUT.as_secs())))?;
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(failed(text.lines().take(3).collect::<Vec<_>>().join(" ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(parse_version("1.0.6"), Some((1, 0)));
        assert!(parse_version("0.9.9").is_some_and(|version| version < OLDEST));
        assert_eq!(parse_version("(Lester"), None);
    }

    #[test]
    fn a_listing_is_compared_by_elements_and_numbers_of_rules() {
        let ours = "set a {\n type ipv4_addr\n elements = { 10.0.0.1, 10.0.0.2 }\n}\nchain c {\n drop\n}\n";
        let listed = "\tset a {\n\t\ttype ipv4_addr\n\t\telements = { 10.0.0.2,\n\t\t\t     10.0.0.1 }\n\t}\n\n\tchain c {\n\t\tdrop\n\t}\n";
        assert_eq!(blocks(ours), blocks(listed));
        assert_ne!(blocks(ours), blocks(&listed.replace("10.0.0.2,", "")));
        assert_ne!(blocks(ours), blocks(&listed.replace("drop", "accept\ndrop")));
    }
}
