//! How the image of a service is built.
//!
//! Owns: the keys of `build`. Must not touch: the spec, which names the image only.

use std::collections::BTreeMap;

use super::ServiceReader;
use crate::{
    keys::{self, Rule},
    yaml::{Key, Node, Value},
};

/// How the image of a service is built. The spec refers to the image by name only, so none of this is part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildSpec {
    /// The build context: an absolute local directory, or a URL.
    pub context: String,
    /// Path of the Dockerfile, relative to the context.
    pub dockerfile: Option<String>,
    /// The target stage.
    pub target: Option<String>,
    /// Network while building.
    pub network: Option<String>,
    /// Whether the build cache is ignored.
    pub no_cache: bool,
    /// Whether base images are pulled even if present.
    pub pull: bool,
    /// Build arguments; one without a value takes it from the builder's environment.
    pub args: BTreeMap<String, Option<String>>,
    /// Labels of the image.
    pub labels: BTreeMap<String, Option<String>>,
    /// Images whose layers may be reused as cache.
    pub cache_from: Vec<String>,
    /// Additional host names while building, `NAME:ADDRESS` or `NAME=ADDRESS`.
    pub extra_hosts: Vec<String>,
    /// Keys that only other builders support.
    pub unused: Vec<String>,
}

/// Reads nothing: the keys of `build` are passed to the builder.
pub(crate) type BuildRead = fn();

const BUILDER: &str = "for a builder; `longshore up` builds without it and says so";
const BUILT: &str = "used by `longshore up`; for several nodes images are built and pushed before an apply";

/// Keys of `build`.
pub(crate) static BUILD_KEYS: &[Rule<BuildRead>] = &[
    Rule::accepted("additional_contexts", BUILDER),
    Rule::accepted("args", BUILT),
    Rule::accepted("cache_from", BUILT),
    Rule::accepted("cache_to", BUILDER),
    Rule::accepted("context", BUILT),
    Rule::accepted("dockerfile", BUILT),
    Rule::accepted("dockerfile_inline", BUILDER),
    Rule::accepted("entitlements", BUILDER),
    Rule::accepted("extra_hosts", BUILT),
    Rule::accepted("isolation", BUILDER),
    Rule::accepted("labels", BUILT),
    Rule::accepted("network", BUILT),
    Rule::accepted("no_cache", BUILT),
    Rule::accepted("no_cache_filter", BUILDER),
    Rule::accepted("platforms", BUILDER),
    Rule::accepted("privileged", BUILDER),
    Rule::accepted("provenance", BUILDER),
    Rule::accepted("pull", BUILT),
    Rule::accepted("sbom", BUILDER),
    Rule::accepted("secrets", BUILDER),
    Rule::accepted("shm_size", BUILDER),
    Rule::accepted("ssh", BUILDER),
    Rule::accepted("tags", BUILDER),
    Rule::accepted("target", BUILT),
    Rule::accepted("ulimits", BUILDER),
];

impl ServiceReader<'_> {
    /// Reads `build` for the builder; it does not change the spec.
    pub(super) fn build(&mut self, key: &Key, node: &Node) {
        self.raw.build = Some(key.location.clone());
        let what = self.of(key);
        match &node.value {
            Value::Mapping(mapping) => {
                drop(keys::dispatch(BUILD_KEYS, mapping, &what, self.problems));
                self.notes.build = Some(self.recipe(node, &what));
            }
            Value::Scalar(_) => {
                let context = self.problems.text(node, &what).map(|context| self.context(context));
                self.notes.build = Some(BuildSpec { context: context.unwrap_or_default(), ..BuildSpec::default() });
            }
            Value::Sequence(_) => self.problems.wrong_shape(node, &what, "a path or a mapping"),
        }
    }

    fn recipe(&mut self, node: &Node, what: &str) -> BuildSpec {
        let problems = &mut *self.problems;
        let mut text = |key: &str| {
            let given = node.get(key).filter(|given| !given.is_null())?;
            problems.text(given, format_args!("`{key}` in {what}")).map(str::to_owned)
        };
        let (context, dockerfile) = (text("context"), text("dockerfile"));
        let (target, network) = (text("target"), text("network"));
        let (no_cache, pull) = (text("no_cache"), text("pull"));
        let mut pairs = |key: &str| {
            let given = node.get(key).filter(|given| !given.is_null());
            given.map(|given| problems.pairs(given, format_args!("`{key}` in {what}"))).unwrap_or_default()
        };
        let (args, labels) = (pairs("args"), pairs("labels"));
        let mut texts = |key: &str| {
            let given = node.get(key).filter(|given| given.as_sequence().is_some());
            given.map(|given| problems.texts(given, format_args!("`{key}` in {what}"))).unwrap_or_default()
        };
        let (cache_from, extra_hosts) = (texts("cache_from"), texts("extra_hosts"));
        let is_on = |given: Option<String>| given.as_deref() == Some("true");
        let unused = node.as_mapping().map(|mapping| mapping.iter().map(|(key, _)| key.name.to_string()));
        let unused = unused
            .into_iter()
            .flatten()
            .filter(|key| BUILD_KEYS.iter().any(|rule| rule.key == key && rule.explanation == BUILDER));
        BuildSpec {
            unused: unused.collect(),
            context: self.context(context.as_deref().unwrap_or(".")),
            dockerfile,
            target,
            network,
            no_cache: is_on(no_cache),
            pull: is_on(pull),
            args,
            labels,
            cache_from,
            extra_hosts,
        }
    }

    /// An absolute local directory; a URL stays as it is.
    fn context(&self, context: &str) -> String {
        if context.contains("://") || context.starts_with("git@") {
            context.to_owned()
        } else {
            self.declarations.absolute(context)
        }
    }
}
