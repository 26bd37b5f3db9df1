//! Volume, network and log drivers beyond the built-in ones must be installed on the node.

use longshore_model::{Reason, Refusal};

use super::{CandidateNode, Filter, Nature, Scope};
use crate::request::PlacementRequest;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::PluginMissing, nature: Nature::Attribute, scope, check, explain };

fn scope(request: &PlacementRequest) -> Scope {
    if request.spec.placement.plugins.is_empty() { Scope::Idle } else { Scope::Class }
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    missing(request, candidate).is_none()
}

/// The first plugin that is not installed. `volume/x` may be installed as `volume/x` or `volume/x:latest`.
fn missing<'a>(request: &'a PlacementRequest, candidate: &CandidateNode<'_>) -> Option<&'a String> {
    let installed = &candidate.node.plugins;
    let wanted = request.spec.placement.plugins.iter();
    wanted.into_iter().find(|name| !installed.contains(*name) && !installed.contains(&format!("{name}:latest")))
}

fn explain(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Refusal {
    Refusal::Plugin { plugin: missing(request, candidate).cloned().unwrap_or_default() }
}
