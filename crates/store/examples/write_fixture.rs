//! Writes a new fixture for `tests/format_compat.rs`:
//! `cargo run -p longshore-store --features replicated --example write_fixture -- crates/store/tests/fixtures/format-N`.
//!
//! Owns: how fixtures are written. An existing folder is refused: a fixture is never written again.
#![expect(clippy::unwrap_used, reason = "a tool run by hand fails where it unwraps")]

#[path = "../tests/format_compat/blocked_commands.rs"]
mod blocked_commands;
#[path = "../tests/format_compat/first_commands.rs"]
mod first_commands;
#[path = "../tests/format_compat/later_commands.rs"]
mod later_commands;
#[path = "../tests/format_compat/policy_commands.rs"]
mod policy_commands;
#[path = "../tests/format_compat/settings_commands.rs"]
mod settings_commands;
#[path = "../tests/format_compat/stop_commands.rs"]
mod stop_commands;

use std::{fs, path::PathBuf, sync::Arc};

use longshore_model::{MemberId, NodeName};
use longshore_store::replicated::{Member, NoTransport, Replicated, ReplicatedConfig};

#[tokio::main]
async fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).expect("the folder of the format"));
    assert!(!folder.exists(), "`{}` already exists", folder.display());
    let config = ReplicatedConfig::new(folder.join("member"), MemberId(1));
    let one = Replicated::open(config, Arc::new(NoTransport)).await.unwrap();
    let me = Member { id: MemberId(1), name: NodeName::from("node-1"), address: String::new() };
    one.initialise(me).await.unwrap();
    for proposal in policy_commands::commands() {
        let applied = one.propose(proposal).await.unwrap();
        println!("{:?} {:?}", applied.index, applied.outcome);
    }
    fs::write(folder.join("backup.snapshot"), one.backup().await.unwrap()).unwrap();
    one.close().await;
}
