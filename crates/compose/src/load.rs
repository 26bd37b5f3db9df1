//! The ways in: files, one text, or a text inside another file.
//!
//! Owns: what callers ask for and get back, which files and which name are used when none is given.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    DeploymentName, DeploymentSpec, NamespaceName, NodeName, SecretName, ServiceName, container::FileKind,
};

use crate::{
    deployment::{self, Decoded},
    diagnostic::{Diagnostic, Diagnostics, Place, Sources},
    files::{Files, Memory},
    interpolate::Variables,
    overlay::{self, Overlay},
    paths,
    project::{self, Loader},
    scope::{Content, FileDeclaration, Scope, VolumeDeclaration},
    service::Recipe,
    yaml::{self, Node, Origin},
};

/// Names looked for where no file is given, the first found wins.
const DEFAULT_FILES: [&str; 4] = ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];
/// Laid over a default file when it is there.
const DEFAULT_OVERRIDES: [&str; 4] =
    ["compose.override.yaml", "compose.override.yml", "docker-compose.override.yaml", "docker-compose.override.yml"];
const DEFAULT_OVERLAYS: [&str; 4] = ["longshore.yaml", "longshore.yml", "jaco.yaml", "jaco.yml"];

/// What is to be resolved.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Compose files in order, each laid over those before; an overlay among them is known by its name.
    pub files: Vec<String>,
    /// The overlay, whatever its name.
    pub overlay: Option<String>,
    /// Where the user is, absolute; files are named from there.
    pub working_directory: String,
    /// What relative paths are relative to; the first file's directory unless given.
    pub project_directory: Option<String>,
    /// Variables of the caller.
    pub environment: BTreeMap<String, String>,
    /// Files of variables instead of `.env`.
    pub env_files: Vec<String>,
    /// Profiles asked for.
    pub profiles: BTreeSet<String>,
    /// Name of the deployment, over everything that is written.
    pub name: Option<String>,
    /// The cluster's nodes, where they are known; a pinned host that is not among them is worth a warning.
    pub nodes: Option<BTreeSet<NodeName>>,
    /// Namespace of the deployment; `default` unless given.
    pub namespace: Option<String>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Name of the deployment.
    pub deployment: DeploymentName,
    /// Its namespace.
    pub namespace: NamespaceName,
    /// What is to run.
    pub spec: DeploymentSpec,
    /// Volumes that services use, by key.
    pub volumes: BTreeMap<String, VolumeDeclaration>,
    /// Secrets that services use, by key; where their contents come from.
    pub secrets: BTreeMap<String, FileDeclaration>,
    /// The same for configs.
    pub configs: BTreeMap<String, FileDeclaration>,
    /// How images are made, by the service that runs them.
    pub builds: BTreeMap<ServiceName, Recipe>,
    /// Variables that were known, for contents that come from one.
    pub environment: BTreeMap<String, String>,
    /// Worth knowing.
    pub warnings: Vec<Diagnostic>,
}

/// Resolves files.
pub fn load(request: &Request, files: &dyn Files) -> Result<Loaded, Diagnostics> {
    let (named, mut composes): (Vec<String>, Vec<String>) =
        request.files.iter().cloned().partition(|path| overlay::is_overlay(path));
    let overlays: Vec<String> = request.overlay.iter().cloned().chain(named).collect();
    let beside = overlays.first().or(composes.first()).map(|file| paths::parent(file).to_owned()).unwrap_or_default();
    let mut loader = Loader::new(files, &request.working_directory, String::new());
    let mut overlay_file = overlays.first().cloned();
    if composes.is_empty() {
        composes = match request.environment.get("COMPOSE_FILE").filter(|_| overlay_file.is_none()) {
            Some(listed) => listed.split(':').filter(|file| !file.is_empty()).map(str::to_owned).collect(),
            None => default_files(&loader, &beside),
        };
        overlay_file = overlay_file.or_else(|| first_existing(&loader, &beside, &DEFAULT_OVERLAYS));
    }
    let directory = match (&request.project_directory, composes.first()) {
        (Some(directory), _) => directory.clone(),
        (None, Some(file)) => paths::parent(file).to_owned(),
        (None, None) => beside.clone(),
    };
    loader.directory = paths::join(&request.working_directory, &directory);
    if let Some(second) = overlays.get(1) {
        loader.problems.error(&Place::start_of(second), "only one overlay can be given");
    }
    if composes.is_empty() {
        let message = format!("no Compose file; looked for {}", crate::diagnostic::one_of(DEFAULT_FILES));
        loader.problems.error(&Place::start_of("compose.yaml"), message).hint("name it with `-f FILE`");
        return Err(loader.problems);
    }
    let outcome = run(&mut loader, request, &composes, overlay_file.as_deref());
    let Loader { mut problems, sources, .. } = loader;
    problems.sort();
    problems.quote(&sources);
    problems.judge(outcome).map(|(mut loaded, warnings)| {
        loaded.warnings = warnings;
        loaded
    })
}

fn default_files(loader: &Loader<'_>, beside: &str) -> Vec<String> {
    let Some(first) = first_existing(loader, beside, &DEFAULT_FILES) else { return Vec::new() };
    let mut found = vec![first];
    found.extend(first_existing(loader, beside, &DEFAULT_OVERRIDES));
    found
}

fn first_existing(loader: &Loader<'_>, beside: &str, names: &[&str]) -> Option<String> {
    names.iter().map(|name| paths::join(beside, name)).find(|path| loader.exists(path))
}

fn run(loader: &mut Loader<'_>, request: &Request, composes: &[String], overlay_file: Option<&str>) -> Option<Loaded> {
    let overlay = match overlay_file {
        Some(path) => read_overlay(loader, path),
        None => Overlay::default(),
    };
    let mut variables = Variables::new(environment(loader, request, &overlay, overlay_file));
    let name = deployment_name(loader, request, &overlay, composes, &mut variables);
    variables.set("COMPOSE_PROJECT_NAME", &name);
    let root = loader.all(composes, &mut variables)?;
    resolve(loader, root, request, overlay, &name, &variables)
}

/// From the merged tree to the deployment.
fn resolve(
    loader: &mut Loader<'_>,
    mut root: Node,
    request: &Request,
    overlay: Overlay,
    name: &str,
    variables: &Variables,
) -> Option<Loaded> {
    let mut profiles = request.profiles.clone();
    if let Some(listed) = variables.values().get("COMPOSE_PROFILES") {
        profiles.extend(listed.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()));
    }
    let inactive = project::choose_profiles(&mut root, &profiles, &mut loader.problems);
    loader.fold_env_files(&mut root, variables.values());
    let scope = Scope {
        deployment: DeploymentName::from(name),
        namespace: NamespaceName::from(request.namespace.as_deref().unwrap_or("default")),
        directory: loader.directory.clone(),
        environment: variables.values().clone(),
        inactive,
        nodes: request.nodes.clone(),
        ..Scope::default()
    };
    let mut decoded = deployment::decode(&root, scope, overlay.overrides(), &mut loader.problems)?;
    overlay.finish(&mut decoded, &mut loader.problems);
    Some(loaded(decoded))
}

fn loaded(decoded: Decoded) -> Loaded {
    let Decoded { spec, scope, builds } = decoded;
    let mounted: BTreeSet<(SecretName, FileKind)> = spec
        .services
        .values()
        .flat_map(|service| service.container.files.iter().map(|mount| (mount.name.clone(), mount.kind)))
        .collect();
    let used = |declared: BTreeMap<String, FileDeclaration>| -> BTreeMap<String, FileDeclaration> {
        declared.into_iter().filter(|(_, file)| mounted.contains(&(file.name.clone(), file.kind))).collect()
    };
    let (secrets, configs) = (used(scope.secrets), used(scope.configs));
    let mounted = |volume: &VolumeDeclaration| spec.volumes.contains_key(volume.key.name.as_str());
    let volumes = scope.volumes.into_iter().filter(|(_, volume)| mounted(volume)).collect();
    Loaded {
        deployment: scope.deployment,
        namespace: scope.namespace,
        spec,
        volumes,
        secrets,
        configs,
        builds,
        environment: scope.environment,
        warnings: Vec::new(),
    }
}

fn read_overlay(loader: &mut Loader<'_>, path: &str) -> Overlay {
    let Some(text) = loader.text(path, &Place::start_of(path)) else { return Overlay::default() };
    match yaml::parse(path, &text) {
        Ok(node) => overlay::read(&node, &mut loader.problems),
        Err(problems) => {
            loader.problems.append(problems);
            Overlay::default()
        }
    }
}

/// The caller's variables win over files of them; an overlay's file is the only source, so that an apply means the same
/// from any machine.
fn environment(
    loader: &mut Loader<'_>,
    request: &Request,
    overlay: &Overlay,
    overlay_file: Option<&str>,
) -> BTreeMap<String, String> {
    if let Some(given) = &overlay.environment {
        let path = paths::join(paths::parent(overlay_file.unwrap_or_default()), &given.value);
        return loader.variables(&path, &given.place, &BTreeMap::new());
    }
    let files: Vec<String> = if request.env_files.is_empty() {
        let default = paths::join(&loader.directory, ".env");
        if loader.exists(&default) { vec![default] } else { Vec::new() }
    } else {
        request.env_files.clone()
    };
    let mut values = BTreeMap::new();
    for file in files {
        let mut known = values.clone();
        known.extend(request.environment.clone());
        values.extend(loader.variables(&file, &Place::start_of(&file), &known));
    }
    values.extend(request.environment.clone());
    values
}

/// Given name, overlay, `COMPOSE_PROJECT_NAME`, `name:` of the last file that has one, directory.
fn deployment_name(
    loader: &mut Loader<'_>,
    request: &Request,
    overlay: &Overlay,
    composes: &[String],
    variables: &mut Variables,
) -> String {
    let start = Place::start_of(composes.first().map_or("compose.yaml", String::as_str));
    let (name, place) = if let Some(name) = &request.name {
        (name.clone(), start)
    } else if let Some(given) = overlay.deployment.as_ref().filter(|given| !given.value.is_empty()) {
        (given.value.clone(), given.place.clone())
    } else if let Some(name) = variables.values().get("COMPOSE_PROJECT_NAME") {
        (name.clone(), start)
    } else if let Some((name, place)) = composes.iter().rev().find_map(|path| loader.name_in(path, variables)) {
        (name, place)
    } else {
        return name_of_directory(&loader.directory);
    };
    check_deployment_name(&name, &place, &mut loader.problems);
    name
}

fn name_of_directory(directory: &str) -> String {
    let lower = paths::last(directory).to_lowercase();
    let kept: String = lower.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect();
    let kept = kept.trim_start_matches(['-', '_']);
    if kept.is_empty() { "default".to_owned() } else { kept.to_owned() }
}

fn check_deployment_name(name: &str, place: &Place, problems: &mut Diagnostics) {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !begins || !name.chars().all(allowed) || name.len() > 63 {
        let message = format!("`{}` is not a name for a deployment", crate::reader::shorten(name));
        problems.error(place, message).hint("use up to 63 small letters, digits, `-` and `_`, a letter or digit first");
    }
}

/// Resolves one Compose text that needs nothing from outside: no other file, no variable.
pub fn load_text(
    file: &str,
    text: &str,
    deployment: &str,
    namespace: &str,
) -> Result<(DeploymentSpec, Vec<Diagnostic>), Diagnostics> {
    let mut sources = Sources::default();
    sources.insert(file, text);
    load_at(&Origin::file(file), text, deployment, namespace).map_err(|mut problems| {
        problems.quote(&sources);
        problems
    })
}

/// Resolves a Compose text that is a scalar of another file, as scenarios hold it; places are those of that file.
pub fn load_embedded(
    node: &Node,
    deployment: &str,
    namespace: &str,
) -> Result<(DeploymentSpec, Vec<Diagnostic>), Diagnostics> {
    let mut problems = Diagnostics::new();
    match problems.text(node, format_args!("the manifest of `{deployment}`")) {
        Some(text) => load_at(&Origin::inside(node), text, deployment, namespace),
        None => Err(problems),
    }
}

fn load_at(
    origin: &Origin,
    text: &str,
    deployment: &str,
    namespace: &str,
) -> Result<(DeploymentSpec, Vec<Diagnostic>), Diagnostics> {
    let mut root = yaml::parse_at(origin, text)?;
    let files = Memory::default();
    let mut loader = Loader::new(&files, "/", "/".to_owned());
    let mut variables = Variables::default();
    variables.set("COMPOSE_PROJECT_NAME", deployment);
    check_deployment_name(deployment, &root.place, &mut loader.problems);
    variables.apply(&mut root, &mut loader.problems);
    let request = Request { namespace: Some(namespace.to_owned()), ..Request::default() };
    let outcome = loader.resolve(root, &origin.file, &mut variables, &mut Vec::new()).and_then(|mut root| {
        crate::merge::settle_tags(&mut root);
        resolve(&mut loader, root, &request, Overlay::default(), deployment, &variables)
    });
    loader.problems.sort();
    loader.problems.judge(outcome.map(|loaded| loaded.spec))
}

impl FileDeclaration {
    /// The content, where it is to be had without the cluster. It is a secret's value if the file is a secret.
    pub fn content(&self, files: &dyn Files, environment: &BTreeMap<String, String>) -> Option<String> {
        match &self.content {
            Content::Cluster => None,
            Content::File(path) => files.read(path).ok(),
            Content::Environment(name) => environment.get(name).cloned(),
            Content::Inline(text) => Some(text.clone()),
        }
    }
}
