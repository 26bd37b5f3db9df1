//! Decodes a merged tree into a [`DeploymentSpec`].
//!
//! Owns: the top-level keys, names, and the order in which sections are read.
//! Must not touch: files and variables; `include` and `${}` are already resolved.

use std::{collections::BTreeMap, sync::Arc};

use longshore_model::{DeploymentSpec, ServiceName, ServiceSpec};

use crate::{
    constraint,
    declarations::Declarations,
    diagnostic::{Diagnostics, Location},
    keys::{self, Rule},
    service::{self, BuildSpec, Override},
    validate::{self, NotesByService},
    yaml::{Key, Mapping, Node},
};

/// Most services of a deployment: ten times the largest known one, and still resolved within a second.
const MAX_SERVICES: usize = 10_000;

/// Most ports of a deployment: all that exist; a short range can expand to as many.
const MAX_PORTS: usize = 65_535;

/// Most mounts of a deployment: six for each service of the largest one.
const MAX_MOUNTS: usize = 60_000;

/// Highest total cost of patterns of a deployment: one pattern with a class for each service of the largest one.
const MAX_PATTERNS: usize = 20_000;

/// Totals over all services.
#[derive(Default)]
struct Totals {
    ports: usize,
    mounts: usize,
    patterns: usize,
}

impl Totals {
    /// Adds a service; the error names the limit that is exceeded.
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

/// Top-level keys of a Compose file. [`decode`] reads them by section; the table only lists them.
pub(crate) static TOP_KEYS: &[Rule<TopRead>] = &[
    Rule::honoured("configs", |_| {}, "files mounted in services; `file`, `environment`, `content`, `external`"),
    Rule::accepted("include", "other files, included when the file is read"),
    Rule::refused("models", "run the model as a service"),
    Rule::honoured("name", |_| {}, "name of the deployment, unless one is given at apply"),
    Rule::honoured("networks", |_| {}, "networks of the deployment"),
    Rule::honoured("secrets", |_| {}, "files mounted in services, stored encrypted; `file`, `environment`, `external`"),
    Rule::honoured("services", |_| {}, "what to run"),
    Rule::accepted("version", "from older files; the current specification is always used"),
    Rule::honoured("volumes", |_| {}, "volumes of the deployment"),
];

/// A decoded deployment.
pub(crate) struct Decoded {
    pub(crate) spec: DeploymentSpec,
    pub(crate) declarations: Declarations,
    pub(crate) builds: BTreeMap<ServiceName, BuildSpec>,
}

/// Decodes the tree of a deployment.
pub(crate) fn decode(
    root: &Node,
    declarations: Declarations,
    mut overrides: BTreeMap<String, Override>,
    problems: &mut Diagnostics,
) -> Option<Decoded> {
    let mapping = problems.mapping(root, "a Compose file")?;
    keys::dispatch(TOP_KEYS, mapping, "the file", problems);
    let declarations = declarations.read(mapping, problems);
    let mut spec = DeploymentSpec::default();
    let (mut notes_by_service, mut builds) = (NotesByService::new(), BTreeMap::new());
    let mut totals = Totals::default();
    let services = services(mapping, &root.location, problems);
    if let Some((key, _)) = services.get(MAX_SERVICES) {
        problems.error(&key.location, format!("a deployment has at most {MAX_SERVICES} services"));
        return None;
    }
    for (key, node) in services {
        check_name(key, problems);
        let over = overrides.remove(&*key.name).unwrap_or_default();
        let (read, notes) = service::read(key, node, &declarations, over, problems);
        let name = ServiceName::new(key.name.clone());
        if let Err(too_much) = totals.add(&read) {
            problems.error(&key.location, too_much);
            break;
        }
        if problems.is_full() {
            break;
        }
        builds.extend(notes.build.clone().map(|recipe| (name.clone(), recipe)));
        notes_by_service.insert(name.clone(), (key.location.clone(), notes));
        spec.services.insert(name, read);
    }
    service::run_awaited_once(&mut spec, &notes_by_service);
    declare(&mut spec, &declarations);
    validate::check(&spec, &notes_by_service, &declarations.inactive, problems);
    Some(Decoded { spec, declarations, builds })
}

fn services<'n>(root: &'n Mapping, location: &Location, problems: &mut Diagnostics) -> Vec<(&'n Key, &'n Node)> {
    let Some(node) = root.get("services").filter(|node| !node.is_null()) else {
        let bare = root.iter().any(|(_, node)| node.get("image").is_some() || node.get("build").is_some());
        problems.error(location, "the file has no `services`").hint(if bare {
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
            .error(&key.location, format!("`{shown}` is not a name for a service"))
            .hint("use up to 63 letters, digits, `-`, `_` and `.`, a letter or digit first");
    }
}

/// Adds the networks and volumes that some service uses.
fn declare(spec: &mut DeploymentSpec, declarations: &Declarations) {
    let services: Vec<Arc<_>> = spec.services.values().cloned().collect();
    let volumes: BTreeMap<_, _> = declarations.volumes.values().map(|declared| (&declared.key, declared)).collect();
    for service in services {
        for name in service.networks.keys() {
            if let Some(declared) = declarations.networks.get(name) {
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
