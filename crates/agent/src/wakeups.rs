//! Wakes the task that monitors a replica because something about the replica may have changed.
//!
//! Owns: one notifier per replica. Invariant: a wake-up is a hint without content; the woken task inspects the replica.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longshore_model::ReplicaKey;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    notifiers: Mutex<BTreeMap<ReplicaKey, Arc<Notify>>>,
}

impl Wakeups {
    pub(crate) fn notifier(&self, key: &ReplicaKey) -> Arc<Notify> {
        Arc::clone(self.lock().entry(key.clone()).or_default())
    }

    pub(crate) fn forget(&self, key: &ReplicaKey) {
        self.lock().remove(key);
    }

    pub(crate) fn wake(&self, key: &ReplicaKey) {
        if let Some(notifier) = self.lock().get(key) {
            notifier.notify_one();
        }
    }

    pub(crate) fn wake_all(&self) {
        for notifier in self.lock().values() {
            notifier.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ReplicaKey, Arc<Notify>>> {
        // Each change is one map operation, so a panic elsewhere leaves no partial update.
        self.notifiers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
