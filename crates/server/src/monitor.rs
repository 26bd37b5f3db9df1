//! Who was heard of when, and what follows for a node's health.
//!
//! Owns: heartbeats, in the leader's memory alone; only a change of health is committed.
//! Must not touch: clock and store. Both come in as values.
//! Invariant: a leader calls no node down that it has not itself missed for one full grace.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use longshore_model::{ClusterConfig, Health, Node, NodeName, Time, work::Standing};

/// What a leader has heard.
#[derive(Debug)]
pub(crate) struct Monitor {
    /// Silence before this counts for nothing.
    listens_since: Time,
    looked_at: Time,
    /// How often nodes are told to beat.
    rhythm: Duration,
    heard: BTreeMap<NodeName, Heard>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    at: Time,
    standing: Standing,
    /// What it was told then: its silence counts in these.
    rhythm: Duration,
}

impl Monitor {
    /// A leader that begins to listen, to nodes that beat that often.
    pub(crate) const fn new(now: Time, rhythm: Duration) -> Self {
        Self { listens_since: now, looked_at: now, rhythm, heard: BTreeMap::new() }
    }

    /// A node beat.
    pub(crate) fn hear(&mut self, node: &NodeName, standing: Standing, at: Time) {
        self.heard.insert(node.clone(), Heard { at, standing, rhythm: self.rhythm });
    }

    /// How often nodes shall beat.
    pub(crate) const fn rhythm(&self) -> Duration {
        self.rhythm
    }

    /// Which nodes do better or worse than is known.
    pub(crate) fn judge(&mut self, nodes: &[&Arc<Node>], config: &ClusterConfig, now: Time) -> Vec<(NodeName, Health)> {
        // A leader that was itself stopped, or whose clock leapt, has heard nobody in the meantime. It must not take its
        // own absence for everybody else's.
        if now.since(self.looked_at) >= config.heartbeat_interval * config.suspect_after_missed {
            self.listens_since = now;
        }
        if now < self.looked_at {
            self.step_back(now);
        }
        self.looked_at = now;
        self.rhythm = config.beat_every(nodes.len());
        let changes = nodes.iter().filter_map(|node| Some((node.name.clone(), self.verdict(node, config, now)?)));
        changes.collect()
    }

    /// The clock was set back. What was heard ahead of it counts as heard now: else nobody would be missed until the clock
    /// is where it was.
    fn step_back(&mut self, now: Time) {
        self.listens_since = now;
        for heard in self.heard.values_mut() {
            heard.at = heard.at.min(now);
        }
    }

    fn verdict(&self, node: &Node, config: &ClusterConfig, now: Time) -> Option<Health> {
        let heard = self.heard.get(&node.name);
        let since = heard.map_or(self.listens_since, |heard| heard.at.max(self.listens_since));
        let rhythm = heard.map_or(self.rhythm, |heard| heard.rhythm);
        let missed = intervals(now.since(since), rhythm);
        let settled = heard.is_some_and(|heard| heard.standing == Standing::Settled && heard.at >= self.listens_since);
        match node.health {
            Health::Ready | Health::Degraded if missed >= config.suspect_after_missed => Some(Health::Suspect),
            Health::Suspect if missed >= config.down_after_missed => Some(Health::Down),
            // One that comes back is ready only once it has let go of what is no longer its own.
            Health::Suspect | Health::Down if settled && missed < config.suspect_after_missed => Some(Health::Ready),
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

    use longshore_model::{Capacity, Platform, node::Survey};
    use longshore_store::State;

    use super::*;
    use crate::reception::newcomer;

    const SECOND: u64 = 1000;
    const BEAT: Duration = Duration::from_secs(1);

    fn node(health: Health) -> Arc<Node> {
        let survey = Survey {
            platform: Platform::new("linux", "amd64"),
            capacity: Capacity::default(),
            drivers: BTreeSet::new(),
            engine_labels: BTreeMap::new(),
            plugins: BTreeSet::new(),
        };
        let node = newcomer(&State::default(), "n1".into(), survey, Time(0));
        Arc::new(Node { health, ..node })
    }

    /// Looks every second from `from` to `to`, and says what came of it last.
    fn watch(monitor: &mut Monitor, health: Health, from: u64, to: u64) -> Option<(u64, Health)> {
        let node = node(health);
        (from..=to).find_map(|second| {
            let changes = monitor.judge(&[&node], &ClusterConfig::default(), Time(second * SECOND));
            changes.first().map(|(_, health)| (second, *health))
        })
    }

    #[test]
    fn a_silent_node_is_suspect_after_three_beats_and_down_after_ten() {
        let mut monitor = Monitor::new(Time(0), BEAT);
        monitor.hear(&"n1".into(), Standing::Settled, Time(2 * SECOND));
        assert_eq!(watch(&mut monitor, Health::Ready, 1, 20), Some((5, Health::Suspect)));
        assert_eq!(watch(&mut monitor, Health::Suspect, 5, 20), Some((12, Health::Down)));
    }

    #[test]
    fn of_many_nodes_each_beats_less_often_and_is_missed_by_what_it_was_told() {
        let mut monitor = Monitor::new(Time(0), BEAT);
        let (config, node) = (ClusterConfig::default(), node(Health::Ready));
        monitor.judge(&vec![&node; 5_000], &config, Time(SECOND));
        assert_eq!(monitor.rhythm(), Duration::from_secs(5), "a thousand beats a second");
        monitor.hear(&"n1".into(), Standing::Settled, Time(SECOND));
        // Most nodes are gone at once; this one has not heard of it yet.
        assert_eq!(watch(&mut monitor, Health::Ready, 2, 30), Some((16, Health::Suspect)));
        assert_eq!(monitor.rhythm(), config.heartbeat_interval);
    }

    #[test]
    fn a_new_leader_calls_nobody_down_before_a_full_grace() {
        let mut monitor = Monitor::new(Time(100 * SECOND), BEAT);
        assert_eq!(watch(&mut monitor, Health::Suspect, 100, 120), Some((110, Health::Down)));
    }

    #[test]
    fn a_node_that_falls_silent_after_the_clock_was_set_back_is_missed_all_the_same() {
        let mut monitor = Monitor::new(Time(7200 * SECOND), BEAT);
        monitor.hear(&"n1".into(), Standing::Settled, Time(7201 * SECOND));
        assert_eq!(watch(&mut monitor, Health::Ready, 7201, 7202), None);
        // An hour back, and not a word from the node since.
        assert_eq!(watch(&mut monitor, Health::Ready, 3602, 3700), Some((3605, Health::Suspect)));
        assert_eq!(watch(&mut monitor, Health::Suspect, 3605, 3700), Some((3612, Health::Down)));
        monitor.hear(&"n1".into(), Standing::Settled, Time(3613 * SECOND));
        assert_eq!(watch(&mut monitor, Health::Down, 3613, 3614), Some((3613, Health::Ready)));
    }

    #[test]
    fn a_leader_that_was_stopped_does_not_blame_the_others() {
        let mut monitor = Monitor::new(Time(0), BEAT);
        monitor.hear(&"n1".into(), Standing::Settled, Time(SECOND));
        assert_eq!(watch(&mut monitor, Health::Ready, 1, 2), None);
        assert_eq!(watch(&mut monitor, Health::Ready, 60, 62), None, "the first look after a minute's sleep");
        assert_eq!(watch(&mut monitor, Health::Ready, 63, 70), Some((63, Health::Suspect)));
    }

    #[test]
    fn a_node_that_returns_is_ready_once_it_has_settled() {
        let mut monitor = Monitor::new(Time(0), BEAT);
        monitor.hear(&"n1".into(), Standing::Settling, Time(SECOND));
        assert_eq!(watch(&mut monitor, Health::Down, 1, 2), None);
        monitor.hear(&"n1".into(), Standing::Settled, Time(2 * SECOND));
        assert_eq!(watch(&mut monitor, Health::Down, 2, 2), Some((2, Health::Ready)));
    }
}
