//! The `images` block: how a virtual node behaves when it runs an image.
//!
//! Owns: the keys of an image and their defaults.
//! Must not touch: what a behaviour leads to; the virtual machine acts it out.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use longshore_compose::{Diagnostics, Extensions, reader::shorten, suggest, yaml::Node as Yaml};
use longshore_model::NodeName;

const KEYS: &[&str] = &["healthy", "on", "start", "pull", "exits", "after"];
const SECOND: Duration = Duration::from_secs(1);

/// How a virtual node behaves when it runs an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// What pulling it leads to.
    pub pull: Pull,
    /// Time from the container being made to the process having started.
    pub start: Duration,
    /// Whether its check ever passes.
    pub health: Check,
    /// The code it exits with, and how long after it started; `None` is never.
    pub exit: Option<(u8, Duration)>,
    /// Nodes on which it behaves so; on others, and where this is `None` nowhere else, it behaves well.
    pub on: Option<BTreeSet<NodeName>>,
}

/// What pulling leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// The image, after that time.
    Takes(Duration),
    /// Nothing, ever.
    Fails,
}

/// What a health check says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Healthy.
    Passes,
    /// Not.
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
                problems.error(&after.place, "`after` needs `exits`").hint("say which code it exits with: `exits: 1`");
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
    let takes = longshore_compose::units::parse_duration(text).ok();
    if takes.is_none() {
        let message = format!("`pull` must be `fail` or a duration such as `5s`, not `{}`", shorten(text));
        problems.error(&node.place, message);
    }
    takes.map(Pull::Takes)
}

fn read_exit(node: &Yaml, problems: &mut Diagnostics) -> Option<u8> {
    let code = problems.unsigned(node, "`exits`")?;
    let fits = u8::try_from(code).ok();
    if fits.is_none() {
        problems.error(&node.place, "`exits` must be an exit code from 0 to 255");
    }
    fits
}

/// An image that misbehaves on a node there never is would be a test of nothing.
pub(super) fn check_nodes(
    images: &BTreeMap<String, Image>,
    block: Option<&Yaml>,
    known: &BTreeSet<&NodeName>,
    problems: &mut Diagnostics,
) {
    for (name, image) in images {
        for node in image.on.iter().flatten().filter(|node| !known.contains(node)) {
            let place = block.and_then(|block| block.get(name)).and_then(|image| image.get("on"));
            let Some(place) = place.map(|on| &on.place) else { continue };
            let problem = problems.error(place, format!("there is no node `{}`", shorten(node.as_str())));
            if let Some(near) = suggest::nearest(node.as_str(), known.iter().map(|node| node.as_str())) {
                problem.hint(format!("did you mean `{near}`?"));
            }
        }
    }
}
