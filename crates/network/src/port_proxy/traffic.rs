//! Counters of the traffic of one service.
//!
//! Owns: the counting. Invariant: counters only grow while the process lives; `open` is what is open now.

use std::sync::atomic::{AtomicU64, Ordering};

use longshore_model::GroupKey;
use serde::{Deserialize, Serialize};

/// Live counters of a service.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(super) connections: Counter,
    pub(super) ended: Counter,
    pub(super) bytes_in: Counter,
    pub(super) bytes_out: Counter,
    pub(super) retries: Counter,
    pub(super) ejections: Counter,
    pub(super) refused: Counter,
}

/// A number that grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a service, as they were at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceTraffic {
    /// The service.
    pub group: GroupKey,
    /// Connections and UDP sessions that began.
    pub connections: u64,
    /// Those that are open now.
    pub open: u64,
    /// Bytes from clients to replicas.
    pub bytes_in: u64,
    /// Bytes from replicas to clients.
    pub bytes_out: u64,
    /// Times that another replica was tried.
    pub retries: u64,
    /// Times that a replica was left alone because it did not answer.
    pub ejections: u64,
    /// Connections that were closed because no replica accepted them.
    pub refused: u64,
    /// The replicas.
    #[serde(default)]
    pub endpoints: Vec<EndpointTraffic>,
}

/// What one endpoint of a published port does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EndpointTraffic {
    /// The replica's printed id with generation and attempt.
    pub replica: String,
    /// Connections and UDP sessions that are open through this machine.
    pub open: u64,
    /// Whether it is left alone because it did not answer.
    pub is_ejected: bool,
}

impl Traffic {
    /// Counts a connection for as long as the guard lives.
    pub(super) fn begin(self: &std::sync::Arc<Self>) -> OpenConnection {
        self.connections.add(1);
        OpenConnection(std::sync::Arc::clone(self))
    }

    pub(super) fn of(&self, group: GroupKey, endpoints: Vec<EndpointTraffic>) -> ServiceTraffic {
        let connections = self.connections.get();
        ServiceTraffic {
            group,
            connections,
            open: connections.saturating_sub(self.ended.get()),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
            retries: self.retries.get(),
            ejections: self.ejections.get(),
            refused: self.refused.get(),
            endpoints,
        }
    }
}

/// Counts the end of a connection when it is dropped.
#[derive(Debug)]
pub(super) struct OpenConnection(std::sync::Arc<Traffic>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.ended.add(1);
    }
}
