//! What only the whole file shows: what would never happen is refused, and what is odd without being wrong is told.
//!
//! Owns: both. Must not touch: what a single step may ask; that is rehearsed.

use std::{collections::BTreeSet, time::Duration};

use longshore_compose::{Diagnostics, suggest};
use longshore_model::{Command, DeploymentSpec, Node, NodeName, Time};

use super::{Action, Step, node_names};

/// Looks at everything that happens, in a cluster of these nodes, until the run ends.
pub(super) fn note(nodes: &[Node], steps: &[Step], until: Time, problems: &mut Diagnostics) {
    let known = node_names(nodes, steps);
    for step in steps {
        if step.at > until {
            too_late(step, until, problems);
            continue;
        }
        let Action::Ask(command) = &step.action else { continue };
        let Command::Apply { spec, .. } = &**command else { continue };
        pinned_to_nobody(spec, step, &known, problems);
    }
}

/// Who reads the file believes that it happens; the run would end as if it had not been written.
fn too_late(step: &Step, until: Time, problems: &mut Diagnostics) {
    let [at, end] = [step.at, until].map(|time| Duration::from_millis(time.0));
    problems
        .error(&step.place, format!("this never happens: it is due at {at:?}, and the run ends at {end:?}"))
        .hint(format!("set `until: {at:?}` or later"));
}

/// A host may join after the run, so that waiting for it is an answer; a slip of the hand looks the same.
fn pinned_to_nobody(spec: &DeploymentSpec, step: &Step, known: &BTreeSet<&NodeName>, problems: &mut Diagnostics) {
    for (service, spec) in &spec.services {
        for host in spec.placement.hosts.iter().filter(|host| !known.contains(host)) {
            let message = format!("service `{service}` is pinned to `{host}`, and no node of that name is ever there");
            let near = suggest::nearest(host.as_str(), known.iter().map(|node| node.as_str()));
            let hint = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => "it waits with `cannot_satisfy_host_placement`; add the node, or take the host out".to_owned(),
            };
            problems.warn(&step.place, message).hint(hint);
        }
    }
}
