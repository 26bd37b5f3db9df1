//! How many connections and UDP sessions this machine holds at a time.
//!
//! Owns: the division. Invariant: one port never uses more than a quarter of what there is, and datagrams never more
//! than half, so that a flood of one port leaves room for the others.

use std::sync::Arc;

use rustix::process::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most connections and UDP sessions at a time, where the limit of open files allows as many.
const MAX_CONNECTIONS: u64 = 16_384;
/// Descriptors left to the rest of the process.
const OTHER_DESCRIPTORS: u64 = 256;
/// One port has at most this part of all.
const PORT_PART: usize = 4;

/// What all ports share.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    port_limit: usize,
    connections: Arc<Semaphore>,
    sessions: Arc<Semaphore>,
}

impl Budget {
    /// As much as the limit of open files allows, with two descriptors per connection.
    pub(super) fn of_process() -> Self {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let limit = (files.saturating_sub(OTHER_DESCRIPTORS) / 2).clamp(64, MAX_CONNECTIONS);
        Self::of(usize::try_from(limit).unwrap_or(usize::MAX))
    }

    pub(super) fn of(limit: usize) -> Self {
        Self {
            limit,
            port_limit: (limit / PORT_PART).max(1),
            connections: Arc::new(Semaphore::new(limit)),
            sessions: Arc::new(Semaphore::new((limit / 2).max(1))),
        }
    }

    /// Whether there is a connection or session. Every listener keeps room for its next connection, so that this says
    /// nothing while one is open.
    pub(super) fn is_in_use(&self) -> bool {
        self.connections.available_permits() < self.limit
    }

    /// The budget of a TCP port.
    pub(super) fn tcp_port(&self) -> PortBudget {
        self.port(vec![&self.connections])
    }

    /// The budget of a UDP port.
    pub(super) fn udp_port(&self) -> PortBudget {
        self.port(vec![&self.sessions, &self.connections])
    }

    fn port(&self, shared: Vec<&Arc<Semaphore>>) -> PortBudget {
        let own = Arc::new(Semaphore::new(self.port_limit));
        PortBudget { semaphores: [own].into_iter().chain(shared.into_iter().cloned()).collect() }
    }
}

/// What one port may use: its own part first, then what is left of the whole.
#[derive(Clone, Debug)]
pub(super) struct PortBudget {
    semaphores: Vec<Arc<Semaphore>>,
}

/// Room for one connection or session.
#[derive(Debug)]
pub(super) struct Room {
    _permits: Vec<OwnedSemaphorePermit>,
}

impl PortBudget {
    /// Waits for room; `None` if there never will be.
    pub(super) async fn room(&self) -> Option<Room> {
        let mut permits = Vec::with_capacity(self.semaphores.len());
        for semaphore in &self.semaphores {
            permits.push(Arc::clone(semaphore).acquire_owned().await.ok()?);
        }
        Some(Room { _permits: permits })
    }

    /// Room if there is some now.
    pub(super) fn room_now(&self) -> Option<Room> {
        let permits = self.semaphores.iter().map(|semaphore| Arc::clone(semaphore).try_acquire_owned().ok());
        Some(Room { _permits: permits.collect::<Option<Vec<_>>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_datagrams_on_one_port_leaves_room_for_others() {
        let budget = Budget::of(16);
        let flooded = budget.udp_port();
        let flood: Vec<Room> = std::iter::from_fn(|| flooded.room_now()).collect();
        assert_eq!(flood.len(), 4);
        let other = budget.udp_port();
        let more: Vec<Room> = std::iter::from_fn(|| other.room_now()).collect();
        assert_eq!(more.len(), 4);
        assert!(budget.udp_port().room_now().is_none(), "datagrams have half of everything");
        assert!(budget.tcp_port().room_now().is_some());
        drop(flood);
        assert!(budget.udp_port().room_now().is_some());
    }
}
