//! What one batch of identical replicas requires of a node, computed once for the whole batch.
//!
//! Owns: the reservation, the filters that apply, and per-service data (faulty nodes, counts).
//! Must not touch: the choice of a node. Invariant: nothing here depends on the order of nodes.

mod companions;
mod counts;
pub(crate) mod replica_fingerprint;

use std::{cell::OnceCell, collections::BTreeSet, sync::Arc};

use longshore_model::{
    ClusterConfig, GroupKey, Reservation, RevisionNumber, ServiceName, ServiceSpec, Time,
    replica::{HeldVolume, HostPort},
    service::PortMode,
};
use smallvec::SmallVec;

use crate::{
    feasibility::{self, CandidateNode, Filter, Scope, constraints::Rules, skew::BranchCounts},
    view::{GroupIx, NodeIx, View, classes::ClassIx, groups::Group, occupancy::Holding},
};

pub(crate) use self::{
    companions::Companions,
    counts::{Counts, Locations},
};

/// The placement request of a batch.
pub(crate) struct PlacementRequest {
    pub(crate) group: GroupIx,
    pub(crate) key: GroupKey,
    pub(crate) spec: Arc<ServiceSpec>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) reservation: Arc<Reservation>,
    /// Services whose change restarts this one.
    pub(crate) restarts_after: BTreeSet<ServiceName>,
    /// Memory needed plus one, compared with [`NodeStats::headroom`](crate::view::node_table::NodeStats::headroom).
    pub(crate) headroom_needed: u64,
    /// Slots of the service by node, placements of this pass included.
    pub(crate) counts: Counts,
    /// The services it must or prefers to be near or away from.
    pub(crate) companions: Companions,
    /// Whether another service refers to the nodes of this one, or depends on it.
    pub(crate) is_watched: bool,
    /// Nodes with at least `faulty_after_failures` recent failures of this service.
    pub(crate) faulty: BTreeSet<NodeIx>,
    /// Nodes with at least one recent failure of this service.
    pub(crate) failed_on: BTreeSet<NodeIx>,
    /// Branch counts for explaining a skew, computed on first use.
    pub(crate) branches: OnceCell<BranchCounts>,
    /// Filters that must be checked for each node.
    per_node: SmallVec<[&'static Filter; 8]>,
    /// Filters whose result is the same for all nodes of a class.
    per_class: SmallVec<[&'static Filter; 8]>,
}

impl PlacementRequest {
    /// The request of a group as it is now. `counts` is a reused allocation and is cleared first.
    pub(crate) fn new(view: &View, group: GroupIx, now: Time, mut counts: Counts) -> Self {
        let record = view.group(group);
        counts.clear(&view.nodes, &record.spec.placement.distinct_property);
        for slot in record.desired_slots() {
            let Some(node) = slot.counts_on() else { continue };
            counts.add(node);
            slot.overlap_nodes().into_iter().for_each(|node| counts.add_overlap(node));
        }
        Self::with_counts(view, group, now, counts)
    }

    /// The request of a group that had its turn earlier in the pass, with the slot counts its turn left.
    pub(crate) fn resume(view: &View, group: GroupIx, now: Time, locations: &Locations) -> Self {
        let mut counts = Counts::default();
        counts.clear(&view.nodes, &view.group(group).spec.placement.distinct_property);
        counts.restore(locations);
        Self::with_counts(view, group, now, counts)
    }

    /// The request for slots whose step in the rollout has not come: the previous spec, with the slot counts of
    /// `request`. `None` where the group has no previous spec.
    pub(crate) fn for_previous_spec(view: &View, request: &Self, now: Time) -> Option<Self> {
        let previous = view.group(request.group).rollout_position.previous.as_ref()?;
        let mut counts = Counts::default();
        counts.clear(&view.nodes, &previous.spec.placement.distinct_property);
        counts.restore(&request.counts.locations());
        Some(Self::for_spec(view, request.group, &previous.spec, previous.revision, now, counts))
    }

    fn with_counts(view: &View, group: GroupIx, now: Time, counts: Counts) -> Self {
        let record = view.group(group);
        Self::for_spec(view, group, &record.spec, record.revision, now, counts)
    }

    fn for_spec(
        view: &View,
        group: GroupIx,
        spec: &Arc<ServiceSpec>,
        revision: RevisionNumber,
        now: Time,
        counts: Counts,
    ) -> Self {
        let record = view.group(group);
        let rules = if Arc::ptr_eq(spec, &record.spec) { Arc::clone(&record.rules) } else { Arc::new(Rules::of(spec)) };
        let (limit, window) = (view.config.faulty_after_failures, view.config.faulty_window);
        let faulty = record.failures.keys().copied().filter(|node| record.is_faulty_on(*node, now, limit, window));
        let failed_on = record.failures.keys().copied().filter(|node| record.is_faulty_on(*node, now, 1, window));
        let reservation = Arc::new(reservation(view, record, spec, revision));
        let mut request = Self {
            group,
            key: record.key.clone(),
            spec: Arc::clone(spec),
            rules,
            restarts_after: replica_fingerprint::restarts_after(view, &record.key, spec),
            headroom_needed: reservation.memory_total().saturating_add(1),
            reservation,
            counts,
            companions: Companions::of(view, record, &spec.placement),
            is_watched: view.is_watched(&record.key),
            faulty: faulty.collect(),
            failed_on: failed_on.collect(),
            branches: OnceCell::new(),
            per_node: SmallVec::new(),
            per_class: SmallVec::new(),
        };
        for filter in feasibility::FILTERS {
            match (filter.scope)(&request) {
                Scope::Idle | Scope::Tree => {}
                Scope::Class => request.per_class.push(filter),
                Scope::Node => request.per_node.push(filter),
            }
        }
        request
    }

    /// Whether the nodes of a class pass all filters of class scope.
    pub(crate) fn accepts_class(&self, view: &View, class: ClassIx) -> bool {
        let candidate = CandidateNode::of_class(view, class);
        self.per_class.iter().all(|filter| (filter.check)(self, &candidate))
    }

    /// Whether a node of an accepted class passes the per-node filters for one more replica.
    pub(crate) fn fits(&self, view: &View, node: NodeIx) -> bool {
        let candidate = CandidateNode::of_node(view, node);
        debug_assert!(
            self.per_class.iter().all(|filter| (filter.check)(self, &candidate)),
            "a filter of class scope depends on something its nodes do not share: its scope must be `Scope::Node`"
        );
        self.per_node.iter().all(|filter| (filter.check)(self, &candidate))
    }

    /// Whether a node passes the class and the per-node filters for one more replica.
    pub(crate) fn accepts(&self, view: &View, node: NodeIx) -> bool {
        let candidate = CandidateNode::of_node(view, node);
        self.per_class.iter().chain(&self.per_node).all(|filter| (filter.check)(self, &candidate))
    }

    /// Whether a node passes every filter for one more replica, including those that a strategy normally enforces
    /// itself.
    pub(crate) fn passes_every_filter(&self, view: &View, node: NodeIx) -> bool {
        let candidate = CandidateNode::of_node(view, node);
        self.filters().all(|filter| (filter.check)(self, &candidate))
    }

    /// What one more replica would hold on a node that can take it.
    pub(crate) fn holding(&self, view: &View, node: NodeIx) -> Holding {
        let devices = feasibility::devices::allocate(self, &view.nodes, node).unwrap_or_default();
        Holding { reservation: Arc::clone(&self.reservation), devices }
    }

    /// Counts one more slot of the service on a node.
    pub(crate) fn count_slot(&mut self, node: NodeIx) {
        self.counts.add(node);
        self.branches.take();
    }

    /// Counts one slot less.
    pub(crate) fn uncount_slot(&mut self, node: NodeIx) {
        self.counts.remove_from(Some(node));
        self.branches.take();
    }

    /// Makes nodes the last choice until [`PlacementRequest::stop_avoiding`] is called with the returned value.
    pub(crate) fn avoid(&mut self, nodes: &BTreeSet<NodeIx>) -> Avoiding {
        let new = |group: &BTreeSet<NodeIx>| nodes.difference(group).copied().collect();
        let avoiding = Avoiding { faulty: new(&self.faulty), failed_on: new(&self.failed_on) };
        self.faulty.extend(nodes);
        self.failed_on.extend(nodes);
        avoiding
    }

    /// Ends what [`PlacementRequest::avoid`] began.
    pub(crate) fn stop_avoiding(&mut self, avoiding: &Avoiding) {
        self.faulty.retain(|node| !avoiding.faulty.contains(node));
        self.failed_on.retain(|node| !avoiding.failed_on.contains(node));
    }

    /// Whether a placement on one node can make another node infeasible, so that a candidate must be checked again
    /// before it is taken.
    pub(crate) fn needs_recheck(&self) -> bool {
        !self.spec.placement.distinct_property.is_empty()
    }

    /// The filters that apply, in the order in which the primary reason is determined.
    pub(crate) fn filters(&self) -> impl Iterator<Item = &'static Filter> + use<'_> {
        feasibility::FILTERS.iter().copied().filter(|filter| (filter.scope)(self) != Scope::Idle)
    }

    /// Returns the counts, to reuse their allocation.
    pub(crate) fn into_counts(self) -> Counts {
        self.counts
    }
}

/// Nodes added to the last choices by one call of [`PlacementRequest::avoid`].
pub(crate) struct Avoiding {
    faulty: BTreeSet<NodeIx>,
    failed_on: BTreeSet<NodeIx>,
}

/// The reservation of a replica of the group that is placed now.
fn reservation(view: &View, group: &Group, spec: &ServiceSpec, revision: RevisionNumber) -> Reservation {
    let resources = &spec.resources;
    let config: &ClusterConfig = &view.config;
    Reservation {
        revision,
        spec_hash: spec.spec_hash.clone(),
        resolved_image: spec.resolved_image.clone(),
        kind: spec.kind,
        cpu_millis: resources.cpu_request_millis(),
        memory_bytes: config.memory_cap_bytes(resources),
        overhead_bytes: config.overhead_bytes(spec.driver),
        disk_bytes: config.default_ephemeral_disk_bytes,
        devices: resources.devices.clone(),
        device_requests: resources.device_requests.clone(),
        host_ports: host_ports(spec),
        volumes: volumes(spec),
        secret_versions: replica_fingerprint::secret_versions(view, &group.key, spec),
        restart_epoch: group.restart_epoch,
        dependency_fingerprints: replica_fingerprint::dependency_fingerprints(view, &group.key, spec),
    }
}

fn host_ports(spec: &ServiceSpec) -> Vec<HostPort> {
    let mut ports: Vec<HostPort> = spec
        .ports
        .iter()
        .filter(|port| port.mode == PortMode::Host)
        .filter_map(|port| Some(HostPort { protocol: port.protocol, port: port.published? }))
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Volumes that bind a replica to a home node. A service with one replica per node has one volume per node instead.
fn volumes(spec: &ServiceSpec) -> Vec<HeldVolume> {
    if spec.kind.is_per_node() {
        return Vec::new();
    }
    let mut held: Vec<HeldVolume> =
        spec.volumes().map(|(key, sharing)| HeldVolume { key: key.clone(), sharing }).collect();
    held.sort_unstable();
    held.dedup();
    held
}
