//! Writes the bytes that `tests/yesterday.rs` reads, for a format that has none yet:
//! `cargo run -p longshore-store --features replicated --example write_fixture -- crates/store/tests/fixtures/format-N`.
//!
//! Owns: how the fixtures came to be. A folder that exists is refused: yesterday is not written anew.
#![expect(clippy::unwrap_used, reason = "whoever runs this looks at it")]

#[path = "../tests/yesterday/sequel.rs"]
mod sequel;
#[path = "../tests/yesterday/story.rs"]
mod story;

use std::{fs, path::PathBuf, sync::Arc};

use longshore_model::{MemberId, NodeName};
use longshore_store::replicated::{Alone, Member, Replicated, ReplicatedConfig};

#[tokio::main]
async fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).expect("the folder of the format"));
    assert!(!folder.exists(), "`{}` is there already", folder.display());
    let config = ReplicatedConfig::new(folder.join("member"), MemberId(1));
    let one = Replicated::open(config, Arc::new(Alone)).await.unwrap();
    let me = Member { id: MemberId(1), name: NodeName::from("node-1"), address: String::new() };
    one.initialise(me).await.unwrap();
    for proposal in sequel::sequel() {
        let applied = one.propose(proposal).await.unwrap();
        println!("{:?} {:?}", applied.index, applied.outcome);
    }
    fs::write(folder.join("backup.snapshot"), one.backup().await.unwrap()).unwrap();
    one.close().await;
}
