//! A resolved deployment as a Compose file in long syntax.
//!
//! Owns: what `longshore config` prints.
//! Must not touch: secret values, unless requested. The contents of configs are not secret.
//! Invariant: the printed file resolves to the same deployment with the same hashes.

use std::collections::BTreeMap;

use longshore_model::{
    service::{NetworkReach, NetworkSpec, Route, RouteTls},
    volume::Sharing,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    declarations::{Content, FileDeclaration, VolumeDeclaration},
    files::Files,
    load::Loaded,
};

mod service;

/// Whether values of secrets are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Secrets {
    /// Only their source.
    #[default]
    Hidden,
    /// Their values.
    Shown,
}

/// A mapping without null and empty values.
#[derive(Default)]
pub(crate) struct Section(Map<String, Value>);

impl Section {
    /// Adds a key unless its value is null or empty.
    pub(crate) fn put(&mut self, key: &str, value: impl Serialize) -> &mut Self {
        let value = serde_json::to_value(value).unwrap_or(Value::Null);
        let empty = match &value {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        };
        if !empty {
            self.0.insert(key.to_owned(), value);
        }
        self
    }

    /// Adds a key whatever its value.
    pub(crate) fn keep(&mut self, key: &str, value: impl Serialize) -> &mut Self {
        self.0.insert(key.to_owned(), serde_json::to_value(value).unwrap_or(Value::Null));
        self
    }

    pub(crate) fn done(self) -> Value {
        Value::Object(self.0)
    }
}

/// The deployment as a Compose file.
pub(crate) fn render(loaded: &Loaded, secrets: Secrets, files: &dyn Files) -> Value {
    let spec = &loaded.spec;
    let names = service::Names::of(loaded);
    let services: BTreeMap<&str, Value> =
        spec.services.iter().map(|(name, service)| (name.as_str(), service::render(service, &names))).collect();
    let volumes: BTreeMap<&str, Value> =
        loaded.volumes.iter().map(|(key, declared)| (key.as_str(), volume(declared))).collect();
    let networks: BTreeMap<&str, Value> =
        spec.networks.iter().map(|(key, spec)| (key.as_str(), network(spec))).collect();
    let file = |declared: &BTreeMap<String, FileDeclaration>, secrets: Secrets| -> BTreeMap<String, Value> {
        declared.iter().map(|(key, file)| (key.clone(), declaration(file, secrets, loaded, files))).collect()
    };
    let mut out = Section::default();
    out.keep("name", loaded.deployment.as_str()).keep("services", escape(json!(services)));
    out.put("volumes", escape(json!(volumes))).put("networks", escape(json!(networks)));
    out.put("secrets", escape(json!(file(&loaded.secrets, secrets))));
    out.put("configs", escape(json!(file(&loaded.configs, Secrets::Shown))));
    let routes: Vec<Value> = spec.routes.iter().map(route).collect();
    if !routes.is_empty() {
        out.put("x-longshore", json!({ "routes": routes }));
    }
    out.done()
}

/// Escapes dollar signs, which are literal after interpolation.
fn escape(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace('$', "$$")),
        Value::Array(items) => Value::Array(items.into_iter().map(escape).collect()),
        Value::Object(map) => Value::Object(map.into_iter().map(|(key, value)| (key, escape(value))).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

fn volume(declared: &VolumeDeclaration) -> Value {
    let spec = &declared.spec;
    let mut out = Section::default();
    out.keep("name", declared.key.name.as_str());
    if spec.external {
        out.put("external", true);
    }
    out.put("driver", &spec.driver).put("driver_opts", &spec.options).put("labels", &spec.labels);
    if declared.sharing == Sharing::Exclusive {
        out.put("x-longshore", json!({ "exclusive": true }));
    }
    out.done()
}

fn network(spec: &NetworkSpec) -> Value {
    let mut out = Section::default();
    out.keep("name", &spec.name).put("driver", &spec.driver);
    out.put("driver_opts", &spec.options).put("labels", &spec.labels);
    if spec.enable_ipv6 {
        out.put("enable_ipv6", true);
    }
    match spec.reach {
        NetworkReach::Open => {}
        NetworkReach::Internal => {
            out.put("internal", true);
        }
        NetworkReach::External => {
            out.put("external", true);
        }
    }
    out.done()
}

fn declaration(file: &FileDeclaration, secrets: Secrets, loaded: &Loaded, files: &dyn Files) -> Value {
    let mut out = Section::default();
    out.keep("name", file.name.as_str());
    match &file.content {
        Content::Cluster => {
            out.put("external", true);
        }
        Content::File(path) => {
            out.put("file", path);
        }
        Content::Environment(name) => {
            out.put("environment", name);
        }
        Content::Inline(text) => {
            out.keep("content", text);
        }
    }
    let is_secret = file.kind == longshore_model::container::FileKind::Secret;
    if is_secret && secrets == Secrets::Shown {
        out.put("x-value", file.content(files, &loaded.environment));
    }
    out.done()
}

fn route(route: &Route) -> Value {
    let mut out = Section::default();
    out.put("domain", &route.domain).put("service", route.service.as_str()).put("port", route.port);
    if !route.path.is_empty() {
        out.put("path", &route.path);
    }
    if route.tls == RouteTls::Off {
        out.put("tls", "off");
    }
    if route.strip_path {
        out.put("strip_path", true);
    }
    out.done()
}
