//! The ways in.
//!
//! Owns: what callers ask for and get back.

use std::collections::BTreeMap;

use longshore_model::{DeploymentName, DeploymentSpec, NamespaceName};

use crate::{
    deployment,
    diagnostic::{Diagnostic, Diagnostics, Sources},
    scope::Scope,
    yaml::{self, Node, Origin},
};

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
    let root = yaml::parse_at(origin, text)?;
    let mut problems = Diagnostics::new();
    let scope = Scope {
        deployment: DeploymentName::from(deployment),
        namespace: NamespaceName::from(namespace),
        directory: ".".to_owned(),
        environment: BTreeMap::new(),
        volumes: BTreeMap::new(),
        networks: BTreeMap::new(),
        secrets: BTreeMap::new(),
        configs: BTreeMap::new(),
    };
    let decoded = deployment::decode(&root, scope, BTreeMap::new(), &mut problems);
    problems.sort();
    problems.judge(decoded.map(|decoded| decoded.spec))
}
