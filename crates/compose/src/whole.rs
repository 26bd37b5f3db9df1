//! What can only be judged with all services in view.
//!
//! Owns: references between services, cycles, clashes of ports, shared volumes, names that could collide.
//! Must not touch: other deployments; the cluster judges those at apply.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    DeploymentSpec, ServiceName, ServiceSpec, VolumeKey,
    service::{PortMode, Protocol},
    volume::Sharing,
};

use crate::{
    diagnostic::{Diagnostics, Place},
    suggest,
};

/// Where each service is named.
pub(crate) type Places = BTreeMap<ServiceName, Place>;

/// Looks at the whole deployment.
pub(crate) fn check(spec: &DeploymentSpec, places: &Places, inactive: &BTreeSet<String>, problems: &mut Diagnostics) {
    for (name, service) in &spec.services {
        let Some(place) = places.get(name) else { continue };
        check_references(name, service, &Known { spec, inactive }, place, problems);
        check_collision(name, service, spec, place, problems);
    }
    check_cycles(spec, places, problems);
    check_ports(spec, places, problems);
    check_volumes(spec, places, problems);
}

/// The services there are, and those left out by profiles.
struct Known<'s> {
    spec: &'s DeploymentSpec,
    inactive: &'s BTreeSet<String>,
}

impl Known<'_> {
    fn require(&self, name: &ServiceName, key: &str, other: &ServiceName, place: &Place, problems: &mut Diagnostics) {
        if self.spec.services.contains_key(other) {
            return;
        }
        if self.inactive.contains(other.as_str()) {
            let message =
                format!("service `{name}` names the service `{other}` in `{key}`, which no active profile has");
            problems
                .error(place, message)
                .hint("ask for one of its profiles, or say `required: false` in `depends_on`");
            return;
        }
        let message = format!("service `{name}` names the service `{other}` in `{key}`, which does not exist");
        let problem = problems.error(place, message);
        if let Some(near) = suggest::nearest(other.as_str(), self.spec.services.keys().map(ServiceName::as_str)) {
            problem.hint(format!("did you mean `{near}`?"));
        }
    }
}

fn check_references(
    name: &ServiceName,
    service: &ServiceSpec,
    known: &Known<'_>,
    place: &Place,
    problems: &mut Diagnostics,
) {
    let required = service.depends_on.iter().filter(|(_, dependency)| dependency.required).map(|(other, _)| other);
    let mut refer = |key: &str, other: &ServiceName| {
        if other == name {
            problems.error(place, format!("service `{name}` names itself in `{key}`"));
        } else {
            known.require(name, key, other, place, problems);
        }
    };
    required.for_each(|other| refer("depends_on", other));
    let namespaces = &service.container.namespaces;
    let shared = [("network_mode", &namespaces.network), ("ipc", &namespaces.ipc), ("pid", &namespaces.pid)];
    let by_mode = namespaces.network.as_deref().and_then(|mode| mode.strip_prefix("service:"));
    for companion in service.placement.near.iter().filter(|near| Some(near.service.as_str()) != by_mode) {
        refer("near", &companion.service);
    }
    service.placement.away_from.iter().for_each(|companion| refer("away_from", &companion.service));
    for (key, mode) in shared {
        if let Some(other) = mode.as_deref().and_then(|mode| mode.strip_prefix("service:")) {
            refer(key, &ServiceName::from(other));
        }
    }
}

/// `<service>-<node>` of a global service must not look like another service's replica.
fn check_collision(
    name: &ServiceName,
    service: &ServiceSpec,
    spec: &DeploymentSpec,
    place: &Place,
    problems: &mut Diagnostics,
) {
    if !service.kind.is_per_node() {
        return;
    }
    let prefix = format!("{name}-");
    if let Some(other) = spec.services.keys().find(|other| other.as_str().starts_with(&prefix)) {
        problems
            .error(
                place,
                format!("replicas of the global service `{name}` could be named like those of service `{other}`"),
            )
            .hint("rename one of them");
    }
}

/// Services are visited once each, without recursion: a chain can be as long as the file.
fn check_cycles(spec: &DeploymentSpec, places: &Places, problems: &mut Diagnostics) {
    let mut done: BTreeSet<&ServiceName> = BTreeSet::new();
    for start in spec.services.keys() {
        let mut path: Vec<&ServiceName> = Vec::new();
        let mut stack = vec![(start, 0)];
        while let Some((name, depth)) = stack.pop() {
            for left in path.drain(depth..) {
                done.insert(left);
            }
            if let Some(at) = path.iter().position(|seen| *seen == name) {
                report_cycle(&path[at..], places, problems);
                return;
            }
            let Some(service) = spec.services.get(name).filter(|_| !done.contains(name)) else { continue };
            path.push(name);
            let below = path.len();
            stack.extend(service.depends_on.keys().filter(|other| *other != name).map(|other| (other, below)));
        }
        done.extend(path);
    }
}

fn report_cycle(cycle: &[&ServiceName], places: &Places, problems: &mut Diagnostics) {
    let Some(place) = cycle.first().and_then(|name| places.get(*name)) else { return };
    let mut words: Vec<&str> = cycle.iter().map(|name| name.as_str()).collect();
    words.extend(cycle.first().map(|name| name.as_str()));
    problems
        .error(place, format!("services wait for each other: {}", words.join(" → ")))
        .hint("remove one `depends_on` of the circle");
}

fn check_ports(spec: &DeploymentSpec, places: &Places, problems: &mut Diagnostics) {
    let mut taken: BTreeMap<(u16, Protocol), &ServiceName> = BTreeMap::new();
    for (name, service) in &spec.services {
        for port in service.ports.iter().filter(|port| port.mode == PortMode::Ingress) {
            let Some(published) = port.published else { continue };
            match taken.insert((published, port.protocol), name) {
                Some(other) if other != name => {
                    let Some(place) = places.get(name) else { continue };
                    let word = port.protocol.as_str();
                    problems
                        .error(place, format!("services `{other}` and `{name}` both publish port {published}/{word}"))
                        .hint("a published port listens on every node; choose another, or `mode: host`");
                }
                Some(_) | None => {}
            }
        }
    }
}

fn check_volumes(spec: &DeploymentSpec, places: &Places, problems: &mut Diagnostics) {
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
        let Some(place) = names.first().and_then(|name| places.get(*name)) else { continue };
        let list: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let list = list.join(", ");
        match sharing {
            Sharing::Deployment => problems.warn(
                place,
                format!("services {list} share the volume `{key}` and will all run on the node that has it"),
            ),
            Sharing::Exclusive => problems.warn(
                place,
                format!(
                    "services {list} mount the exclusive volume `{key}`; only one of them can run (`volume_in_use`)"
                ),
            ),
        };
    }
}
