//! openraft's test suite for storage implementations.

use std::sync::Arc;

use openraft::testing::{StoreBuilder, Suite};
use tempfile::TempDir;

use super::{
    StorageError, Types,
    log_store::LogStore,
    state_machine_store::{StateMachineHandle, StateMachineStore},
};

struct OnDisk;

impl StoreBuilder<Types, LogStore, StateMachineStore, TempDir> for OnDisk {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachineStore), StorageError> {
        let dir = tempfile::tempdir().unwrap();
        let log = LogStore::open(&dir.path().join("log")).unwrap();
        let state_machine = StateMachineHandle::open(dir.path().join("snapshots"), 100).unwrap();
        Ok((dir, log, StateMachineStore(Arc::new(state_machine))))
    }
}

#[test]
fn the_storage_passes_openrafts_suite() {
    Suite::test_all(OnDisk).unwrap();
}
