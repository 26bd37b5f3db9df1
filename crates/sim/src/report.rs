//! The object `sim run --json` prints.
//!
//! Owns: its shape, field by field as in the specification's §9.
//! Invariant: everything but `decide_us` follows from the scenario alone.

mod json;
mod pending;
mod sections;

use std::{collections::BTreeMap, time::Duration};

use longshore_model::{Event, GroupKey, Time};
use longshore_scheduler::View;
use longshore_store::State;
use serde::Serialize;

pub(crate) use self::pending::of_slot as pending_of_slot;
pub use self::{
    pending::Pending,
    sections::{DeploymentRow, NodeRow, ReplicaRow},
};
use crate::{invariants::Violation, timeline_log::Entry};

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The node of every replica that has one.
    pub placements: BTreeMap<String, String>,
    /// Every generation that was not observed stopped, and every slot without one.
    pub replicas: Vec<ReplicaRow>,
    /// Replicas without a node, with the reason.
    pub pending: Vec<Pending>,
    /// Every deployment.
    pub deployments: Vec<DeploymentRow>,
    /// The timeline.
    pub timeline: Vec<Entry>,
    /// Totals.
    pub stats: Stats,
    /// Violations of the safety invariants.
    pub violations: Vec<Violation>,
    /// The nodes at the end, for the text output; not part of the JSON object.
    pub nodes: Vec<NodeRow>,
    /// The virtual time of the end; not part of the JSON object.
    pub ended: Time,
}

/// Totals of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Scheduler passes.
    pub passes: u64,
    /// Generations that got a node.
    pub placements: u64,
    /// Slots that changed their node.
    pub moves: u64,
    /// Events of the state machine; not part of the JSON object.
    #[serde(skip)]
    pub events: u64,
    /// Total decision time, in microseconds of the real clock. The only value that differs between runs.
    pub decide_us: u64,
}

impl Stats {
    pub(crate) fn decided(&mut self, took: Duration) {
        self.passes += 1;
        self.decide_us += u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    }

    pub(crate) fn count(&mut self, event: &Event) {
        self.events += 1;
        self.placements += u64::from(matches!(event, Event::Placed { .. }));
    }
}

impl Report {
    pub(crate) fn new(
        cluster: &State,
        view: &mut View,
        ended: Time,
        timeline: Vec<Entry>,
        stats: Stats,
        violations: Vec<Violation>,
    ) -> Self {
        let groups: Vec<&GroupKey> = cluster.groups().map(|(key, _)| key).collect();
        Self {
            placements: sections::placements(cluster),
            replicas: sections::replicas(cluster),
            pending: groups.iter().flat_map(|key| pending::of_group(view, key, ended)).collect(),
            deployments: sections::deployments(cluster, view, ended),
            timeline,
            stats,
            violations,
            nodes: sections::nodes(cluster),
            ended,
        }
    }

    /// Renders one JSON object with one item per line, so that people and `diff` can read it.
    pub fn to_json(&self) -> String {
        json::render(self, &json::of(&self.stats))
    }

    /// [`Self::to_json`] without `decide_us`, the one value that differs between runs.
    pub fn to_golden(&self) -> String {
        let Stats { passes, placements, moves, .. } = &self.stats;
        json::render(self, &format!(r#"{{"passes":{passes},"placements":{placements},"moves":{moves}}}"#))
    }
}
