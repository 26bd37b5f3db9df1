//! How an image is made, for whoever makes it.
//!
//! Owns: the keys of `build`. Must not touch: the spec; what runs is known by the image's name, however it was made.

use std::collections::BTreeMap;

use super::ServiceReader;
use crate::{
    keys::{self, Rule},
    yaml::{Key, Node, Value},
};

/// How the image of a service is made. What runs is known by its name alone, so nothing of this is part of a spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipe {
    /// A folder of this machine, absolute; or a place elsewhere.
    pub context: String,
    /// The file that says how, seen from the context.
    pub dockerfile: Option<String>,
    /// The stage to stop at.
    pub target: Option<String>,
    /// Network while building.
    pub network: Option<String>,
    /// Whether everything is made anew.
    pub no_cache: bool,
    /// Whether the images it begins with are looked for anew.
    pub pull: bool,
    /// Variables; one without a value has that of the builder's environment.
    pub args: BTreeMap<String, Option<String>>,
    /// Labels of the image.
    pub labels: BTreeMap<String, Option<String>>,
    /// Images whose layers may be used again.
    pub cache_from: Vec<String>,
    /// Names known while building, `NAME:ADDRESS` or `NAME=ADDRESS`.
    pub extra_hosts: Vec<String>,
    /// Keys that are for other builders.
    pub unused: Vec<String>,
}

/// Reads nothing: a key of `build` is the builder's.
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
    /// Building is the work of a builder; what runs is known by the name of what it makes.
    pub(super) fn build(&mut self, key: &Key, node: &Node) {
        self.asked.build = Some(key.place.clone());
        let what = self.of(key);
        match &node.value {
            Value::Mapping(mapping) => {
                drop(keys::meet(BUILD_KEYS, mapping, &what, self.problems));
                self.notes.build = Some(self.recipe(node, &what));
            }
            Value::Scalar(_) => {
                let context = self.problems.text(node, &what).map(|context| self.context(context));
                self.notes.build = Some(Recipe { context: context.unwrap_or_default(), ..Recipe::default() });
            }
            Value::Sequence(_) => self.problems.wrong_shape(node, &what, "a path or a mapping"),
        }
    }

    fn recipe(&mut self, node: &Node, what: &str) -> Recipe {
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
            .filter(|key| BUILD_KEYS.iter().any(|rule| rule.key == key && rule.says == BUILDER));
        Recipe {
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

    /// A folder of this machine, absolute; or a place elsewhere, as it is.
    fn context(&self, context: &str) -> String {
        if context.contains("://") || context.starts_with("git@") {
            context.to_owned()
        } else {
            self.scope.absolute(context)
        }
    }
}
