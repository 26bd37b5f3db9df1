//! The object `sim run --json` prints.
//!
//! Owns: its shape, field by field as in the specification's §9.
//! Invariant: everything but `decide_us` follows from the scenario alone.

mod json;
mod pending;
mod rows;

use std::{collections::BTreeMap, time::Duration};

use longshore_model::{Event, GroupKey, Time};
use longshore_scheduler::View;
use longshore_store::State;
use serde::Serialize;

pub(crate) use self::pending::of_slot as waits;
pub use self::{
    pending::Pending,
    rows::{DeploymentRow, NodeRow, ReplicaRow},
};
use crate::{chronicle::Entry, invariants::Violation};

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Report {
    /// Replica to node, for all that have one.
    pub placements: BTreeMap<String, String>,
    /// Every slot and every generation not yet seen stopped.
    pub replicas: Vec<ReplicaRow>,
    /// What has no node, and why.
    pub pending: Vec<Pending>,
    /// Every deployment.
    pub deployments: Vec<DeploymentRow>,
    /// What happened.
    pub timeline: Vec<Entry>,
    /// Sums.
    pub stats: Stats,
    /// Safety rules that were broken.
    pub violations: Vec<Violation>,
    /// The nodes at the end, for people; not part of the printed object.
    pub nodes: Vec<NodeRow>,
    /// When it ended; not part of the printed object.
    pub ended: Time,
}

/// Sums over a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Times the scheduler was asked.
    pub passes: u64,
    /// Generations that got a node.
    pub placements: u64,
    /// Slots that changed their node.
    pub moves: u64,
    /// Changes of the state; not part of the printed object.
    #[serde(skip)]
    pub events: u64,
    /// Time it took to decide, all in all. The only figure that differs between runs.
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
            placements: rows::placements(cluster),
            replicas: rows::replicas(cluster),
            pending: groups.iter().flat_map(|key| pending::of_group(view, key, ended)).collect(),
            deployments: rows::deployments(cluster, view, ended),
            timeline,
            stats,
            violations,
            nodes: rows::nodes(cluster),
            ended,
        }
    }

    /// As one JSON object with a row to a line, so that people and `diff` can read it too.
    pub fn to_json(&self) -> String {
        json::render(self, &json::of(&self.stats))
    }

    /// The same without the one figure that differs between runs.
    pub fn to_golden(&self) -> String {
        let Stats { passes, placements, moves, .. } = &self.stats;
        json::render(self, &format!(r#"{{"passes":{passes},"placements":{placements},"moves":{moves}}}"#))
    }
}
