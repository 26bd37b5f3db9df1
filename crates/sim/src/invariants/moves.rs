//! The rebalancer moves one replica at a time in the whole cluster, none twice within ten minutes, and never one with data,
//! nor of a global service or a job.

use std::{collections::BTreeMap, time::Duration};

use longshore_model::{GroupKey, ServiceKind, SlotKey, Time, rebalance::Move};
use longshore_store::State;

pub(super) const NAME: &str = "moves";

/// Shortest time between two moves of one replica.
const COOLDOWN: Duration = Duration::from_mins(10);
/// Shortest time between any two moves: a cycle, less the skew between leaders' clocks.
const CYCLE: Duration = Duration::from_secs(29);

/// The moves so far.
#[derive(Debug, Default)]
pub(super) struct Moves {
    last_by_slot: BTreeMap<(GroupKey, SlotKey), Time>,
    last: Option<Time>,
}

impl Moves {
    /// Records a move and returns its violations.
    pub(super) fn record(&mut self, made: &Move, state: &State) -> Vec<String> {
        let printed = made.key.slot.replica_id(&made.key.group);
        let mut messages = Vec::new();
        let before = self.last_by_slot.insert((made.key.group.clone(), made.key.slot.clone()), made.at);
        if before.is_some_and(|before| apart(before, made.at) < COOLDOWN) {
            messages.push(format!("{printed} was moved twice within ten minutes, the second time to {}", made.to));
        }
        let last = self.last.replace(made.at);
        if last.is_some_and(|last| apart(last, made.at) < CYCLE) {
            messages.push(format!("{printed} was moved in the same cycle as another"));
        }
        if state.group(&made.key.group).is_some_and(|group| !may_move(&group.spec)) {
            messages.push(format!("{printed} was moved to {} and must not be", made.to));
        }
        messages
    }
}

fn may_move(spec: &longshore_model::ServiceSpec) -> bool {
    spec.kind == ServiceKind::Service && !spec.is_stateful()
}

/// Absolute: a replay of the state does not list moves in order of time.
fn apart(a: Time, b: Time) -> Duration {
    a.max(b).since(a.min(b))
}

#[cfg(test)]
mod tests {
    use longshore_model::rebalance::{MoveCause, RebalanceScore, Share};

    use super::*;

    fn moved(index: u32, at: u64) -> Move {
        let (score, group) = (
            RebalanceScore {
                cause: MoveCause::Pressure,
                src: "a".into(),
                dst: Some("b".into()),
                dominant: None,
                relief: None,
                score: None,
                move_cost: Share::NONE,
                src_before: None,
                src_after: None,
                dst_before: None,
                dst_after: None,
            },
            GroupKey { namespace: "default".into(), deployment: "shop".into(), service: "web".into() },
        );
        let slot = SlotKey::Index(longshore_model::SlotIndex(index));
        let key = group.replica(&slot, longshore_model::Generation(2));
        Move { key, to: "b".into(), at: Time(at), score }
    }

    #[test]
    fn a_replica_that_moves_too_soon_and_two_that_move_at_once_are_noticed() {
        let (mut moves, state) = (Moves::default(), State::default());
        let mut take = |index, at| moves.record(&moved(index, at), &state);
        assert_eq!(take(0, 0), Vec::<String>::new());
        assert_eq!(take(1, 30_000), Vec::<String>::new());
        assert_eq!(take(2, 58_999), ["shop-web-2 was moved in the same cycle as another"]);
        assert_eq!(take(0, 599_999), ["shop-web-0 was moved twice within ten minutes, the second time to b"]);
        assert_eq!(take(1, 700_000), Vec::<String>::new());
    }
}
