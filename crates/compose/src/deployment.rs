//! From one merged tree to a [`DeploymentSpec`].
//!
//! Owns: the top-level keys, names, and the order in which the parts are read.
//! Must not touch: files and variables; the tree that comes in has neither `include` nor `${}` left.

use std::{collections::BTreeMap, sync::Arc};

use longshore_model::{DeploymentSpec, ServiceName, ServiceSpec};

use crate::{
    constraint,
    diagnostic::{Diagnostics, Place},
    keys::{self, Rule},
    scope::Scope,
    service::{self, Override, Recipe},
    whole::{self, Places},
    yaml::{Key, Mapping, Node},
};

/// Most services of a deployment: ten times the largest anybody has shown us, and still resolved in a moment.
const MAX_SERVICES: usize = 10_000;

/// Most ports of a deployment. There are no more in the world, and ranges make many of few words.
const MAX_PORTS: usize = 65_535;

/// Most mounts of a deployment: six for each service of the largest one.
const MAX_MOUNTS: usize = 60_000;

/// Most that patterns of a deployment may cost: one with a class for each service of the largest one.
const MAX_PATTERNS: usize = 20_000;

/// What services take together.
#[derive(Default)]
struct Totals {
    ports: usize,
    mounts: usize,
    patterns: usize,
}

impl Totals {
    /// Adds a service, or says what there is too much of.
    fn add(&mut self, spec: &ServiceSpec) -> Result<(), String> {
        let placement = &spec.placement;
        let rules = placement.constraints.iter().chain(placement.affinities.iter().map(|affinity| &affinity.matches));
        self.ports += spec.ports.len();
        self.mounts += spec.mounts.len();
        self.patterns += rules.map(constraint::cost).sum::<usize>();
        if self.ports > MAX_PORTS {
            return Err(format!("the deployment publishes more than {MAX_PORTS} ports"));
        }
        if self.mounts > MAX_MOUNTS {
            return Err(format!("the deployment has more than {MAX_MOUNTS} mounts"));
        }
        if self.patterns > MAX_PATTERNS {
            return Err("the deployment has too many regular expressions".to_owned());
        }
        Ok(())
    }
}

type TopRead = fn(&mut TopReader);

#[derive(Default)]
pub(crate) struct TopReader;

/// Keys at the top of a Compose file. They are read by section, in [`decode`]; the table only says what may stand there.
pub(crate) static TOP_KEYS: &[Rule<TopRead>] = &[
    Rule::honoured("configs", |_| {}, "files shown to services; `file`, `environment`, `content`, `external`"),
    Rule::accepted("include", "other files taken in when the file is read"),
    Rule::refused("models", "run the model as a service"),
    Rule::honoured("name", |_| {}, "name of the deployment, unless one is given at apply"),
    Rule::honoured("networks", |_| {}, "networks of the deployment"),
    Rule::honoured("secrets", |_| {}, "files shown to services, kept encrypted; `file`, `environment`, `external`"),
    Rule::honoured("services", |_| {}, "what to run"),
    Rule::accepted("version", "from older files; the current specification is always used"),
    Rule::honoured("volumes", |_| {}, "volumes of the deployment"),
];

/// What comes of a file.
pub(crate) struct Decoded {
    pub(crate) spec: DeploymentSpec,
    pub(crate) scope: Scope,
    pub(crate) builds: BTreeMap<ServiceName, Recipe>,
}

/// Reads the tree of a whole deployment.
pub(crate) fn decode(
    root: &Node,
    scope: Scope,
    mut overrides: BTreeMap<String, Override>,
    problems: &mut Diagnostics,
) -> Option<Decoded> {
    let mapping = problems.mapping(root, "a Compose file")?;
    keys::meet(TOP_KEYS, mapping, "the file", problems);
    let scope = scope.read(mapping, problems);
    let mut spec = DeploymentSpec::default();
    let (mut places, mut builds) = (Places::new(), BTreeMap::new());
    let mut totals = Totals::default();
    let services = services(mapping, &root.place, problems);
    if let Some((key, _)) = services.get(MAX_SERVICES) {
        problems.error(&key.place, format!("a deployment has at most {MAX_SERVICES} services"));
        return None;
    }
    for (key, node) in services {
        check_name(key, problems);
        let over = overrides.remove(&*key.name).unwrap_or_default();
        let (read, notes) = service::read(key, node, &scope, over, problems);
        let name = ServiceName::new(key.name.clone());
        if let Err(too_much) = totals.add(&read) {
            problems.error(&key.place, too_much);
            break;
        }
        if problems.is_full() {
            break;
        }
        builds.extend(notes.build.clone().map(|recipe| (name.clone(), recipe)));
        places.insert(name.clone(), (key.place.clone(), notes));
        spec.services.insert(name, read);
    }
    declare(&mut spec, &scope);
    whole::check(&spec, &places, &scope.inactive, problems);
    Some(Decoded { spec, scope, builds })
}

fn services<'n>(root: &'n Mapping, place: &Place, problems: &mut Diagnostics) -> Vec<(&'n Key, &'n Node)> {
    let Some(node) = root.get("services").filter(|node| !node.is_null()) else {
        let bare = root.iter().any(|(_, node)| node.get("image").is_some() || node.get("build").is_some());
        problems.error(place, "the file has no `services`").hint(if bare {
            "put all of it below `services:`; it was left out only in the first version of Compose"
        } else {
            "say what to run, for instance `services: {web: {image: \"nginx:1.27\"}}`"
        });
        return Vec::new();
    };
    problems.mapping(node, "`services`").map(|mapping| mapping.iter().collect()).unwrap_or_default()
}

fn check_name(key: &Key, problems: &mut Diagnostics) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let begins = key.name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !begins || !key.name.chars().all(allowed) || key.name.len() > 63 {
        let shown = crate::reader::shorten(&key.name);
        problems
            .error(&key.place, format!("`{shown}` is not a name for a service"))
            .hint("use up to 63 letters, digits, `-`, `_` and `.`, a letter or digit first");
    }
}

/// Only what some service uses is part of the deployment.
fn declare(spec: &mut DeploymentSpec, scope: &Scope) {
    let services: Vec<Arc<_>> = spec.services.values().cloned().collect();
    let volumes: BTreeMap<_, _> = scope.volumes.values().map(|declared| (&declared.key, declared)).collect();
    for service in services {
        for name in service.networks.keys() {
            if let Some(declared) = scope.networks.get(name) {
                spec.networks.insert(name.clone(), declared.spec.clone());
            }
        }
        for (key, _) in service.volumes() {
            if let Some(declared) = volumes.get(key) {
                spec.volumes.insert(key.name.to_string(), declared.spec.clone());
            }
        }
    }
}
