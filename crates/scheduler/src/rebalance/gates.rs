//! Every check a move has to pass, one function each, with the reason it gives.
//!
//! Owns: the numbers and the order: what is cheap to know and passes by itself comes first.
//! Must not touch: which of several moves is best. Invariant: every gate looks at smoothed pressures only.

use std::time::Duration;

use longshore_model::{
    Reason, SkipReason, Strategy, Time,
    rebalance::{Pressure, Share},
};

use super::spread;
use crate::{
    ask::Ask,
    feasibility::{
        Site,
        gates::{self, Gate},
    },
    view::{
        NodeIx, View,
        groups::{Replica, Slot},
    },
};

/// Composite pressure from which a node is hot.
pub(super) const TRIGGER: Share = Share(850_000);
/// Cycles in a row a node must be hot: one tick is no trend.
pub(super) const CONSECUTIVE: u32 = 2;
/// How far the hottest and the coolest node must be apart: a cluster that is busy all over is not helped by moves.
const GAP: Share = Share(250_000);
/// By how much a move must relieve its source.
const RELIEF: Share = Share(100_000);
/// What the destination must stay below, so that the hot spot is not merely moved.
const DESTINATION_CAP: Share = Share(750_000);
/// How long a replica stays where it was placed or moved to.
pub(super) const REPLICA_COOLDOWN: Duration = Duration::from_mins(10);
/// How long a node that took a replica in takes no other: its pressure does not show the first one yet.
const NODE_COOLDOWN: Duration = Duration::from_mins(2);

/// A node before a move and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) before: Pressure,
    pub(super) after: Pressure,
}

impl Change {
    /// A node that a replica leaves.
    pub(super) fn without(before: Pressure, footprint: Pressure) -> Self {
        let less = |whole: Share, part: Share| whole.minus(part).max(Share::NONE);
        let after = Pressure { cpu: less(before.cpu, footprint.cpu), memory: less(before.memory, footprint.memory) };
        Self { before, after }
    }

    /// A node that a replica comes to.
    pub(super) fn with(before: Pressure, footprint: Pressure) -> Self {
        let after = Pressure { cpu: before.cpu.plus(footprint.cpu), memory: before.memory.plus(footprint.memory) };
        Self { before, after }
    }
}

/// Whether the cluster is out of balance rather than busy.
pub(super) fn is_imbalanced(hottest: Pressure, coolest: Pressure) -> bool {
    hottest.composite().minus(coolest.composite()) >= GAP
}

/// A replica that was placed or moved not long ago stays.
pub(super) fn replica_cooldown(slot: &Slot, replica: &Replica, now: Time) -> Option<SkipReason> {
    let settled = slot.moved_at.max(Some(replica.placed_at))?;
    (now.since(settled) < REPLICA_COOLDOWN).then_some(SkipReason::CooldownReplica)
}

/// A node that took one in not long ago takes no other.
fn node_cooldown(view: &View, dst: NodeIx, now: Time) -> Option<SkipReason> {
    let received = view.fleet.received[dst.at()]?;
    (now.since(received) < NODE_COOLDOWN).then_some(SkipReason::CooldownNode)
}

/// No dimension of the destination goes beyond what there is, and the filters that count what is left let it in.
fn resource_limits(view: &View, ask: &Ask, dst: NodeIx, change: Change) -> Option<SkipReason> {
    let fits = change.after.cpu <= Share::WHOLE && change.after.memory <= Share::WHOLE;
    let let_in = matches!(gates::check(view, ask, 1), Gate::Open) && passes(view, ask, dst, Kind::Room);
    (!fits || !let_in).then_some(SkipReason::ResourceLimits)
}

/// The replica could have been placed there by its own strategy.
fn anti_affinity(view: &View, ask: &Ask, src: NodeIx, dst: NodeIx) -> Option<SkipReason> {
    let allowed = passes(view, ask, dst, Kind::Rule) && keeps_spread(view, ask, src, dst);
    (!allowed).then_some(SkipReason::AntiAffinity)
}

/// A service that is spread gets no second replica on a node, and no branch more than the one that is left.
fn keeps_spread(view: &View, ask: &Ask, src: NodeIx, dst: NodeIx) -> bool {
    match ask.spec.placement.strategy {
        Strategy::Spread => {
            let (from, to) = spread::first_difference(view, ask, src, dst);
            ask.counts.get(dst) == 0 && to <= from
        }
        Strategy::Global => false,
        Strategy::Pack | Strategy::Hosts | Strategy::Binpack | Strategy::Hash => true,
    }
}

/// The destination does not become hot itself.
pub(super) fn destination_cap(change: Change) -> Option<SkipReason> {
    (change.after.composite() >= DESTINATION_CAP).then_some(SkipReason::DstCap)
}

/// The source is noticeably better off.
fn relief_floor(change: Change) -> Option<SkipReason> {
    let relief = change.before.composite().minus(change.after.composite());
    (relief < RELIEF).then_some(SkipReason::ReliefFloor)
}

/// A move that is considered. The ask does not count the replica on its source.
pub(super) struct Considered<'a> {
    pub(super) ask: &'a Ask,
    pub(super) src: (NodeIx, Change),
    pub(super) dst: (NodeIx, Change),
}

/// The first gate that refuses a destination.
pub(super) fn refuses(view: &View, considered: &Considered<'_>, now: Time) -> Option<SkipReason> {
    let Considered { ask, src, dst } = considered;
    node_cooldown(view, dst.0, now)
        .or_else(|| resource_limits(view, ask, dst.0, dst.1))
        .or_else(|| anti_affinity(view, ask, src.0, dst.0))
        .or_else(|| destination_cap(dst.1))
        .or_else(|| relief_floor(src.1))
}

/// What a placement filter looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// What is left on the node.
    Room,
    /// What the node is, and who else is there.
    Rule,
}

const fn kind(reason: Reason) -> Kind {
    match reason {
        Reason::QuotaExceeded
        | Reason::HostPortInUse
        | Reason::NoCapacityMemory
        | Reason::NoCapacityDisk
        | Reason::NoCapacityDevice
        | Reason::IpamExhausted
        | Reason::BatchIncomplete => Kind::Room,
        Reason::SecretsMissing
        | Reason::VolumeConstraintsInvalid
        | Reason::DependencyNotReady
        | Reason::NoNodesActive
        | Reason::CannotSatisfyHostPlacement
        | Reason::PoolUnavailable
        | Reason::VolumeHomeNodeOffline
        | Reason::VolumeLocalityNoNode
        | Reason::VolumeInUse
        | Reason::ConstraintUnsatisfied
        | Reason::PlatformUnsupported
        | Reason::DriverMissing
        | Reason::PluginMissing
        | Reason::MaxReplicasPerNode
        | Reason::DistinctHosts
        | Reason::DistinctProperty
        | Reason::AffinityUnsatisfied
        | Reason::MaxSkew => Kind::Rule,
    }
}

/// Whether every placement filter of a kind lets the replica onto a node.
fn passes(view: &View, ask: &Ask, node: NodeIx, which: Kind) -> bool {
    let site = Site::of_node(view, node);
    ask.filters().filter(|filter| kind(filter.reason) == which).all(|filter| (filter.check)(ask, &site))
}
