//! Which peers answer probes.
//!
//! Owns: what follows from answers and silence, which peers are probed in a round, and when a machine is cut off.
//! Must not touch: sockets and clocks. Invariant: a peer that was never probed is neither reachable nor unreachable.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use longshore_model::node::Overlay;
use serde::{Deserialize, Serialize};

use super::key::MeshPublicKey;

/// Silent rounds until a peer counts as unreachable. With a round a second, connections are kept from a machine that
/// was switched off within three seconds, and one lost packet changes nothing.
const SILENT_ROUNDS: u32 = 2;
/// Up to this many peers, all are probed in every round.
const PROBED_ALWAYS: usize = 50;
/// Above that, this many beside those with traffic.
const PROBED_OTHERS: usize = 16;
/// How long a machine has to reach none of its peers until it counts as cut off. It is longer than servers take to notice
/// that a node is down, so the survivor of two machines does not mistake the other's end for its own.
const CUT_OFF_AFTER: Duration = Duration::from_secs(15);

/// Whether a peer answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// It was not probed yet.
    #[default]
    Unknown,
    /// It answered.
    Reachable,
    /// It was silent.
    Unreachable,
}

/// What probes say of one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeerReach {
    pub(super) reach: Reach,
    /// Since when it is so.
    pub(super) since: Instant,
    is_awaited: bool,
    silent_rounds: u32,
}

/// What probes say of all peers.
#[derive(Default)]
pub(super) struct ReachTable(BTreeMap<MeshPublicKey, PeerReach>);

impl ReachTable {
    /// Forgets peers that are no longer any.
    pub(super) fn retain(&mut self, peers: &BTreeSet<MeshPublicKey>) {
        self.0.retain(|key, _| peers.contains(key));
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = (MeshPublicKey, PeerReach)> {
        self.0.iter().map(|(key, reach)| (*key, *reach))
    }

    /// Ends the round before, and begins one in which these peers are probed. Returns peers that became unreachable.
    pub(super) fn begin_round(&mut self, probed: &BTreeSet<MeshPublicKey>, now: Instant) -> Vec<MeshPublicKey> {
        let mut lost = Vec::new();
        for (key, peer) in &mut self.0 {
            peer.silent_rounds += u32::from(peer.is_awaited);
            peer.is_awaited = false;
            if peer.silent_rounds >= SILENT_ROUNDS && peer.reach != Reach::Unreachable {
                (peer.reach, peer.since) = (Reach::Unreachable, now);
                lost.push(*key);
            }
        }
        let new = PeerReach { reach: Reach::Unknown, since: now, is_awaited: false, silent_rounds: 0 };
        for key in probed {
            self.0.entry(*key).or_insert(new).is_awaited = true;
        }
        lost
    }

    /// A peer answered. Returns whether it did not before.
    pub(super) fn answered(&mut self, key: MeshPublicKey, now: Instant) -> bool {
        let Some(peer) = self.0.get_mut(&key) else { return false };
        (peer.is_awaited, peer.silent_rounds) = (false, 0);
        let is_news = peer.reach != Reach::Reachable;
        if is_news {
            (peer.reach, peer.since) = (Reach::Reachable, now);
        }
        is_news
    }

    /// Whether this machine is cut off from the peers that servers believe to be up.
    pub(super) fn overlay(&self, up: &BTreeSet<MeshPublicKey>, now: Instant) -> Overlay {
        let mut measured =
            self.0.iter().filter(|(key, peer)| up.contains(key) && peer.reach != Reach::Unknown).peekable();
        let is_measured = measured.peek().is_some();
        let is_silent = |peer: &PeerReach| {
            peer.reach == Reach::Unreachable && now.saturating_duration_since(peer.since) >= CUT_OFF_AFTER
        };
        if is_measured && measured.all(|(_, peer)| is_silent(peer)) { Overlay::Unreachable } else { Overlay::Reachable }
    }
}

/// The peers to probe in a round: all, or those with traffic and some others in turn.
pub(super) fn probed(
    peers: &BTreeSet<MeshPublicKey>,
    with_traffic: &BTreeSet<MeshPublicKey>,
    round: usize,
) -> BTreeSet<MeshPublicKey> {
    if peers.len() <= PROBED_ALWAYS {
        return peers.clone();
    }
    let others: Vec<MeshPublicKey> = peers.difference(with_traffic).copied().collect();
    let first = round.wrapping_mul(PROBED_OTHERS) % others.len().max(1);
    let others = others.iter().cycle().skip(first).take(PROBED_OTHERS.min(others.len()));
    others.chain(peers.intersection(with_traffic)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: u8) -> BTreeSet<MeshPublicKey> {
        (0..count).map(|number| MeshPublicKey([number; 32])).collect()
    }

    fn reach(table: &ReachTable, number: u8) -> Reach {
        table
            .peers()
            .find(|(key, _)| *key == MeshPublicKey([number; 32]))
            .map_or(Reach::Unknown, |(_, peer)| peer.reach)
    }

    #[test]
    fn one_lost_probe_changes_nothing_and_two_do() {
        let (mut table, peers, now) = (ReachTable::default(), keys(1), Instant::now());
        let peer = MeshPublicKey([0; 32]);
        table.begin_round(&peers, now);
        assert_eq!(reach(&table, 0), Reach::Unknown);
        assert!(table.answered(peer, now) && !table.answered(peer, now));
        table.begin_round(&peers, now);
        assert!(table.begin_round(&peers, now).is_empty());
        assert_eq!(reach(&table, 0), Reach::Reachable);
        assert_eq!(table.begin_round(&peers, now), [peer]);
        assert_eq!(reach(&table, 0), Reach::Unreachable);
        assert!(table.answered(peer, now));
        assert_eq!(reach(&table, 0), Reach::Reachable);
    }

    #[test]
    fn large_meshes_probe_peers_with_traffic_and_sixteen_others_in_turn() {
        let (peers, busy) = (keys(100), BTreeSet::from([MeshPublicKey([7; 32])]));
        assert_eq!(probed(&keys(50), &busy, 0).len(), 50);
        assert_eq!(probed(&peers, &busy, 0).len(), 17);
        let seen: BTreeSet<_> = (0..7).flat_map(|round| probed(&peers, &busy, round)).collect();
        assert_eq!(seen, peers);
    }

    #[test]
    fn a_machine_is_cut_off_only_after_all_peers_that_are_up_were_silent_for_long() {
        let (mut table, peers, began) = (ReachTable::default(), keys(2), Instant::now());
        let later = began + CUT_OFF_AFTER;
        assert_eq!(table.overlay(&peers, later), Overlay::Reachable);
        for _ in 0..3 {
            table.begin_round(&peers, began);
        }
        assert_eq!(table.overlay(&peers, began), Overlay::Reachable);
        assert_eq!(table.overlay(&peers, later), Overlay::Unreachable);
        assert_eq!(table.overlay(&BTreeSet::new(), later), Overlay::Reachable, "peers that are down do not count");
        table.answered(MeshPublicKey([1; 32]), later);
        assert_eq!(table.overlay(&peers, later), Overlay::Reachable);
    }
}
