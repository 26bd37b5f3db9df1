//! How busy every machine last said it is.
//!
//! Owns: the last sample of each node, in the leader's memory alone, and asking the leader for them.
//! Invariant: a sample is never committed; who cannot reach the leader answers without.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use longshore_api::Load;
use longshore_model::{NodeName, Time, work::Pressure};

use crate::{
    hub::{Hub, Leader},
    peer::unpack,
};

/// Time a leader has to tell: whoever asks for nodes waits for this.
const PATIENCE: Duration = Duration::from_secs(1);

/// Samples by node.
pub(crate) type Loads = BTreeMap<NodeName, Load>;

/// What this node has heard while it led.
#[derive(Debug, Default)]
pub(crate) struct Heard(Mutex<Loads>);

impl Heard {
    /// A leader that begins has heard nothing.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn note(&self, node: &NodeName, pressure: Pressure, at: Time) {
        let Pressure { cpu_millionths, memory_millionths } = pressure;
        let load = Load { cpu_millionths, memory_millionths, at_ms: at.0 };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(node.clone(), load);
    }

    pub(crate) fn all(&self) -> Loads {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What the leader has heard; nothing where it does not answer.
pub(crate) async fn of_the_leader(hub: &Hub) -> Loads {
    match hub.leader() {
        Leader::Here(_) => hub.loads.all(),
        Leader::There(server) => {
            let asked = tokio::time::timeout(PATIENCE, hub.calls.post(&server, "/peer/loads", Vec::new())).await;
            asked.ok().and_then(Result::ok).and_then(|answer| unpack(&answer).ok()).unwrap_or_default()
        }
        Leader::Unknown => Loads::new(),
    }
}
