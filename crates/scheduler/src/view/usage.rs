//! What a namespace uses of its quota.
//!
//! Owns: the sums. A generation counts from its decision until it shall stop, overhead included, so that failing
//! again and again is not free and a draining one does not block its successor.

use longshore_model::Terms;

use super::{GroupIx, View};

/// Sums over the generations of a namespace that shall run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) replicas: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) cpu_millis: u64,
}

impl Usage {
    pub(crate) fn add(&mut self, terms: &Terms) {
        self.replicas += 1;
        self.memory_bytes += terms.memory_total();
        self.cpu_millis += terms.cpu_millis;
    }

    pub(crate) fn subtract(&mut self, terms: &Terms) {
        self.replicas = self.replicas.saturating_sub(1);
        self.memory_bytes = self.memory_bytes.saturating_sub(terms.memory_total());
        self.cpu_millis = self.cpu_millis.saturating_sub(terms.cpu_millis);
    }
}

impl View {
    /// Whether a group's namespace has a quota.
    pub(crate) fn has_quota(&self, group: GroupIx) -> bool {
        self.quotas.contains_key(&self.group(group).key.namespace)
    }
}
