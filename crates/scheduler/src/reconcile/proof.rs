//! Make before break: when a new generation has proved itself, so that the one before it may go.
//!
//! The same rule holds for every change of a running slot, be it an update, a drain or a move.
//!
//! Owns: that rule. Invariant: an observation of another generation proves nothing.

use std::time::Duration;

use longshore_model::{Health, ReplicaState, RuntimeCode, Time};

use crate::view::{View, groups::Replica};

/// Whether a generation has proved itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// It has run for the monitor time.
    Given,
    /// It runs, and will have proved itself then.
    At(Time),
    /// It does not run, or nobody has heard of its node lately.
    Missing,
}

/// A generation has proved itself once it was seen running for the monitor time, on a node that is heard of: a node that
/// missed its beats may have lost it.
pub(super) fn proof(view: &View, replica: &Replica, monitor: Duration, now: Time) -> Proof {
    if !is_seen_running(view, replica) {
        return Proof::Missing;
    }
    let at = replica.since.after(monitor);
    if at <= now { Proof::Given } else { Proof::At(at) }
}

/// Whether a generation runs on a node that is heard of and can look at it.
pub(super) fn is_seen_running(view: &View, replica: &Replica) -> bool {
    let heard_of = match view.fleet.node(replica.node).health {
        Health::Ready | Health::Degraded => true,
        Health::Suspect | Health::Down => false,
    };
    let looked_at = replica.code != Some(RuntimeCode::EngineUnreachable);
    replica.state == ReplicaState::Running && heard_of && looked_at
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv6Addr, sync::Arc};

    use longshore_model::{
        Attempt, Event, Generation, NodeName,
        replica::{Terms, Wanted},
    };

    use super::*;
    use crate::rebalance::stories::node;

    #[test]
    fn a_generation_that_nobody_can_look_at_proves_nothing() {
        let mut view = View::new();
        view.apply(&Event::NodeChanged(Arc::new(node("a"))));
        let seen = |code| Replica {
            generation: Generation(1),
            attempt: Attempt(0),
            node: view.fleet.by_name[&NodeName::from("a")],
            address: Ipv6Addr::LOCALHOST,
            terms: Arc::new(Terms::default()),
            devices: longshore_model::device::TakenDevices::new(),
            wanted: Wanted::Run,
            state: ReplicaState::Running,
            code,
            since: Time(0),
            placed_at: Time(0),
            failures: 0,
            rival: None,
        };
        let monitor = Duration::from_secs(5);
        let proof = |code| proof(&view, &seen(code), monitor, Time(60_000));
        assert_eq!(proof(None), Proof::Given);
        assert_eq!(proof(Some(RuntimeCode::EngineUnreachable)), Proof::Missing);
    }
}
