//! Volume, network and log drivers beyond the built-in ones must be installed on the node.

use longshore_model::{Reason, Refusal};

use super::{Filter, Nature, Scope, Site};
use crate::ask::Ask;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::PluginMissing, nature: Nature::Attribute, scope, check, explain };

fn scope(ask: &Ask) -> Scope {
    if ask.spec.placement.plugins.is_empty() { Scope::Idle } else { Scope::Class }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    missing(ask, site).is_none()
}

/// A plugin `volume/x` is there as `volume/x` or as `volume/x:latest`.
fn missing<'a>(ask: &'a Ask, site: &Site<'_>) -> Option<&'a String> {
    let installed = &site.node.plugins;
    let wanted = ask.spec.placement.plugins.iter();
    wanted.into_iter().find(|name| !installed.contains(*name) && !installed.contains(&format!("{name}:latest")))
}

fn explain(ask: &Ask, site: &Site<'_>) -> Refusal {
    Refusal::Plugin { plugin: missing(ask, site).cloned().unwrap_or_default() }
}
