//! Bytes of an earlier day are read as they were meant.
//!
//! `tests/fixtures/format-1` was written once, by `examples/write_fixture.rs`, and is never written again. What is added to
//! the model later has a default; this is where a missing one is noticed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall stop where it stands")]

#[path = "yesterday/story.rs"]
mod story;

use std::{fs, path::Path, sync::Arc};

use longshore_model::{Actor, MemberId, NodeName};
use longshore_store::{
    State,
    replicated::{Alone, Member, Novelty, Replicated, ReplicatedConfig, restore},
};

fn fixture() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/format-1"))
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
fn expected() -> State {
    let mut state = State::default();
    for proposal in story::story() {
        // A refusal is part of the story.
        let _ = state.apply(proposal.command);
    }
    state
}

async fn check(dir: &Path) {
    let config = ReplicatedConfig::new(dir, MemberId(1));
    let one = Replicated::open(config, Arc::new(Alone)).await.unwrap();
    let state = one.read().await.unwrap().state;
    assert_eq!(*state, expected());
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
    copy(&fixture().join("member"), dir.path());
    assert!(!dir.path().join("snapshots").exists(), "all of it comes from the log");
    check(dir.path()).await;
}

#[tokio::test]
async fn a_snapshot_of_the_first_format_leads_to_the_same_state() {
    let dir = tempfile::tempdir().unwrap();
    let backup = fs::read(fixture().join("backup.snapshot")).unwrap();
    let me = Member { id: MemberId(1), name: NodeName::from("node-1"), address: String::new() };
    restore(dir.path(), &me, &backup).unwrap();
    check(dir.path()).await;
}
