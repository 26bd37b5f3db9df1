//! Problems that only the whole file shows: steps after the end of the run are errors, unknown pinned hosts are warnings.
//!
//! Owns: both checks. Must not touch: whether a single step is accepted; `check_steps` does that.

use std::{collections::BTreeSet, time::Duration};

use longshore_compose::{Diagnostics, suggest};
use longshore_model::{Command, DeploymentSpec, Node, NodeName, Time};

use super::{Action, Step, node_names};

/// Checks all steps of a run that starts with these nodes and ends at `until`.
pub(super) fn check(nodes: &[Node], steps: &[Step], until: Time, problems: &mut Diagnostics) {
    let known = node_names(nodes, steps);
    for step in steps {
        if step.at > until {
            too_late(step, until, problems);
            continue;
        }
        let Action::Command(command) = &step.action else { continue };
        let Command::Apply { spec, .. } = &**command else { continue };
        unknown_hosts(spec, step, &known, problems);
    }
}

/// An error, as the run would silently end without the step.
fn too_late(step: &Step, until: Time, problems: &mut Diagnostics) {
    let [at, end] = [step.at, until].map(|time| Duration::from_millis(time.0));
    problems
        .error(&step.location, format!("this step is never reached: it is due at {at:?}, and the run ends at {end:?}"))
        .hint(format!("set `until: {at:?}` or later"));
}

/// A warning only: a service may wait for a host that joins later, but a misspelt name looks the same.
fn unknown_hosts(spec: &DeploymentSpec, step: &Step, known: &BTreeSet<&NodeName>, problems: &mut Diagnostics) {
    for (service, spec) in &spec.services {
        for host in spec.placement.hosts.iter().filter(|host| !known.contains(host)) {
            let message = format!("service `{service}` is pinned to `{host}`, and no node of that name ever joins");
            let near = suggest::nearest(host.as_str(), known.iter().map(|node| node.as_str()));
            let hint = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => "it waits with `cannot_satisfy_host_placement`; add the node, or take the host out".to_owned(),
            };
            problems.warn(&step.location, message).hint(hint);
        }
    }
}
