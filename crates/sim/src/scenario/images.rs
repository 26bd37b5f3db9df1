//! The `images` block: how a virtual node behaves when it runs an image.
//!
//! Owns: the keys of an image and their defaults.
//! Must not touch: the effects of a behaviour; the virtual node has them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use longshore_compose::{Diagnostics, Extensions, reader::shorten, suggest, yaml::Node as Yaml};
use longshore_model::{NodeName, replica::RegistryAnswer};

const KEYS: &[&str] = &["healthy", "on", "start", "pull", "exits", "after"];
const SECOND: Duration = Duration::from_secs(1);

/// How a virtual node behaves when it runs an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Whether and how fast it can be pulled.
    pub pull: Pull,
    /// Time from the creation of the container to the start of its process.
    pub start: Duration,
    /// Whether its health check passes.
    pub health: Check,
    /// Its exit code, and the time from start to exit; `None` is never.
    pub exit: Option<(u8, Duration)>,
    /// Nodes on which this behaviour applies, `None` for all; on other nodes the image has the defaults.
    pub on: Option<BTreeSet<NodeName>>,
}

/// The result of a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// Succeeds after that time.
    Takes(Duration),
    /// Never succeeds; a retry might.
    Fails,
    /// The registry answers, and no retry changes its answer.
    Refused(RegistryAnswer),
}

/// The result of a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The container is healthy.
    Passes,
    /// The container is unhealthy.
    Fails,
}

impl Default for Image {
    fn default() -> Self {
        Self { pull: Pull::Takes(SECOND), start: SECOND, health: Check::Passes, exit: None, on: None }
    }
}

impl Image {
    /// Whether it behaves this way on a node.
    pub fn applies_on(&self, node: &NodeName) -> bool {
        self.on.as_ref().is_none_or(|nodes| nodes.contains(node))
    }
}

pub(super) fn read(node: &Yaml, problems: &mut Diagnostics) -> BTreeMap<String, Image> {
    let Some(mapping) = problems.mapping(node, "`images`") else { return BTreeMap::new() };
    mapping.iter().filter_map(|(key, value)| Some((key.name.to_string(), read_image(value, problems)?))).collect()
}

fn read_image(node: &Yaml, problems: &mut Diagnostics) -> Option<Image> {
    let mapping = problems.mapping(node, "an image")?;
    problems.known_keys(mapping, "an image", KEYS, Extensions::Refused);
    let part = |key: &str| mapping.get(key).filter(|node| !node.is_null());
    let mut image = Image::default();
    if let Some(pull) = part("pull").and_then(|node| read_pull(node, problems)) {
        image.pull = pull;
    }
    if let Some(start) = part("start").and_then(|node| problems.duration(node, "`start`")) {
        image.start = start;
    }
    if part("healthy").and_then(|node| problems.boolean(node, "`healthy`")) == Some(false) {
        image.health = Check::Fails;
    }
    let after = part("after").and_then(|node| problems.duration(node, "`after`"));
    match part("exits") {
        Some(exits) => image.exit = read_exit(exits, problems).map(|code| (code, after.unwrap_or_default())),
        None => {
            if let Some(after) = part("after") {
                problems
                    .error(&after.location, "`after` needs `exits`")
                    .hint("say which code it exits with: `exits: 1`");
            }
        }
    }
    image.on = part("on").map(|node| problems.texts(node, "`on`").iter().map(|name| name.as_str().into()).collect());
    Some(image)
}

fn read_pull(node: &Yaml, problems: &mut Diagnostics) -> Option<Pull> {
    let text = problems.text(node, "`pull`")?;
    if text == "fail" {
        return Some(Pull::Fails);
    }
    if let Some(answer) = RegistryAnswer::ALL.iter().find(|answer| answer.as_str() == text) {
        return Some(Pull::Refused(*answer));
    }
    let takes = longshore_compose::units::parse_duration(text).ok();
    if takes.is_none() {
        let message =
            format!("`pull` must be `fail`, `not_found`, `denied` or a duration such as `5s`, not `{}`", shorten(text));
        problems.error(&node.location, message);
    }
    takes.map(Pull::Takes)
}

fn read_exit(node: &Yaml, problems: &mut Diagnostics) -> Option<u8> {
    let code = problems.unsigned(node, "`exits`")?;
    let fits = u8::try_from(code).ok();
    if fits.is_none() {
        problems.error(&node.location, "`exits` must be an exit code from 0 to 255");
    }
    fits
}

/// Refuses `on` with a node that never exists: the behaviour would never apply.
pub(super) fn check_nodes(
    images: &BTreeMap<String, Image>,
    block: Option<&Yaml>,
    known: &BTreeSet<&NodeName>,
    problems: &mut Diagnostics,
) {
    for (name, image) in images {
        for node in image.on.iter().flatten().filter(|node| !known.contains(node)) {
            let location = block.and_then(|block| block.get(name)).and_then(|image| image.get("on"));
            let Some(location) = location.map(|on| &on.location) else { continue };
            let problem = problems.error(location, format!("there is no node `{}`", shorten(node.as_str())));
            if let Some(near) = suggest::nearest(node.as_str(), known.iter().map(|node| node.as_str())) {
                problem.hint(format!("did you mean `{near}`?"));
            }
        }
    }
}
