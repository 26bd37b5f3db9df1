//! The checks a move must pass, one function each, with the skip reason each returns.
//!
//! Owns: the thresholds and the order: cheap checks that time alone resolves come first.
//! Must not touch: which of several moves is best. Invariant: every gate uses smoothed pressures only.

use std::time::Duration;

use longshore_model::{
    Reason, SkipReason, Strategy, Time,
    rebalance::{Pressure, Share},
};

use super::branch_counts;
use crate::{
    feasibility::{
        CandidateNode,
        gates::{self, Gate},
    },
    request::PlacementRequest,
    view::{
        NodeIx, View,
        groups::{Replica, Slot},
    },
};

/// Composite pressure at or above which a node is hot.
pub(super) const TRIGGER: Share = Share(850_000);
/// Consecutive cycles a node must be hot before it is relieved: one sample is not a trend.
pub(super) const CONSECUTIVE: u32 = 2;
/// The least difference between the hottest and the coolest node: moves do not help an evenly busy cluster.
const GAP: Share = Share(250_000);
/// The least relief of a move for its source.
const RELIEF: Share = Share(100_000);
/// The composite pressure the destination must stay below, so that the move does not create another hot node.
const DESTINATION_CAP: Share = Share(750_000);
/// How long a replica stays after it was placed or moved.
pub(super) const REPLICA_COOLDOWN: Duration = Duration::from_mins(10);
/// How long a node that received a replica receives no other: its pressure does not show the first one yet.
const NODE_COOLDOWN: Duration = Duration::from_mins(2);

/// The pressure of a node before and after a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PressureChange {
    pub(super) before: Pressure,
    pub(super) after: Pressure,
}

impl PressureChange {
    /// The change of the source, which loses the replica.
    pub(super) fn without(before: Pressure, footprint: Pressure) -> Self {
        let less = |whole: Share, part: Share| whole.minus(part).max(Share::NONE);
        let after = Pressure { cpu: less(before.cpu, footprint.cpu), memory: less(before.memory, footprint.memory) };
        Self { before, after }
    }

    /// The change of the destination, which gains the replica.
    pub(super) fn with(before: Pressure, footprint: Pressure) -> Self {
        let after = Pressure { cpu: before.cpu.plus(footprint.cpu), memory: before.memory.plus(footprint.memory) };
        Self { before, after }
    }
}

/// Whether the cluster is imbalanced rather than evenly busy.
pub(super) fn is_imbalanced(hottest: Pressure, coolest: Pressure) -> bool {
    hottest.composite().minus(coolest.composite()) >= GAP
}

/// Refuses a replica that was placed or moved recently.
pub(super) fn replica_cooldown(slot: &Slot, replica: &Replica, now: Time) -> Option<SkipReason> {
    let settled = slot.moved_at.max(Some(replica.placed_at))?;
    (now.since(settled) < REPLICA_COOLDOWN).then_some(SkipReason::CooldownReplica)
}

/// Refuses a destination that received a replica recently.
fn node_cooldown(view: &View, dst: NodeIx, now: Time) -> Option<SkipReason> {
    let received = view.nodes.last_received[dst.at()]?;
    (now.since(received) < NODE_COOLDOWN).then_some(SkipReason::CooldownNode)
}

/// Refuses a destination whose CPU or memory would exceed the node, or that a gate or a capacity filter refuses.
fn resource_limits(view: &View, request: &PlacementRequest, dst: NodeIx, change: PressureChange) -> Option<SkipReason> {
    let fits = change.after.cpu <= Share::WHOLE && change.after.memory <= Share::WHOLE;
    let allowed =
        matches!(gates::check(view, request, 1), Gate::Open) && passes(view, request, dst, FilterKind::Capacity);
    (!fits || !allowed).then_some(SkipReason::ResourceLimits)
}

/// Refuses a destination that the service's strategy and rules would not allow.
fn anti_affinity(view: &View, request: &PlacementRequest, src: NodeIx, dst: NodeIx) -> Option<SkipReason> {
    let allowed = passes(view, request, dst, FilterKind::Rule) && keeps_spread(view, request, src, dst);
    (!allowed).then_some(SkipReason::AntiAffinity)
}

/// Whether the move respects the strategy: a spread service gets no second replica on a node, and the destination's
/// branch must not end up fuller than the source's.
fn keeps_spread(view: &View, request: &PlacementRequest, src: NodeIx, dst: NodeIx) -> bool {
    match request.spec.placement.strategy {
        Strategy::Spread => {
            let (from, to) = branch_counts::at_first_difference(view, request, src, dst);
            request.counts.get(dst) == 0 && to <= from
        }
        Strategy::Global => false,
        Strategy::LeastLoaded | Strategy::Hosts | Strategy::Binpack | Strategy::Hash => true,
    }
}

/// Refuses a destination that would become hot.
pub(super) fn destination_cap(change: PressureChange) -> Option<SkipReason> {
    (change.after.composite() >= DESTINATION_CAP).then_some(SkipReason::DstCap)
}

/// Refuses a move that relieves the source too little.
fn relief_floor(change: PressureChange) -> Option<SkipReason> {
    let relief = change.before.composite().minus(change.after.composite());
    (relief < RELIEF).then_some(SkipReason::ReliefFloor)
}

/// One end of a move: the node and how the move changes its pressure.
#[derive(Clone, Copy)]
pub(super) struct MoveEnd {
    pub(super) node: NodeIx,
    pub(super) change: PressureChange,
}

/// A move to be checked. The counts of the placement request exclude the replica on its source.
pub(super) struct ProposedMove<'a> {
    pub(super) request: &'a PlacementRequest,
    pub(super) src: MoveEnd,
    pub(super) dst: MoveEnd,
}

/// The reason of the first gate that refuses the move.
pub(super) fn refusal(view: &View, proposed: &ProposedMove<'_>, now: Time) -> Option<SkipReason> {
    let ProposedMove { request, src, dst } = proposed;
    node_cooldown(view, dst.node, now)
        .or_else(|| resource_limits(view, request, dst.node, dst.change))
        .or_else(|| anti_affinity(view, request, src.node, dst.node))
        .or_else(|| destination_cap(dst.change))
        .or_else(|| relief_floor(src.change))
}

/// Which skip reason a placement filter maps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterKind {
    /// Checks the free capacity of the node.
    Capacity,
    /// Checks attributes of the node and the replicas already on it.
    Rule,
}

const fn kind(reason: Reason) -> FilterKind {
    match reason {
        Reason::QuotaExceeded
        | Reason::HostPortInUse
        | Reason::NoCapacityMemory
        | Reason::NoCapacityDisk
        | Reason::NoCapacityDevice
        | Reason::IpamExhausted
        | Reason::BatchIncomplete => FilterKind::Capacity,
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
        | Reason::MaxSkew => FilterKind::Rule,
    }
}

/// Whether every placement filter of a kind accepts the node.
fn passes(view: &View, request: &PlacementRequest, node: NodeIx, which: FilterKind) -> bool {
    let candidate = CandidateNode::of_node(view, node);
    request.filters().filter(|filter| kind(filter.reason) == which).all(|filter| (filter.check)(request, &candidate))
}
