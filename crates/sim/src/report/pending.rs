//! What has no node, summed up per service and reason.
//!
//! Owns: the sentence that explains a refusal to a person.
//! Must not touch: the refusal; the scheduler gives the numbers.

use std::collections::BTreeMap;

use longshore_model::{Explanation, GroupKey, NearMiss, NodeName, Reason, SlotKey, Time};
use longshore_scheduler::View;
use serde::Serialize;

/// Replicas of one service that have no node, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pending {
    /// The deployment.
    pub deployment: String,
    /// The service.
    pub service: String,
    /// How many.
    pub count: usize,
    /// The first filter that leaves no node.
    pub reason: Reason,
    /// How many nodes each filter refuses on its own.
    pub refused: BTreeMap<Reason, u32>,
    /// The same in words.
    pub explain: String,
}

/// What of a group has no node, by reason.
pub(super) fn of_group(view: &mut View, key: &GroupKey, now: Time) -> Vec<Pending> {
    let mut by_reason: BTreeMap<Reason, Pending> = BTreeMap::new();
    for (slots, explanation) in longshore_scheduler::explain(view, key, now) {
        let pending = by_reason.entry(explanation.reason).or_insert_with(|| Pending::new(key, &explanation));
        pending.count += slots.len();
    }
    by_reason.into_values().collect()
}

/// Why one slot has no node.
pub(crate) fn of_slot(view: &mut View, key: &GroupKey, slot: &SlotKey, now: Time) -> Option<Pending> {
    let mut fates = longshore_scheduler::explain(view, key, now).into_iter();
    let (_, explanation) = fates.find(|(slots, _)| slots.contains(slot))?;
    Some(Pending { count: 1, ..Pending::new(key, &explanation) })
}

impl Pending {
    fn new(key: &GroupKey, explanation: &Explanation) -> Self {
        Self {
            deployment: key.deployment.to_string(),
            service: key.service.to_string(),
            count: 0,
            reason: explanation.reason,
            refused: explanation.refused.clone(),
            explain: sentence(explanation),
        }
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
        (Some(nearest), _) => format!("{fits} of {nodes} {plural} fit: {}", miss(nearest)),
        (None, _) => format!("{fits} of {nodes} {plural} fit"),
    }
}

/// Pinned hosts wait for each other: some may fit, so what is told is which do not, and what the nearest of them lacks.
fn hosts_missing(explanation: &Explanation) -> Option<String> {
    let missing = &explanation.missing;
    if missing.is_empty() {
        return None;
    }
    let names: Vec<&str> = missing.iter().map(NodeName::as_str).collect();
    let near = explanation.nearest.as_ref().filter(|nearest| missing.contains(&nearest.node));
    let near = near.map(|nearest| format!(": {}", miss(nearest))).unwrap_or_default();
    Some(format!("pinned hosts that cannot be used are {}{near}", names.join(", ")))
}

/// A volume's home that is away is what it waits for; what other nodes lack is beside the point.
fn home_offline(explanation: &Explanation) -> Option<String> {
    if explanation.reason != Reason::VolumeHomeNodeOffline {
        return None;
    }
    let lacks = &explanation.nearest.as_ref()?.lacks;
    lacks.iter().find(|lack| lack.reason() == explanation.reason).map(ToString::to_string)
}

fn miss(nearest: &NearMiss) -> String {
    let mut lacks = nearest.lacks.iter();
    let Some(first) = lacks.next() else { return format!("{} came closest", nearest.node) };
    lacks.fold(first.about(&nearest.node), |text, lack| format!("{text}, and {lack}"))
}

#[cfg(test)]
mod tests {
    use longshore_model::{Health, Intent, Refusal, units::MIB};

    use super::*;

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
        insta::assert_snapshot!(sentence(&explanation(3, vec![memory.clone()])),
            @"0 of 3 nodes fit: needs 832 MiB, best has 512 MiB free on n3");
        let paused = Refusal::NotReady { intent: Intent::Paused, health: Health::Ready };
        insta::assert_snapshot!(sentence(&explanation(1, vec![paused, memory])),
            @"0 of 1 node fit: n3 is paused, and has 512 MiB free, needs 832 MiB");
    }

    #[test]
    fn a_gate_speaks_for_itself_and_no_nodes_is_said_plainly() {
        let gated = Explanation {
            gate: Some(Refusal::SecretsMissing { names: vec!["db-pass".into()] }),
            ..explanation(3, vec![])
        };
        insta::assert_snapshot!(sentence(&gated), @"waits for secrets db-pass");
        insta::assert_snapshot!(sentence(&explanation(0, vec![])), @"there are no nodes");
        let pinned =
            Explanation { missing: vec!["h1".into(), "h2".into()], ..explanation(4, vec![Refusal::NotPinned]) };
        insta::assert_snapshot!(sentence(&pinned),
            @"pinned hosts that cannot be used are h1, h2");
        let paused = Refusal::NotReady { intent: Intent::Paused, health: Health::Ready };
        let near = Explanation { missing: vec!["h1".into(), "n3".into()], ..explanation(4, vec![paused]) };
        insta::assert_snapshot!(sentence(&near), @"pinned hosts that cannot be used are h1, n3: n3 is paused");
    }
}
