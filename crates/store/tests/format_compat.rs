//! Format compatibility: logs and snapshots written by earlier versions lead to the same state.
//!
//! Each folder `tests/fixtures/format-*` was written once by `examples/write_fixture.rs` and is never changed. A field
//! added to the model without a default fails here, and so does a kind of command that no fixture contains.

#![expect(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "format_compat/blocked_commands.rs"]
mod blocked_commands;
#[path = "format_compat/first_commands.rs"]
mod first_commands;
#[path = "format_compat/later_commands.rs"]
mod later_commands;
#[path = "format_compat/loose_fields.rs"]
mod loose_fields;
#[path = "format_compat/policy_commands.rs"]
mod policy_commands;
#[path = "format_compat/settings_commands.rs"]
mod settings_commands;
#[path = "format_compat/stop_commands.rs"]
mod stop_commands;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use longshore_model::{Actor, Command, MemberId, NodeName, PlanItem, access::AccessCommand};
use longshore_store::{
    State,
    replicated::{Dedup, Member, NoTransport, Proposal, Replicated, ReplicatedConfig, restore},
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

/// The state that the commands lead to now.
fn expected(commands: Vec<Proposal>) -> State {
    let mut state = State::default();
    for proposal in commands {
        // Some commands are refused on purpose.
        let _ = state.apply(proposal.command);
    }
    state
}

async fn check(dir: &Path, commands: Vec<Proposal>) {
    let config = ReplicatedConfig::new(dir, MemberId(1));
    let one = Replicated::open(config, Arc::new(NoTransport)).await.unwrap();
    let state = one.read().await.unwrap().state;
    assert_eq!(*state, expected(commands));
    assert!(state.index().0 > 20, "all commands were applied: {:?}", state.index());

    let audit = one.audit(0, 100);
    assert_eq!(audit[0].actor, Actor::Operator("ann".to_owned()));
    assert!(audit.len() > 20, "{} records", audit.len());
    let again = one.propose(first_commands::keyed()).await.unwrap();
    assert_eq!(again.dedup, Dedup::Repeated, "the stored answer is returned");
    one.close().await;
}

#[tokio::test]
async fn a_log_of_the_first_format_leads_to_the_same_state() {
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture("format-1").join("member"), dir.path());
    assert!(!dir.path().join("snapshots").exists(), "all of it comes from the log");
    check(dir.path(), first_commands::commands()).await;
}

#[tokio::test]
async fn a_snapshot_of_the_first_format_leads_to_the_same_state() {
    let dir = tempfile::tempdir().unwrap();
    let backup = fs::read(fixture("format-1").join("backup.snapshot")).unwrap();
    restore(dir.path(), &me(), &backup).unwrap();
    check(dir.path(), first_commands::commands()).await;
}

fn me() -> Member {
    Member { id: MemberId(1), name: NodeName::from("node-1"), address: String::new() }
}

#[tokio::test]
async fn the_later_fixtures_lead_to_the_same_state() {
    let later = [
        ("format-1-sequel", later_commands::commands as fn() -> Vec<Proposal>),
        ("format-1-settings", settings_commands::commands),
        ("format-1-stop", stop_commands::commands),
        ("format-1-blocked", blocked_commands::commands),
        ("format-1-policy", policy_commands::commands),
    ];
    for (name, commands) in later {
        let (log, snapshot) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        copy(&fixture(name).join("member"), log.path());
        check(log.path(), commands()).await;
        let backup = fs::read(fixture(name).join("backup.snapshot")).unwrap();
        restore(snapshot.path(), &me(), &backup).unwrap();
        check(snapshot.path(), commands()).await;
    }
}

/// All variants of an enum, taken from serde's error message for an unknown one.
fn kinds<T: serde::de::DeserializeOwned + std::fmt::Debug>() -> BTreeSet<String> {
    let message = serde_json::from_str::<T>("\"no such kind\"").unwrap_err().to_string();
    let named = message.split('`').skip(1).step_by(2).filter(|name| *name != "no such kind");
    let kinds: BTreeSet<String> = named.map(str::to_owned).collect();
    assert!(kinds.len() > 5, "{message}");
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
fn every_kind_of_command_and_plan_item_is_in_a_fixture() {
    let (mut commands, mut access, mut items) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for Proposal { command, .. } in policy_commands::commands() {
        commands.insert(kind(&command));
        if let Command::Access(command) = &command {
            access.insert(kind(command));
        }
        if let Command::Commit(plan) = &command {
            items.extend(plan.groups.iter().flat_map(|group| &group.items).map(kind));
        }
    }
    assert_eq!(commands, kinds::<Command>());
    assert_eq!(access, kinds::<AccessCommand>());
    assert_eq!(items, kinds::<PlanItem>());
}
