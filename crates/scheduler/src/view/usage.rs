//! What a namespace uses of its quota.
//!
//! Owns: the sums. A generation counts from its placement until it is told to stop, overhead included: repeated
//! failures are not free, and a draining generation does not block its successor.

use longshore_model::Reservation;

use super::{GroupIx, View};

/// Sums over the desired generations of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) replicas: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) cpu_millis: u64,
}

impl Usage {
    pub(crate) fn add(&mut self, reservation: &Reservation) {
        self.replicas += 1;
        self.memory_bytes += reservation.memory_total();
        self.cpu_millis += reservation.cpu_millis;
    }

    pub(crate) fn subtract(&mut self, reservation: &Reservation) {
        self.replicas = self.replicas.saturating_sub(1);
        self.memory_bytes = self.memory_bytes.saturating_sub(reservation.memory_total());
        self.cpu_millis = self.cpu_millis.saturating_sub(reservation.cpu_millis);
    }
}

impl View {
    /// Whether a group's namespace has a quota.
    pub(crate) fn has_quota(&self, group: GroupIx) -> bool {
        self.quotas.contains_key(&self.group(group).key.namespace)
    }
}
