//! Entry points: load from files, from one text, or from a text inside another file.
//!
//! Owns: the request and the result, and the default files and name.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    DeploymentName, DeploymentSpec, NamespaceName, NodeName, SecretName, ServiceName, container::FileKind,
};

use crate::{
    declarations::{Content, Declarations, FileDeclaration, VolumeDeclaration},
    deployment::{self, Decoded},
    diagnostic::{Diagnostic, Diagnostics, Location, Sources},
    files::{Files, Memory},
    interpolate::Variables,
    overlay::{self, Overlay},
    paths,
    project::{self, Loader},
    service::BuildSpec,
    yaml::{self, Node, Origin},
};

/// Default file names; the first that exists is used.
const DEFAULT_FILES: [&str; 4] = ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];
/// Merged onto a default file if one exists.
const DEFAULT_OVERRIDES: [&str; 4] =
    ["compose.override.yaml", "compose.override.yml", "docker-compose.override.yaml", "docker-compose.override.yml"];
const DEFAULT_OVERLAYS: [&str; 4] = ["longshore.yaml", "longshore.yml", "jaco.yaml", "jaco.yml"];

/// What to load.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Compose files in order, each merged onto those before; an overlay among them is recognised by its name.
    pub files: Vec<String>,
    /// The overlay, whatever its name.
    pub overlay: Option<String>,
    /// The caller's absolute working directory; file names are relative to it.
    pub working_directory: String,
    /// The base of relative paths; by default the first file's directory.
    pub project_directory: Option<String>,
    /// The caller's environment.
    pub environment: BTreeMap<String, String>,
    /// Env files instead of `.env`.
    pub env_files: Vec<String>,
    /// Active profiles.
    pub profiles: BTreeSet<String>,
    /// Name of the deployment; wins over names in files.
    pub name: Option<String>,
    /// The cluster's nodes, where known; a pinned host that is not among them gives a warning.
    pub nodes: Option<BTreeSet<NodeName>>,
    /// Namespace of the deployment; `None` is `default`.
    pub namespace: Option<String>,
}

/// A loaded deployment.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Name of the deployment.
    pub deployment: DeploymentName,
    /// Its namespace.
    pub namespace: NamespaceName,
    /// The resolved spec.
    pub spec: DeploymentSpec,
    /// Volumes that services use, by key.
    pub volumes: BTreeMap<String, VolumeDeclaration>,
    /// Secrets that services use, by key, with the source of their contents.
    pub secrets: BTreeMap<String, FileDeclaration>,
    /// The same for configs.
    pub configs: BTreeMap<String, FileDeclaration>,
    /// How images are built, by service.
    pub builds: BTreeMap<ServiceName, BuildSpec>,
    /// The variables, for contents that come from one.
    pub environment: BTreeMap<String, String>,
    /// Problems that are no errors.
    pub warnings: Vec<Diagnostic>,
}

/// Loads and resolves the files of a request.
pub fn load(request: &Request, files: &dyn Files) -> Result<Loaded, Diagnostics> {
    let (named, mut composes): (Vec<String>, Vec<String>) =
        request.files.iter().cloned().partition(|path| overlay::is_overlay(path));
    let overlays: Vec<String> = request.overlay.iter().cloned().chain(named).collect();
    let search_directory =
        overlays.first().or(composes.first()).map(|file| paths::parent(file).to_owned()).unwrap_or_default();
    let mut loader = Loader::new(files, &request.working_directory, String::new());
    let mut overlay_file = overlays.first().cloned();
    if composes.is_empty() {
        composes = match request.environment.get("COMPOSE_FILE").filter(|_| overlay_file.is_none()) {
            Some(listed) => listed.split(':').filter(|file| !file.is_empty()).map(str::to_owned).collect(),
            None => default_files(&loader, &search_directory),
        };
        overlay_file = overlay_file.or_else(|| first_existing(&loader, &search_directory, &DEFAULT_OVERLAYS));
    }
    let directory = match (&request.project_directory, composes.first()) {
        (Some(directory), _) => directory.clone(),
        (None, Some(file)) => paths::parent(file).to_owned(),
        (None, None) => search_directory.clone(),
    };
    loader.directory = paths::join(&request.working_directory, &directory);
    if let Some(second) = overlays.get(1) {
        loader.problems.error(&Location::start_of(second), "only one overlay can be given");
    }
    if composes.is_empty() {
        let message = format!("no Compose file; looked for {}", crate::diagnostic::one_of(DEFAULT_FILES));
        loader.problems.error(&Location::start_of("compose.yaml"), message).hint("name it with `-f FILE`");
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

fn default_files(loader: &Loader<'_>, search_directory: &str) -> Vec<String> {
    let Some(first) = first_existing(loader, search_directory, &DEFAULT_FILES) else { return Vec::new() };
    let mut found = vec![first];
    found.extend(first_existing(loader, search_directory, &DEFAULT_OVERRIDES));
    found
}

fn first_existing(loader: &Loader<'_>, search_directory: &str, names: &[&str]) -> Option<String> {
    names.iter().map(|name| paths::join(search_directory, name)).find(|path| loader.exists(path))
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

/// Resolves the merged tree into a deployment.
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
    let declarations = Declarations {
        deployment: DeploymentName::from(name),
        namespace: NamespaceName::from(request.namespace.as_deref().unwrap_or("default")),
        directory: loader.directory.clone(),
        environment: variables.values().clone(),
        inactive,
        nodes: request.nodes.clone(),
        ..Declarations::default()
    };
    let mut decoded = deployment::decode(&root, declarations, overlay.overrides(), &mut loader.problems)?;
    overlay.finish(&mut decoded, &mut loader.problems);
    Some(loaded(decoded))
}

fn loaded(decoded: Decoded) -> Loaded {
    let Decoded { spec, declarations, builds } = decoded;
    let mounted: BTreeSet<(SecretName, FileKind)> = spec
        .services
        .values()
        .flat_map(|service| service.container.files.iter().map(|mount| (mount.name.clone(), mount.kind)))
        .collect();
    let used = |declared: BTreeMap<String, FileDeclaration>| -> BTreeMap<String, FileDeclaration> {
        declared.into_iter().filter(|(_, file)| mounted.contains(&(file.name.clone(), file.kind))).collect()
    };
    let (secrets, configs) = (used(declarations.secrets), used(declarations.configs));
    let mounted = |volume: &VolumeDeclaration| spec.volumes.contains_key(volume.key.name.as_str());
    let volumes = declarations.volumes.into_iter().filter(|(_, volume)| mounted(volume)).collect();
    Loaded {
        deployment: declarations.deployment,
        namespace: declarations.namespace,
        spec,
        volumes,
        secrets,
        configs,
        builds,
        environment: declarations.environment,
        warnings: Vec::new(),
    }
}

fn read_overlay(loader: &mut Loader<'_>, path: &str) -> Overlay {
    let Some(text) = loader.text(path, &Location::start_of(path)) else { return Overlay::default() };
    match yaml::parse(path, &text) {
        Ok(node) => overlay::read(&node, &mut loader.problems),
        Err(problems) => {
            loader.problems.append(problems);
            Overlay::default()
        }
    }
}

/// The caller's variables win over env files. If the overlay names an env file, that is the only source, so that an
/// apply has the same result from any machine.
fn environment(
    loader: &mut Loader<'_>,
    request: &Request,
    overlay: &Overlay,
    overlay_file: Option<&str>,
) -> BTreeMap<String, String> {
    if let Some(given) = &overlay.environment {
        let path = paths::join(paths::parent(overlay_file.unwrap_or_default()), &given.value);
        return loader.variables(&path, &given.location, &BTreeMap::new());
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
        values.extend(loader.variables(&file, &Location::start_of(&file), &known));
    }
    values.extend(request.environment.clone());
    values
}

/// In order of precedence: the request, the overlay, `COMPOSE_PROJECT_NAME`, `name:` of the last file that has one, the
/// directory.
fn deployment_name(
    loader: &mut Loader<'_>,
    request: &Request,
    overlay: &Overlay,
    composes: &[String],
    variables: &mut Variables,
) -> String {
    let start = Location::start_of(composes.first().map_or("compose.yaml", String::as_str));
    let (name, location) = if let Some(name) = &request.name {
        (name.clone(), start)
    } else if let Some(given) = overlay.deployment.as_ref().filter(|given| !given.value.is_empty()) {
        (given.value.clone(), given.location.clone())
    } else if let Some(name) = variables.values().get("COMPOSE_PROJECT_NAME") {
        (name.clone(), start)
    } else if let Some((name, location)) = composes.iter().rev().find_map(|path| loader.name_in(path, variables)) {
        (name, location)
    } else {
        return name_of_directory(&loader.directory);
    };
    check_deployment_name(&name, &location, &mut loader.problems);
    name
}

fn name_of_directory(directory: &str) -> String {
    let lower = paths::last(directory).to_lowercase();
    let kept: String = lower.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect();
    let kept = kept.trim_start_matches(['-', '_']);
    if kept.is_empty() { "default".to_owned() } else { kept.to_owned() }
}

fn check_deployment_name(name: &str, location: &Location, problems: &mut Diagnostics) {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !begins || !name.chars().all(allowed) || name.len() > 63 {
        let message = format!("`{}` is not a name for a deployment", crate::reader::shorten(name));
        problems
            .error(location, message)
            .hint("use up to 63 small letters, digits, `-` and `_`, a letter or digit first");
    }
}

/// Resolves one Compose text that refers to no other file and no variable.
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

/// Resolves a Compose text that is a scalar of another file, as in scenarios; locations are those of that file.
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
    check_deployment_name(deployment, &root.location, &mut loader.problems);
    variables.apply(&mut root, &mut loader.problems);
    let request = Request { namespace: Some(namespace.to_owned()), ..Request::default() };
    let outcome = loader.resolve(root, &origin.file, &mut variables, &mut Vec::new()).and_then(|mut root| {
        crate::merge::apply_tags(&mut root);
        resolve(&mut loader, root, &request, Overlay::default(), deployment, &variables)
    });
    loader.problems.sort();
    loader.problems.judge(outcome.map(|loaded| loaded.spec))
}

impl FileDeclaration {
    /// The content, unless only the cluster has it. For a secret this is the secret value.
    pub fn content(&self, files: &dyn Files, environment: &BTreeMap<String, String>) -> Option<String> {
        match &self.content {
            Content::Cluster => None,
            Content::File(path) => files.read(path).ok(),
            Content::Environment(name) => environment.get(name).cloned(),
            Content::Inline(text) => Some(text.clone()),
        }
    }
}
