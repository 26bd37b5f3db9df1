//! The consensus library's own suite for stores, on the store that is used.

use std::sync::Arc;

use openraft::testing::{StoreBuilder, Suite};
use tempfile::TempDir;

use super::{
    StorageError, Types,
    log_store::LogStore,
    machine_store::{Held, MachineStore},
};

struct OnDisk;

impl StoreBuilder<Types, LogStore, MachineStore, TempDir> for OnDisk {
    async fn build(&self) -> Result<(TempDir, LogStore, MachineStore), StorageError> {
        let dir = tempfile::tempdir().unwrap();
        let log = LogStore::open(&dir.path().join("log")).unwrap();
        let held = Held::open(dir.path().join("snapshots"), 100).unwrap();
        Ok((dir, log, MachineStore(Arc::new(held))))
    }
}

#[test]
fn the_store_keeps_every_promise_the_consensus_library_asks_for() {
    Suite::test_all(OnDisk).unwrap();
}
