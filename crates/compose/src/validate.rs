//! Validation across the services of a deployment.
//!
//! Owns: references between services, cycles, conflicting ports, shared volumes, colliding replica names.
//! Must not touch: other deployments; the cluster checks those at apply.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    DeploymentSpec, ServiceName, ServiceSpec, VolumeKey,
    service::{DependencyCondition, Port, PortMode, Protocol},
    volume::Sharing,
};

use crate::{
    diagnostic::{Diagnostics, Location},
    service::{Notes, Reference},
    suggest,
};

/// Location and notes of each service.
pub(crate) type NotesByService = BTreeMap<ServiceName, (Location, Notes)>;

/// Checks the deployment.
pub(crate) fn check(
    spec: &DeploymentSpec,
    notes_by_service: &NotesByService,
    inactive: &BTreeSet<String>,
    problems: &mut Diagnostics,
) {
    for (name, service) in &spec.services {
        let Some((location, notes)) = notes_by_service.get(name) else { continue };
        let known = ReferenceCheck { spec, inactive };
        notes.references.iter().for_each(|reference| known.require(name, reference, problems));
        check_collision(name, service, spec, location, problems);
    }
    check_completion(spec, notes_by_service, problems);
    check_cycles(spec, notes_by_service, problems);
    check_ports(notes_by_service, problems);
    check_volumes(spec, notes_by_service, problems);
}

/// Checks that a referenced service exists and is active.
struct ReferenceCheck<'s> {
    spec: &'s DeploymentSpec,
    inactive: &'s BTreeSet<String>,
}

impl ReferenceCheck<'_> {
    fn require(&self, name: &ServiceName, reference: &Reference, problems: &mut Diagnostics) {
        let Reference { key, service, location } = reference;
        if service == name {
            problems.error(location, format!("service `{name}` names itself in `{key}`"));
        } else if self.inactive.contains(service.as_str()) {
            let message =
                format!("service `{name}` names the service `{service}` in `{key}`, which no active profile has");
            problems
                .error(location, message)
                .hint("ask for one of its profiles, or say `required: false` in `depends_on`");
        } else if !self.spec.services.contains_key(service) && !problems.is_full() {
            let message = format!("service `{name}` names the service `{service}` in `{key}`, which does not exist");
            let problem = problems.error(location, message);
            if let Some(near) = suggest::nearest(service.as_str(), self.spec.services.keys().map(ServiceName::as_str)) {
                problem.hint(format!("did you mean `{near}`?"));
            }
        }
    }
}

/// A replica id `<service>-<node>` of a global service must not equal one of another service.
fn check_collision(
    name: &ServiceName,
    service: &ServiceSpec,
    spec: &DeploymentSpec,
    location: &Location,
    problems: &mut Diagnostics,
) {
    if !service.kind.is_per_node() {
        return;
    }
    let prefix = format!("{name}-");
    if let Some(other) = spec.services.keys().find(|other| other.as_str().starts_with(&prefix)) {
        problems
            .error(
                location,
                format!("replicas of the global service `{name}` could be named like those of service `{other}`"),
            )
            .hint("rename one of them");
    }
}

/// Warns of `service_completed_successfully` on a service that never ends.
fn check_completion(spec: &DeploymentSpec, notes_by_service: &NotesByService, problems: &mut Diagnostics) {
    for (name, service) in &spec.services {
        for (other, dependency) in &service.depends_on {
            let never = |other: &ServiceSpec| !other.kind.is_job() && !other.restart.may_complete();
            let never = spec.services.get(other).is_some_and(|other| never(other));
            if dependency.condition != DependencyCondition::ServiceCompletedSuccessfully || !never {
                continue;
            }
            let Some((_, notes)) = notes_by_service.get(name) else { continue };
            let Some(reference) = notes.references.iter().find(|reference| reference.service == *other) else {
                continue;
            };
            let message = format!(
                "service `{name}` waits for service `{other}` to complete, which is started again when it ends"
            );
            let hint = format!("write `restart: \"no\"` or `restart: on-failure` for `{other}`");
            problems.warn(&reference.location, message).hint(hint);
        }
    }
}

/// Visits each service once, without recursion, because a chain can be as long as the file.
fn check_cycles(spec: &DeploymentSpec, notes_by_service: &NotesByService, problems: &mut Diagnostics) {
    let mut done: BTreeSet<&ServiceName> = BTreeSet::new();
    for start in spec.services.keys() {
        let mut path: Vec<&ServiceName> = Vec::new();
        let mut on_path: BTreeSet<&ServiceName> = BTreeSet::new();
        let mut stack = vec![(start, 0)];
        while let Some((name, depth)) = stack.pop() {
            for left in path.drain(depth..) {
                on_path.remove(left);
                done.insert(left);
            }
            if on_path.contains(name) {
                let from = path.iter().position(|seen| *seen == name).unwrap_or_default();
                report_cycle(&path[from..], notes_by_service, problems);
                return;
            }
            let Some(service) = spec.services.get(name).filter(|_| !done.contains(name)) else { continue };
            path.push(name);
            on_path.insert(name);
            let below = path.len();
            stack.extend(service.depends_on.keys().filter(|other| *other != name).map(|other| (other, below)));
        }
        done.extend(path);
    }
}

fn report_cycle(cycle: &[&ServiceName], notes_by_service: &NotesByService, problems: &mut Diagnostics) {
    let Some((location, _)) = cycle.first().and_then(|name| notes_by_service.get(*name)) else { return };
    let mut words: Vec<&str> = cycle.iter().map(|name| name.as_str()).collect();
    words.extend(cycle.first().map(|name| name.as_str()));
    problems
        .error(location, format!("services wait for each other: {}", words.join(" → ")))
        .hint("remove one `depends_on` of the circle");
}

fn check_ports(notes_by_service: &NotesByService, problems: &mut Diagnostics) {
    let mut taken: BTreeMap<(u16, Protocol), &ServiceName> = BTreeMap::new();
    for (name, (_, notes)) in notes_by_service {
        warn_of_sctp(name, &notes.ports, problems);
        for (port, location) in notes.ports.iter().filter(|(port, _)| port.mode == PortMode::Ingress) {
            let Some(published) = port.published else { continue };
            let first = *taken.entry((published, port.protocol)).or_insert(name);
            if first != name {
                let word = port.protocol.as_str();
                problems
                    .error(location, format!("services `{first}` and `{name}` both publish port {published}/{word}"))
                    .hint("a published port listens on every node; choose another, or `mode: host`");
            }
        }
    }
}

/// Warns of cluster-wide SCTP ports, on which nodes do not listen.
fn warn_of_sctp(name: &ServiceName, ports: &[(Port, Location)], problems: &mut Diagnostics) {
    let is_sctp = |port: &Port| port.mode == PortMode::Ingress && port.protocol == Protocol::Sctp;
    for (port, location) in ports.iter().filter(|(port, _)| is_sctp(port) && port.published.is_some()) {
        let published = port.published.unwrap_or(port.target);
        let message = format!(
            "service `{name}` publishes port {published}/sctp, and only TCP and UDP ports are published on every node"
        );
        problems.warn(location, message).hint("add `mode: host` to listen on the replica's node");
    }
}

fn check_volumes(spec: &DeploymentSpec, notes_by_service: &NotesByService, problems: &mut Diagnostics) {
    let mut holders: BTreeMap<&VolumeKey, (Sharing, Vec<&ServiceName>)> = BTreeMap::new();
    for (name, service) in &spec.services {
        for (key, sharing) in service.volumes() {
            let holders = &mut holders.entry(key).or_insert((sharing, Vec::new())).1;
            if holders.last() != Some(&name) {
                holders.push(name);
            }
        }
    }
    for (key, (sharing, names)) in holders.into_iter().filter(|(_, (_, names))| names.len() > 1) {
        let Some((location, _)) = names.first().and_then(|name| notes_by_service.get(*name)) else { continue };
        let list: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let list = list.join(", ");
        let (message, hint) = match sharing {
            Sharing::Deployment | Sharing::OneOff => (
                format!("services {list} share the volume `{key}` and will all run on the node that has it"),
                "give each a volume of its own where they are to run apart",
            ),
            Sharing::Exclusive => (
                format!(
                    "services {list} mount the exclusive volume `{key}`; only one of them can run (`volume_in_use`)"
                ),
                "remove `exclusive`, or mount it in one service",
            ),
        };
        problems.warn(location, message).hint(hint);
    }
}
