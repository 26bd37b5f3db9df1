//! The text of an [`Explanation`].
//!
//! Owns: the sentence shown to people when no node fits.
//! Must not touch: the refusals and their numbers.

use std::fmt;

use crate::{Explanation, NearMiss, NodeName, Reason};

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&sentence(self))
    }
}

fn sentence(explanation: &Explanation) -> String {
    if let Some(gate) = &explanation.gate {
        return gate.to_string();
    }
    if let Some(home) = home_offline(explanation) {
        return home;
    }
    if let Some(hosts) = hosts_missing(explanation) {
        return hosts;
    }
    let (nodes, fits) = (explanation.nodes, explanation.fits);
    let plural = if nodes == 1 { "node" } else { "nodes" };
    match (&explanation.nearest, nodes) {
        (_, 0) => "there are no nodes".to_owned(),
        (Some(nearest), _) => {
            format!("{fits} of {nodes} {plural} fit: {}{}", near_miss_text(nearest), others(explanation, nearest))
        }
        (None, _) => format!("{fits} of {nodes} {plural} fit"),
    }
}

/// Pinned hosts are used all or none, and some may fit: names those that do not, and what the nearest of them lacks.
fn hosts_missing(explanation: &Explanation) -> Option<String> {
    let missing = &explanation.missing;
    if missing.is_empty() {
        return None;
    }
    let names: Vec<&str> = missing.iter().map(NodeName::as_str).collect();
    let near = explanation.nearest.as_ref().filter(|nearest| missing.contains(&nearest.node));
    let near = near.map(|nearest| format!(": {}", near_miss_text(nearest))).unwrap_or_default();
    Some(format!("pinned hosts that cannot be used are {}{near}", names.join(", ")))
}

/// Where a volume's home node is offline, only that matters; what other nodes lack is left out.
fn home_offline(explanation: &Explanation) -> Option<String> {
    if explanation.reason != Reason::VolumeHomeNodeOffline {
        return None;
    }
    let lacks = &explanation.nearest.as_ref()?.lacks;
    lacks.iter().find(|lack| lack.reason() == explanation.reason).map(ToString::to_string)
}

fn near_miss_text(nearest: &NearMiss) -> String {
    let mut lacks = nearest.lacks.iter();
    let Some(first) = lacks.next() else { return format!("{} came closest", nearest.node) };
    lacks.fold(first.sentence_about(&nearest.node), |text, lack| format!("{text}, and {lack}"))
}

/// How many more nodes do not meet the constraints, where one that does not is named.
fn others(explanation: &Explanation, nearest: &NearMiss) -> String {
    let reason = Reason::ConstraintUnsatisfied;
    let refused = explanation.refused.get(&reason).copied().unwrap_or(0);
    let named = nearest.lacks.first().is_some_and(|lack| lack.reason() == reason);
    match refused.saturating_sub(1) {
        1 if named => "; 1 more does not meet the constraints either".to_owned(),
        more if named && more > 1 => format!("; {more} more do not meet the constraints either"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Health, Intent, Refusal, units::MIB};

    fn explanation(nodes: u32, lacks: Vec<Refusal>) -> Explanation {
        Explanation {
            reason: Reason::NoCapacityMemory,
            nodes,
            fits: 0,
            refused: BTreeMap::new(),
            nearest: (!lacks.is_empty()).then(|| NearMiss { node: "n3".into(), lacks }),
            gate: None,
            missing: Vec::new(),
        }
    }

    #[test]
    fn the_nearest_miss_is_named_with_its_numbers() {
        let memory = Refusal::Memory { needed: 832 * MIB, free: 512 * MIB };
        assert_eq!(
            sentence(&explanation(3, vec![memory.clone()])),
            "0 of 3 nodes fit: needs 832 MiB, best has 512 MiB free on n3"
        );
        let paused = Refusal::NotReady { intent: Intent::Paused, health: Health::Ready };
        assert_eq!(
            sentence(&explanation(1, vec![paused, memory])),
            "0 of 1 node fit: n3 is paused, and has 512 MiB free, needs 832 MiB"
        );
    }

    #[test]
    fn an_unmet_constraint_says_how_many_nodes_do_not_meet_it() {
        let lacks = vec![Refusal::Constraint { constraint: "node.labels.disk == ssd".to_owned(), found: None }];
        let refused = |count| BTreeMap::from([(Reason::ConstraintUnsatisfied, count)]);
        let text = |count| sentence(&Explanation { refused: refused(count), ..explanation(3, lacks.clone()) });
        let first = "0 of 3 nodes fit: n3 lacks the attribute, wanted node.labels.disk == ssd";
        assert_eq!(text(1), first);
        assert_eq!(text(2), format!("{first}; 1 more does not meet the constraints either"));
        assert_eq!(text(3), format!("{first}; 2 more do not meet the constraints either"));
    }

    #[test]
    fn a_refusal_before_any_node_and_an_empty_cluster_have_their_own_sentence() {
        let gated = Explanation {
            gate: Some(Refusal::SecretsMissing { names: vec!["db-pass".into()] }),
            ..explanation(3, vec![])
        };
        assert_eq!(sentence(&gated), "waits for secrets db-pass");
        assert_eq!(sentence(&explanation(0, vec![])), "there are no nodes");
        let pinned =
            Explanation { missing: vec!["h1".into(), "h2".into()], ..explanation(4, vec![Refusal::NotPinned]) };
        assert_eq!(sentence(&pinned), "pinned hosts that cannot be used are h1, h2");
        let paused = Refusal::NotReady { intent: Intent::Paused, health: Health::Ready };
        let near = Explanation { missing: vec!["h1".into(), "n3".into()], ..explanation(4, vec![paused]) };
        assert_eq!(sentence(&near), "pinned hosts that cannot be used are h1, n3: n3 is paused");
    }
}
