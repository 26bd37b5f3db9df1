//! Make before break: when a new generation is ready, so that the one before it may be stopped.
//!
//! The same rule holds for every change of a running slot: update, drain or move.
//!
//! Owns: that rule. Invariant: only observations of the same generation count.

use std::time::Duration;

use longshore_model::{Health, ReplicaState, RuntimeCode, Time};

use crate::view::{View, groups::Replica};

/// Whether a generation is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// It has been running for the monitor time, or has completed.
    Ready,
    /// It is running, and will have been for the monitor time then.
    ReadyAt(Time),
    /// It is not running, or its node is unreachable.
    NotReady,
}

/// A generation is ready once it has been running for the monitor time on a reachable node: a node that missed
/// heartbeats may have lost it.
pub(super) fn readiness(view: &View, replica: &Replica, monitor: Duration, now: Time) -> Readiness {
    // A service that runs once is as ready as it will be when it has completed.
    if replica.state == ReplicaState::Completed && !replica.reservation.kind.is_job() {
        return Readiness::Ready;
    }
    if !is_seen_running(view, replica) {
        return Readiness::NotReady;
    }
    let at = replica.since.after(monitor);
    if at <= now { Readiness::Ready } else { Readiness::ReadyAt(at) }
}

/// Whether a generation is running on a reachable node whose engine can observe it.
pub(super) fn is_seen_running(view: &View, replica: &Replica) -> bool {
    let reachable = match view.nodes.node(replica.node).health {
        Health::Ready | Health::Degraded => true,
        Health::Suspect | Health::Down => false,
    };
    let observed = replica.code != Some(RuntimeCode::EngineUnreachable);
    replica.state == ReplicaState::Running && reachable && observed
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv6Addr, sync::Arc};

    use longshore_model::{
        Attempt, Event, Generation, NodeName,
        replica::{DesiredState, Reservation},
    };

    use super::*;
    use crate::rebalance::tests::node;

    #[test]
    fn a_replica_whose_engine_is_unreachable_is_not_ready() {
        let mut view = View::new();
        view.apply(&Event::NodeChanged(Arc::new(node("a"))));
        let seen = |code| Replica {
            generation: Generation(1),
            attempt: Attempt(0),
            node: view.nodes.by_name[&NodeName::from("a")],
            address: Ipv6Addr::LOCALHOST,
            reservation: Arc::new(Reservation::default()),
            devices: longshore_model::device::TakenDevices::new(),
            desired: DesiredState::Run,
            state: ReplicaState::Running,
            code,
            pull_refused: false,
            since: Time(0),
            placed_at: Time(0),
            failures: 0,
            history: longshore_model::replica::RestartHistory::default(),
            replaced_by: None,
        };
        let monitor = Duration::from_secs(5);
        let readiness = |code| readiness(&view, &seen(code), monitor, Time(60_000));
        assert_eq!(readiness(None), Readiness::Ready);
        assert_eq!(readiness(Some(RuntimeCode::EngineUnreachable)), Readiness::NotReady);
    }
}
