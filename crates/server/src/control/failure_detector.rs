//! Failure detector: decides from heartbeats whether a node is ready, suspect or down.
//!
//! Owns: the last heartbeats, in the leader's memory only; only a change of health is committed.
//! Must not touch: clock and store. Both come in as values.
//! Invariant: a leader declares no node down that has not missed a full grace period under this leader.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use longshore_model::{ClusterConfig, Health, Node, NodeName, Time, agent_protocol::CleanupState};

/// The leader's failure detector.
#[derive(Debug)]
pub(crate) struct FailureDetector {
    /// Silence before this time does not count.
    silence_counts_from: Time,
    evaluated_at: Time,
    /// The heartbeat interval that nodes are told.
    interval: Duration,
    last_heartbeats: BTreeMap<NodeName, LastHeartbeat>,
}

#[derive(Clone, Copy, Debug)]
struct LastHeartbeat {
    at: Time,
    cleanup: CleanupState,
    /// The interval the node was told then: its silence is measured in these.
    interval: Duration,
}

impl FailureDetector {
    /// Starts to listen, to nodes with this heartbeat interval.
    pub(crate) const fn new(now: Time, interval: Duration) -> Self {
        Self { silence_counts_from: now, evaluated_at: now, interval, last_heartbeats: BTreeMap::new() }
    }

    /// A heartbeat arrived.
    pub(crate) fn record(&mut self, node: &NodeName, cleanup: CleanupState, at: Time) {
        self.last_heartbeats.insert(node.clone(), LastHeartbeat { at, cleanup, interval: self.interval });
    }

    /// The heartbeat interval for nodes.
    pub(crate) const fn interval(&self) -> Duration {
        self.interval
    }

    /// The nodes whose health changes.
    pub(crate) fn evaluate(
        &mut self,
        nodes: &[&Arc<Node>],
        config: &ClusterConfig,
        now: Time,
    ) -> Vec<(NodeName, Health)> {
        // A leader that was stopped itself, or whose clock jumped, has received no heartbeat meanwhile. It must not
        // blame the nodes.
        if now.since(self.evaluated_at) >= config.heartbeat_interval * config.suspect_after_missed {
            self.silence_counts_from = now;
        }
        if now < self.evaluated_at {
            self.clock_moved_back(now);
        }
        self.evaluated_at = now;
        self.interval = config.heartbeat_interval_for(nodes.len());
        let changes = nodes.iter().filter_map(|node| Some((node.name.clone(), self.next_health(node, config, now)?)));
        changes.collect()
    }

    /// The clock was set back. Heartbeats from ahead of it count as received now: otherwise no node would be missed
    /// until the clock has caught up.
    fn clock_moved_back(&mut self, now: Time) {
        self.silence_counts_from = now;
        for last in self.last_heartbeats.values_mut() {
            last.at = last.at.min(now);
        }
    }

    fn next_health(&self, node: &Node, config: &ClusterConfig, now: Time) -> Option<Health> {
        let last = self.last_heartbeats.get(&node.name);
        let since = last.map_or(self.silence_counts_from, |last| last.at.max(self.silence_counts_from));
        let interval = last.map_or(self.interval, |last| last.interval);
        let missed = intervals(now.since(since), interval);
        let settled =
            last.is_some_and(|last| last.cleanup == CleanupState::Done && last.at >= self.silence_counts_from);
        match node.health {
            Health::Ready | Health::Degraded if missed >= config.suspect_after_missed => Some(Health::Suspect),
            Health::Suspect if missed >= config.down_after_missed => Some(Health::Down),
            // A node that returns is ready only once it has cleaned up replicas that are no longer its own.
            Health::Suspect | Health::Down if settled && missed < config.suspect_after_missed => {
                Some(node.attributes.health_when_heard())
            }
            Health::Ready | Health::Degraded | Health::Suspect | Health::Down => None,
        }
    }
}

fn intervals(silence: Duration, interval: Duration) -> u32 {
    u32::try_from(silence.as_millis() / interval.as_millis().max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use longshore_model::{Capacity, NodeAttributes, Platform, node::NodeFingerprint};
    use longshore_store::State;

    use super::*;
    use crate::node_rpc::service::new_node;

    const SECOND: u64 = 1000;
    const BEAT: Duration = Duration::from_secs(1);

    fn node(health: Health) -> Arc<Node> {
        let survey = NodeFingerprint {
            platform: Platform::new("linux", "amd64"),
            capacity: Capacity::default(),
            drivers: BTreeSet::new(),
            engine_labels: BTreeMap::new(),
            plugins: BTreeSet::new(),
            network: None,
            flags: NodeAttributes::default(),
        };
        let node = new_node(&State::default(), "n1".into(), survey, Time(0));
        Arc::new(Node { health, ..node })
    }

    /// Evaluates every second from `from` to `to`, and returns the first change.
    fn watch(detector: &mut FailureDetector, health: Health, from: u64, to: u64) -> Option<(u64, Health)> {
        let node = node(health);
        (from..=to).find_map(|second| {
            let changes = detector.evaluate(&[&node], &ClusterConfig::default(), Time(second * SECOND));
            changes.first().map(|(_, health)| (second, *health))
        })
    }

    #[test]
    fn a_silent_node_is_suspect_after_three_heartbeats_and_down_after_ten() {
        let mut detector = FailureDetector::new(Time(0), BEAT);
        detector.record(&"n1".into(), CleanupState::Done, Time(2 * SECOND));
        assert_eq!(watch(&mut detector, Health::Ready, 1, 20), Some((5, Health::Suspect)));
        assert_eq!(watch(&mut detector, Health::Suspect, 5, 20), Some((12, Health::Down)));
    }

    #[test]
    fn many_nodes_get_a_longer_interval_and_silence_is_measured_in_it() {
        let mut detector = FailureDetector::new(Time(0), BEAT);
        let (config, node) = (ClusterConfig::default(), node(Health::Ready));
        detector.evaluate(&vec![&node; 5_000], &config, Time(SECOND));
        assert_eq!(detector.interval(), Duration::from_secs(5), "a thousand beats a second");
        detector.record(&"n1".into(), CleanupState::Done, Time(SECOND));
        // Most nodes are gone at once; this one still uses its old interval.
        assert_eq!(watch(&mut detector, Health::Ready, 2, 30), Some((16, Health::Suspect)));
        assert_eq!(detector.interval(), config.heartbeat_interval);
    }

    #[test]
    fn a_new_leader_declares_no_node_down_before_a_full_grace_period() {
        let mut detector = FailureDetector::new(Time(100 * SECOND), BEAT);
        assert_eq!(watch(&mut detector, Health::Suspect, 100, 120), Some((110, Health::Down)));
    }

    #[test]
    fn a_node_that_stops_after_the_clock_was_set_back_is_still_detected() {
        let mut detector = FailureDetector::new(Time(7200 * SECOND), BEAT);
        detector.record(&"n1".into(), CleanupState::Done, Time(7201 * SECOND));
        assert_eq!(watch(&mut detector, Health::Ready, 7201, 7202), None);
        // An hour back, and no heartbeat since.
        assert_eq!(watch(&mut detector, Health::Ready, 3602, 3700), Some((3605, Health::Suspect)));
        assert_eq!(watch(&mut detector, Health::Suspect, 3605, 3700), Some((3612, Health::Down)));
        detector.record(&"n1".into(), CleanupState::Done, Time(3613 * SECOND));
        assert_eq!(watch(&mut detector, Health::Down, 3613, 3614), Some((3613, Health::Ready)));
    }

    #[test]
    fn a_leader_that_was_stopped_does_not_blame_the_nodes() {
        let mut detector = FailureDetector::new(Time(0), BEAT);
        detector.record(&"n1".into(), CleanupState::Done, Time(SECOND));
        assert_eq!(watch(&mut detector, Health::Ready, 1, 2), None);
        assert_eq!(watch(&mut detector, Health::Ready, 60, 62), None, "the first look after a minute's sleep");
        assert_eq!(watch(&mut detector, Health::Ready, 63, 70), Some((63, Health::Suspect)));
    }

    #[test]
    fn a_node_that_returns_is_ready_once_it_has_settled() {
        let mut detector = FailureDetector::new(Time(0), BEAT);
        detector.record(&"n1".into(), CleanupState::InProgress, Time(SECOND));
        assert_eq!(watch(&mut detector, Health::Down, 1, 2), None);
        detector.record(&"n1".into(), CleanupState::Done, Time(2 * SECOND));
        assert_eq!(watch(&mut detector, Health::Down, 2, 2), Some((2, Health::Ready)));
    }
}
