//! An image runs only on its operating system and processor; an empty part of a request is any.

use longshore_model::{Reason, Refusal};

use super::{Filter, Nature, Scope, Site};
use crate::ask::Ask;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::PlatformUnsupported, nature: Nature::Attribute, scope, check, explain };

fn scope(ask: &Ask) -> Scope {
    if ask.spec.placement.platforms.is_empty() { Scope::Idle } else { Scope::Class }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    let has = &site.node.platform;
    ask.spec.placement.platforms.iter().any(|wanted| part(&wanted.os, &has.os) && part(&wanted.arch, &has.arch))
}

/// Both sides are in canonical spelling, so `x86_64` and `amd64` are one.
fn part(wanted: &str, has: &str) -> bool {
    wanted.is_empty() || wanted.eq_ignore_ascii_case(has)
}

fn explain(_: &Ask, site: &Site<'_>) -> Refusal {
    Refusal::Platform { found: format!("{}/{}", site.node.platform.os, site.node.platform.arch) }
}
