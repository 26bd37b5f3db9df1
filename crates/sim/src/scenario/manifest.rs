//! Manifests inside a scenario: the `deployments` block and the verbs `apply` and `up`.
//!
//! Owns: turning an embedded manifest into a command, with diagnostics that point into the scenario file.
//! Must not touch: the meaning of a manifest; the Compose crate has the only parser.

use longshore_compose::{Diagnostics, yaml::Node as Yaml};
use longshore_model::{Command, DeploymentName, NamespaceName, Time, command::Rerun};

use super::{Action, Step};

/// The deployments applied at 0 s, in order of their names.
pub(super) fn read_all(block: &Yaml, problems: &mut Diagnostics) -> Vec<Step> {
    read_block(block, "`deployments`", Time::default(), Rerun::IfChanged, problems)
}

/// The deployments an `apply` names.
pub(super) fn read_applied(block: &Yaml, at: Time, problems: &mut Diagnostics) -> Vec<Step> {
    read_block(block, "`apply`", at, Rerun::IfChanged, problems)
}

/// The deployments an `up` names: applied, and what runs once and has ended runs again.
pub(super) fn read_up(block: &Yaml, at: Time, problems: &mut Diagnostics) -> Vec<Step> {
    read_block(block, "`up`", at, Rerun::Always, problems)
}

fn read_block(block: &Yaml, what: &str, at: Time, rerun: Rerun, problems: &mut Diagnostics) -> Vec<Step> {
    let Some(mapping) = problems.mapping(block, what) else { return Vec::new() };
    let mut steps = Vec::new();
    for (key, text) in mapping.iter() {
        if problems.is_full() {
            break;
        }
        let namespace = NamespaceName::default_namespace();
        match longshore_compose::load_embedded(text, &key.name, namespace.as_str()) {
            Ok((spec, warnings)) => {
                problems.append(Diagnostics::from(warnings));
                let deployment = DeploymentName::from(&*key.name);
                let command = Command::Apply { namespace, deployment, spec: Box::new(spec), rerun };
                steps.push(Step { at, location: key.location.clone(), action: Action::Command(Box::new(command)) });
            }
            Err(found) => problems.append(found),
        }
    }
    steps.sort_by(|a, b| name(a).cmp(&name(b)));
    steps
}

fn name(step: &Step) -> Option<&DeploymentName> {
    let Action::Command(command) = &step.action else { return None };
    let Command::Apply { deployment, .. } = &**command else { return None };
    Some(deployment)
}
