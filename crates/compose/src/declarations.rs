//! What a service can refer to: declarations of the manifest, variables and directory.
//!
//! Owns: decoding the top-level sections `volumes`, `networks`, `secrets` and `configs`.
//! Must not touch: services; they read from here.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    DeploymentName, NamespaceName, NodeName, SecretName, VolumeKey, VolumeName,
    container::FileKind,
    service::{NetworkReach, NetworkSpec, VolumeSpec},
    volume::Sharing,
};

use crate::{
    diagnostic::{Diagnostics, Location},
    keys::{self, Rule},
    reader::Extensions,
    yaml::{Key, Mapping, Node},
};

/// A declared volume.
#[derive(Clone, Debug)]
pub struct VolumeDeclaration {
    /// Its identity in the cluster.
    pub key: VolumeKey,
    /// How it is created.
    pub spec: VolumeSpec,
    /// How many replicas may hold it.
    pub sharing: Sharing,
    /// Location of the declaration.
    pub location: Location,
}

/// A declared network.
#[derive(Clone, Debug)]
pub struct NetworkDeclaration {
    /// How it is created.
    pub spec: NetworkSpec,
    /// Location of the declaration.
    pub location: Location,
}

/// A declared secret or config.
#[derive(Clone, Debug)]
pub struct FileDeclaration {
    /// Its name in the cluster.
    pub name: SecretName,
    /// Secret or config.
    pub kind: FileKind,
    /// Source of its content.
    pub content: Content,
    /// Location of the declaration.
    pub location: Location,
}

/// Source of the content of a secret or config. The content itself is never part of a resolved manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Stored in the cluster already.
    Cluster,
    /// A file of the machine it is applied from.
    File(String),
    /// A variable of the caller's environment.
    Environment(String),
    /// Written in the manifest.
    Inline(String),
}

/// Everything a service can refer to.
#[derive(Clone, Debug)]
pub struct Declarations {
    /// The deployment, which names are derived from.
    pub deployment: DeploymentName,
    /// The namespace.
    pub namespace: NamespaceName,
    /// The base of relative paths.
    pub directory: String,
    /// Values of variables.
    pub environment: BTreeMap<String, String>,
    /// Services without an active profile.
    pub inactive: BTreeSet<String>,
    /// The cluster's nodes, where known.
    pub nodes: Option<BTreeSet<NodeName>>,
    /// `volumes`.
    pub volumes: BTreeMap<String, VolumeDeclaration>,
    /// `networks`, the implicit `default` included.
    pub networks: BTreeMap<String, NetworkDeclaration>,
    /// `secrets`.
    pub secrets: BTreeMap<String, FileDeclaration>,
    /// `configs`.
    pub configs: BTreeMap<String, FileDeclaration>,
    /// Further names that `links` give to services, by service.
    pub link_aliases: BTreeMap<String, BTreeSet<String>>,
}

impl Default for Declarations {
    fn default() -> Self {
        Self {
            deployment: DeploymentName::from("default"),
            namespace: NamespaceName::default_namespace(),
            directory: "/".to_owned(),
            environment: BTreeMap::new(),
            inactive: BTreeSet::new(),
            nodes: None,
            volumes: BTreeMap::new(),
            networks: BTreeMap::new(),
            secrets: BTreeMap::new(),
            configs: BTreeMap::new(),
            link_aliases: BTreeMap::new(),
        }
    }
}

impl Declarations {
    /// Reads the sections of a file.
    pub fn read(mut self, root: &Mapping, problems: &mut Diagnostics) -> Self {
        for (key, node) in section(root, "volumes", problems) {
            let read = self.volume(key, node, problems);
            self.volumes.insert(key.name.to_string(), read);
        }
        for (key, node) in section(root, "networks", problems) {
            let read = self.network(key, node, problems);
            self.networks.insert(key.name.to_string(), read);
        }
        for (key, node) in section(root, "secrets", problems) {
            let read = self.file(FileKind::Secret, key, node, problems);
            self.secrets.insert(key.name.to_string(), read);
        }
        for (key, node) in section(root, "configs", problems) {
            let read = self.file(FileKind::Config, key, node, problems);
            self.configs.insert(key.name.to_string(), read);
        }
        let name = format!("{}_default", self.deployment);
        self.networks.entry("default".to_owned()).or_insert_with(|| NetworkDeclaration {
            spec: NetworkSpec { name, ..NetworkSpec::default() },
            location: Location::start_of(""),
        });
        self
    }

    /// A path of the manifest, made absolute.
    pub fn absolute(&self, path: &str) -> String {
        crate::paths::join(&self.directory, path)
    }

    fn volume(&self, key: &Key, node: &Node, problems: &mut Diagnostics) -> VolumeDeclaration {
        let mut reader = VolumeReader {
            name: None,
            external: false,
            sharing: Sharing::Deployment,
            spec: VolumeSpec::default(),
            what: format!("volume `{}`", key.name),
            problems,
        };
        if let Some(mapping) = optional(node, &reader.what, reader.problems) {
            for (read, key, node) in keys::dispatch(VOLUME_KEYS, mapping, &reader.what, reader.problems) {
                read(&mut reader, key, node);
            }
        }
        let generated = format!("{}_{}", self.deployment, key.name);
        // `config` prints the generated name, and Compose's `config` does, too: it says nothing new.
        reader.spec.engine_name = reader.name.clone().filter(|name| *name != generated && !reader.external);
        let name = match (reader.name, reader.external) {
            (Some(name), _) => name,
            (None, true) => key.name.to_string(),
            (None, false) => generated,
        };
        reader.spec.external = reader.external;
        VolumeDeclaration {
            key: VolumeKey { namespace: self.namespace.clone(), name: VolumeName::new(name) },
            spec: reader.spec,
            sharing: reader.sharing,
            location: key.location.clone(),
        }
    }

    fn network(&self, key: &Key, node: &Node, problems: &mut Diagnostics) -> NetworkDeclaration {
        let mut reader = NetworkReader {
            name: None,
            spec: NetworkSpec::default(),
            what: format!("network `{}`", key.name),
            problems,
        };
        if let Some(mapping) = optional(node, &reader.what, reader.problems) {
            for (read, key, node) in keys::dispatch(NETWORK_KEYS, mapping, &reader.what, reader.problems) {
                read(&mut reader, key, node);
            }
        }
        let mut spec = reader.spec;
        spec.name = match (reader.name, spec.reach) {
            (Some(name), _) => name,
            (None, NetworkReach::External) => key.name.to_string(),
            (None, NetworkReach::Open | NetworkReach::Internal) => format!("{}_{}", self.deployment, key.name),
        };
        NetworkDeclaration { spec, location: key.location.clone() }
    }

    fn file(&self, kind: FileKind, key: &Key, node: &Node, problems: &mut Diagnostics) -> FileDeclaration {
        let word = match kind {
            FileKind::Secret => "secret",
            FileKind::Config => "config",
        };
        let mut reader =
            FileReader { name: None, contents: Vec::new(), what: format!("{word} `{}`", key.name), kind, problems };
        if let Some(mapping) = optional(node, &reader.what, reader.problems) {
            for (read, key, node) in keys::dispatch(FILE_KEYS, mapping, &reader.what, reader.problems) {
                read(&mut reader, key, node);
            }
        }
        let FileReader { name, contents, what, problems, .. } = reader;
        if contents.len() != 1 {
            problems
                .error(&key.location, format!("{what} must have exactly one source"))
                .hint("give one of `external: true`, `file`, `environment` or, for a config, `content`");
        }
        let content = contents.into_iter().next().unwrap_or(Content::Cluster);
        let name = match (name, &content) {
            (Some(name), _) => name,
            (None, Content::Cluster) => key.name.to_string(),
            (None, Content::File(_) | Content::Environment(_) | Content::Inline(_)) => {
                format!("{}_{}", self.deployment, key.name)
            }
        };
        let content = match content {
            Content::File(path) => Content::File(self.absolute(&path)),
            other @ (Content::Cluster | Content::Environment(_) | Content::Inline(_)) => other,
        };
        FileDeclaration { name: SecretName::new(name), kind, content, location: key.location.clone() }
    }
}

/// The entries of a top-level section, if it is there.
fn section<'n>(root: &'n Mapping, name: &str, problems: &mut Diagnostics) -> Vec<(&'n Key, &'n Node)> {
    let Some(node) = root.get(name) else { return Vec::new() };
    optional(node, format_args!("`{name}`"), problems).map(|mapping| mapping.iter().collect()).unwrap_or_default()
}

/// A mapping, or `None` for a null.
pub(crate) fn optional<'n>(
    node: &'n Node,
    what: impl std::fmt::Display,
    problems: &mut Diagnostics,
) -> Option<&'n Mapping> {
    if node.is_null() { None } else { problems.mapping(node, what) }
}

/// `external: true`, or the older `external: {name: x}`.
fn external(node: &Node, what: &str, name: &mut Option<String>, problems: &mut Diagnostics) -> bool {
    let Some(mapping) = node.as_mapping() else {
        return problems.boolean(node, format_args!("`external` of {what}")).unwrap_or(false);
    };
    problems.known_keys(mapping, format_args!("`external` of {what}"), &["name"], Extensions::Refused);
    if let Some(node) = mapping.get("name") {
        *name = problems.text(node, format_args!("`external.name` of {what}")).map(str::to_owned);
    }
    true
}

fn filled(pairs: BTreeMap<String, Option<String>>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key, value.unwrap_or_default())).collect()
}

pub(crate) struct VolumeReader<'p> {
    name: Option<String>,
    external: bool,
    sharing: Sharing,
    spec: VolumeSpec,
    what: String,
    problems: &'p mut Diagnostics,
}

type VolumeRead = fn(&mut VolumeReader<'_>, &Key, &Node);

/// Keys of a volume.
pub(crate) static VOLUME_KEYS: &[Rule<VolumeRead>] = &[
    Rule::honoured(
        "name",
        |r, _, node| r.name = text(r.problems, node, "name", &r.what),
        "name in the engine, used unchanged; unset, or `<deployment>_<key>` itself, it is `longshore_<deployment>_<key>`, with `<namespace>.` before the deployment outside `default`",
    ),
    Rule::honoured(
        "external",
        |r, _, node| r.external = external(node, &r.what, &mut r.name, r.problems),
        "exists already; its name is used unchanged",
    ),
    Rule::honoured(
        "driver",
        |r, _, node| r.spec.driver = text(r.problems, node, "driver", &r.what),
        "nodes without the plugin are not used; `local` needs none",
    ),
    Rule::honoured(
        "driver_opts",
        |r, _, node| r.spec.options = filled(r.problems.pairs(node, format_args!("`driver_opts` of {}", r.what))),
        "passed to the driver",
    ),
    Rule::honoured(
        "labels",
        |r, _, node| r.spec.labels = filled(r.problems.pairs(node, format_args!("`labels` of {}", r.what))),
        "set on the volume",
    ),
    Rule::honoured("x-longshore", |r, k, n| r.longshore(k, n), "`exclusive: true` allows one holder at a time"),
];

impl VolumeReader<'_> {
    fn longshore(&mut self, _: &Key, node: &Node) {
        let what = format!("`x-longshore` of {}", self.what);
        let Some(mapping) = optional(node, &what, self.problems) else { return };
        self.problems.known_keys(mapping, &what, &["exclusive"], Extensions::Refused);
        if let Some(node) = mapping.get("exclusive")
            && self.problems.boolean(node, format_args!("`exclusive` of {}", self.what)) == Some(true)
        {
            self.sharing = Sharing::Exclusive;
        }
    }
}

fn text(problems: &mut Diagnostics, node: &Node, key: &str, what: &str) -> Option<String> {
    if node.is_null() {
        return None;
    }
    problems.text(node, format_args!("`{key}` of {what}")).map(str::to_owned)
}

pub(crate) struct NetworkReader<'p> {
    name: Option<String>,
    spec: NetworkSpec,
    what: String,
    problems: &'p mut Diagnostics,
}

type NetworkRead = fn(&mut NetworkReader<'_>, &Key, &Node);

/// Keys of a network.
pub(crate) static NETWORK_KEYS: &[Rule<NetworkRead>] = &[
    Rule::honoured(
        "name",
        |r, _, node| r.name = text(r.problems, node, "name", &r.what),
        "name in the engine; else `longshore_<deployment>_<key>`, and so for a name that begins with `<deployment>_`, unless it is external",
    ),
    Rule::honoured(
        "external",
        |r, k, n| r.external(k, n),
        "exists already under its unchanged name: in the overlay a network that a deployment of the namespace declares, otherwise one of the engine",
    ),
    Rule::honoured(
        "driver",
        |r, _, node| r.spec.driver = text(r.problems, node, "driver", &r.what),
        "nodes without the plugin are not used; every node has `overlay` and `bridge`",
    ),
    Rule::honoured(
        "driver_opts",
        |r, _, node| r.spec.options = filled(r.problems.pairs(node, format_args!("`driver_opts` of {}", r.what))),
        "passed to the driver",
    ),
    Rule::honoured(
        "labels",
        |r, _, node| r.spec.labels = filled(r.problems.pairs(node, format_args!("`labels` of {}", r.what))),
        "set on the network",
    ),
    Rule::honoured("internal", |r, k, n| r.internal(k, n), "no external access from the network"),
    Rule::warned(
        "attachable",
        "the network is the deployment's own; to share one, create it and declare it `external`",
    ),
    Rule::warned("enable_ipv4", "the cluster decides which addresses replicas get; remove the key"),
    Rule::honoured(
        "enable_ipv6",
        |r, k, n| r.enable_ipv6(k, n),
        "in the overlay names on it resolve to IPv6 addresses, too; replicas have both kinds in any case",
    ),
    Rule::warned("ipam", "subnets are chosen for you; reach services by their names"),
];

impl NetworkReader<'_> {
    fn external(&mut self, _: &Key, node: &Node) {
        if external(node, &self.what, &mut self.name, self.problems) {
            self.spec.reach = NetworkReach::External;
        }
    }

    fn enable_ipv6(&mut self, _: &Key, node: &Node) {
        let named = self.problems.boolean(node, format_args!("`enable_ipv6` of {}", self.what));
        self.spec.enable_ipv6 = named == Some(true);
    }

    fn internal(&mut self, _: &Key, node: &Node) {
        let internal = self.problems.boolean(node, format_args!("`internal` of {}", self.what)) == Some(true);
        if internal && self.spec.reach == NetworkReach::Open {
            self.spec.reach = NetworkReach::Internal;
        }
    }
}

pub(crate) struct FileReader<'p> {
    name: Option<String>,
    contents: Vec<Content>,
    what: String,
    kind: FileKind,
    problems: &'p mut Diagnostics,
}

type FileRead = fn(&mut FileReader<'_>, &Key, &Node);

/// Keys of a secret or config.
pub(crate) static FILE_KEYS: &[Rule<FileRead>] = &[
    Rule::honoured(
        "name",
        |r, _, node| r.name = text(r.problems, node, "name", &r.what),
        "name in the cluster; else `<deployment>_<key>`",
    ),
    Rule::honoured(
        "external",
        |r, k, n| r.external(k, n),
        "the cluster must have it before anything is placed (`secrets_missing`)",
    ),
    Rule::honoured("file", |r, _, node| r.source(node, "file", Content::File), "content read at apply"),
    Rule::honoured(
        "environment",
        |r, _, node| r.source(node, "environment", Content::Environment),
        "content from a variable at apply",
    ),
    Rule::honoured("content", |r, k, n| r.content(k, n), "content in the manifest; configs only"),
    Rule::warned("labels", "secrets and configs of the cluster carry none; remove the key"),
    Rule::refused("driver", "the cluster keeps secrets itself; use `external: true`"),
    Rule::refused("driver_opts", "the cluster keeps secrets itself; use `external: true`"),
    Rule::refused(
        "template_driver",
        "render the template before applying, for instance with `${VARIABLES}` in `content`",
    ),
];

impl FileReader<'_> {
    fn external(&mut self, _: &Key, node: &Node) {
        if external(node, &self.what, &mut self.name, self.problems) {
            self.contents.push(Content::Cluster);
        }
    }

    fn source(&mut self, node: &Node, key: &str, make: fn(String) -> Content) {
        if let Some(text) = text(self.problems, node, key, &self.what) {
            self.contents.push(make(text));
        }
    }

    fn content(&mut self, key: &Key, node: &Node) {
        if self.kind == FileKind::Secret {
            self.problems
                .error(&key.location, format!("{} must not be written into the manifest", self.what))
                .hint("use `file` or `environment`, or create it in the cluster and say `external: true`");
            return;
        }
        self.source(node, "content", Content::Inline);
    }
}
