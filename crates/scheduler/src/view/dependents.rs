//! The index of dependents: which groups are decided again when a service they depend on changes.
//!
//! Owns: that index. Must not touch: when a dependency is met, which `feasibility/gates/dependencies.rs` decides.
//! Invariant: a group is decided again after every change of a service it depends on, by the spec in force or by the
//! previous one while a rollout keeps it.

use longshore_model::{Event, GroupKey};

use super::{GroupIx, View, companions::remove_edge, groups::Group};

/// The services in the `depends_on` of a group's specs.
fn dependencies(group: &Group) -> impl Iterator<Item = GroupKey> {
    group.specs_in_use().flat_map(|spec| spec.depends_on.keys().map(|service| spec.dependency_key(&group.key, service)))
}

impl View {
    /// Registers a group as dependent of the services in its `depends_on`.
    pub(super) fn add_dependent(&mut self, dependent: GroupIx) {
        for service in dependencies(self.group(dependent)).collect::<Vec<_>>() {
            self.dependents.entry(service).or_default().insert(dependent);
        }
    }

    /// Removes the registration. Called before the group's specs change.
    pub(super) fn remove_dependent(&mut self, dependent: GroupIx) {
        for service in dependencies(self.group(dependent)).collect::<Vec<_>>() {
            remove_edge(&mut self.dependents, &service, dependent);
        }
    }

    /// Marks the dependents of the group an event is about dirty.
    pub(super) fn mark_dependents_dirty(&mut self, event: &Event) {
        if self.dependents.is_empty() {
            return;
        }
        let dependents = changed(event).and_then(|group| self.dependents.get(group)).into_iter().flatten();
        self.dirty.extend(dependents);
    }
}

/// The group whose state as a dependency an event may change.
fn changed(event: &Event) -> Option<&GroupKey> {
    match event {
        Event::GroupChanged { group, .. }
        | Event::GroupRemoved(group)
        | Event::GroupGone(group)
        | Event::SlotClosing { group, .. }
        | Event::SlotGone { group, .. }
        | Event::Collected { group, .. } => Some(group),
        Event::Placed { key, .. }
        | Event::Stopping(key)
        | Event::Restarting { key, .. }
        | Event::Observed { key, .. }
        | Event::Released { key, .. } => Some(&key.group),
        _ => None,
    }
}
