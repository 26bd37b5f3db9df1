//! The node's operating system and architecture match a platform of the service; an empty part matches any.

use longshore_model::{Reason, Refusal};

use super::{CandidateNode, Filter, Nature, Scope};
use crate::request::PlacementRequest;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::PlatformUnsupported, nature: Nature::Attribute, scope, check, explain };

fn scope(request: &PlacementRequest) -> Scope {
    if request.spec.placement.platforms.is_empty() { Scope::Idle } else { Scope::Class }
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    let has = &candidate.node.platform;
    request.spec.placement.platforms.iter().any(|wanted| part(&wanted.os, &has.os) && part(&wanted.arch, &has.arch))
}

/// Both sides use canonical names, so `x86_64` matches `amd64`.
fn part(wanted: &str, has: &str) -> bool {
    wanted.is_empty() || wanted.eq_ignore_ascii_case(has)
}

fn explain(_: &PlacementRequest, candidate: &CandidateNode<'_>) -> Refusal {
    Refusal::Platform { found: format!("{}/{}", candidate.node.platform.os, candidate.node.platform.arch) }
}
