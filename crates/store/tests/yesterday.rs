//! Bytes of an earlier day are read as they were meant.
//!
//! `tests/fixtures/format-1` and `format-1-sequel` were each written once, by `examples/write_fixture.rs`, and are never
//! written again. What is added to the model later has a default; this is where a missing one is noticed. A kind of command
//! that no folder holds is noticed, too.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall stop where it stands")]

#[path = "yesterday/sequel.rs"]
mod sequel;
#[path = "yesterday/story.rs"]
mod story;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use longshore_model::{Actor, Command, MemberId, NodeName, PlanItem, access::AccessCommand};
use longshore_store::{
    State,
    replicated::{Alone, Member, Novelty, Proposal, Replicated, ReplicatedConfig, restore},
};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let path = file.unwrap().path();
        let there = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &there);
        } else {
            fs::copy(&path, there).unwrap();
        }
    }
}

/// What the commands lead to today.
fn expected(story: Vec<Proposal>) -> State {
    let mut state = State::default();
    for proposal in story {
        // A refusal is part of the story.
        let _ = state.apply(proposal.command);
    }
    state
}

async fn check(dir: &Path, story: Vec<Proposal>) {
    let config = ReplicatedConfig::new(dir, MemberId(1));
    let one = Replicated::open(config, Arc::new(Alone)).await.unwrap();
    let state = one.read().await.unwrap().state;
    assert_eq!(*state, expected(story));
    assert!(state.index().0 > 20, "the story is told: {:?}", state.index());

    let audit = one.audit(0, 100);
    assert_eq!(audit[0].actor, Actor::Operator("ann".to_owned()));
    assert!(audit.len() > 20, "{} records", audit.len());
    let again = one.propose(story::keyed()).await.unwrap();
    assert_eq!(again.novelty, Novelty::Repeated, "answers are remembered");
    one.close().await;
}

#[tokio::test]
async fn a_log_of_the_first_format_leads_to_the_same_state() {
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture("format-1").join("member"), dir.path());
    assert!(!dir.path().join("snapshots").exists(), "all of it comes from the log");
    check(dir.path(), story::story()).await;
}

#[tokio::test]
async fn a_snapshot_of_the_first_format_leads_to_the_same_state() {
    let dir = tempfile::tempdir().unwrap();
    let backup = fs::read(fixture("format-1").join("backup.snapshot")).unwrap();
    restore(dir.path(), &me(), &backup).unwrap();
    check(dir.path(), story::story()).await;
}

fn me() -> Member {
    Member { id: MemberId(1), name: NodeName::from("node-1"), address: String::new() }
}

#[tokio::test]
async fn what_happened_later_in_the_first_format_leads_to_the_same_state_too() {
    let (log, snapshot) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    copy(&fixture("format-1-sequel").join("member"), log.path());
    check(log.path(), sequel::sequel()).await;
    let backup = fs::read(fixture("format-1-sequel").join("backup.snapshot")).unwrap();
    restore(snapshot.path(), &me(), &backup).unwrap();
    check(snapshot.path(), sequel::sequel()).await;
}

/// Every kind there is, as serde tells them to whoever names one that there is not.
fn kinds<T: serde::de::DeserializeOwned + std::fmt::Debug>() -> BTreeSet<String> {
    let told = serde_json::from_str::<T>("\"no such kind\"").unwrap_err().to_string();
    let named = told.split('`').skip(1).step_by(2).filter(|name| *name != "no such kind");
    let kinds: BTreeSet<String> = named.map(str::to_owned).collect();
    assert!(kinds.len() > 5, "{told}");
    kinds
}

fn kind(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value).unwrap() {
        serde_json::Value::String(name) => name,
        serde_json::Value::Object(fields) => fields.keys().next().unwrap().clone(),
        other => panic!("{other}"),
    }
}

#[test]
fn every_kind_of_command_and_of_decision_has_bytes_of_an_earlier_day() {
    let (mut commands, mut doors, mut items) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for Proposal { command, .. } in sequel::sequel() {
        commands.insert(kind(&command));
        if let Command::Access(command) = &command {
            doors.insert(kind(command));
        }
        if let Command::Commit(plan) = &command {
            items.extend(plan.groups.iter().flat_map(|group| &group.items).map(kind));
        }
    }
    assert_eq!(commands, kinds::<Command>());
    assert_eq!(doors, kinds::<AccessCommand>());
    assert_eq!(items, kinds::<PlanItem>());
}
