//! Services that wait for others of their deployment: who is asked again when one of those changes.
//!
//! Owns: the index of dependents. Must not touch: when a dependency is met, which `feasibility/gates/dependencies.rs` says.
//! Invariant: a group is decided again after every change of a service it depends on.

use longshore_model::{Event, GroupKey, ServiceSpec};

use super::{GroupIx, View};

impl View {
    /// Begins to ask a group again when the services it depends on change.
    pub(super) fn depend(&mut self, dependent: GroupIx, key: &GroupKey, spec: &ServiceSpec) {
        for service in spec.depends_on.keys() {
            self.dependents.entry(key.beside(service)).or_default().insert(dependent);
        }
    }

    /// Ends it.
    pub(super) fn depend_no_longer(&mut self, dependent: GroupIx, key: &GroupKey, spec: &ServiceSpec) {
        for service in spec.depends_on.keys() {
            let other = key.beside(service);
            if let Some(dependents) = self.dependents.get_mut(&other) {
                dependents.remove(&dependent);
                if dependents.is_empty() {
                    self.dependents.remove(&other);
                }
            }
        }
    }

    /// Something happened: who depends on the group it happened to is asked again.
    pub(super) fn tell_dependents(&mut self, event: &Event) {
        if self.dependents.is_empty() {
            return;
        }
        let dependents = changed(event).and_then(|group| self.dependents.get(group)).into_iter().flatten();
        self.dirty.extend(dependents);
    }
}

/// The group whose standing as a dependency an event may change.
fn changed(event: &Event) -> Option<&GroupKey> {
    match event {
        Event::GroupChanged { group, .. }
        | Event::GroupUnwanted(group)
        | Event::GroupGone(group)
        | Event::SlotClosing { group, .. }
        | Event::SlotGone { group, .. }
        | Event::Placed { group, .. }
        | Event::Stopping { group, .. }
        | Event::Restarting { group, .. }
        | Event::Collected { group, .. }
        | Event::Observed { group, .. }
        | Event::Released { group, .. } => Some(group),
        _ => None,
    }
}
