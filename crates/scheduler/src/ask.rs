//! What one batch of identical replicas asks of a node, worked out once for all of them.
//!
//! Owns: the terms offered, the filters that apply, and what only the service decides (faulty nodes, counts).
//! Must not touch: the choice. Invariant: nothing here changes with the order of nodes.

mod company;
mod counts;
pub(crate) mod making;

use std::{cell::OnceCell, collections::BTreeSet, sync::Arc};

use longshore_model::{
    ClusterConfig, GroupKey, RevisionNumber, ServiceName, ServiceSpec, Terms, Time,
    replica::{HeldVolume, HostPort},
    service::PortMode,
};
use smallvec::SmallVec;

use crate::{
    feasibility::{self, Filter, Scope, Site, constraints::Rules, skew::Branches},
    view::{GroupIx, NodeIx, View, classes::ClassIx, groups::Group, occupancy::Holding},
};

pub(crate) use self::{
    company::Company,
    counts::{Counts, Whereabouts},
};

/// A batch's request.
pub(crate) struct Ask {
    pub(crate) group: GroupIx,
    pub(crate) key: GroupKey,
    pub(crate) spec: Arc<ServiceSpec>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) terms: Arc<Terms>,
    /// Services it is restarted after.
    pub(crate) restarts_after: BTreeSet<ServiceName>,
    /// Memory needed plus one, to be compared with a lane's room.
    pub(crate) room: u64,
    /// How many slots of the service each node has, this pass included.
    pub(crate) counts: Counts,
    /// Where the services are that it wants to be with or apart from.
    pub(crate) company: Company,
    /// Whether another service looks at where this one is, or waits for it.
    pub(crate) is_watched: bool,
    /// Nodes this service keeps failing on.
    pub(crate) faulty: BTreeSet<NodeIx>,
    /// Nodes this service failed on lately, once or more.
    pub(crate) failed_on: BTreeSet<NodeIx>,
    /// Branch counts for explaining a skew, worked out when first asked for.
    pub(crate) branches: OnceCell<Branches>,
    /// Filters that must be asked node by node.
    per_node: SmallVec<[&'static Filter; 8]>,
    /// Filters that a class answers for all its nodes.
    per_class: SmallVec<[&'static Filter; 8]>,
}

impl Ask {
    /// Works out what a group asks for. `counts` is lent, cleared, to save its allocation.
    pub(crate) fn new(view: &View, group: GroupIx, now: Time, mut counts: Counts) -> Self {
        let known = view.group(group);
        counts.clear(&view.fleet, &known.spec.placement.distinct_property);
        for slot in known.wanted_slots() {
            let Some(node) = slot.counts_on() else { continue };
            counts.add(node);
            slot.beside().into_iter().for_each(|node| counts.add_beside(node));
        }
        Self::counting(view, group, now, counts)
    }

    /// What a group asks for that was asked earlier in the pass, with its slots where it left them.
    pub(crate) fn resumed(view: &View, group: GroupIx, now: Time, whereabouts: &Whereabouts) -> Self {
        let mut counts = Counts::default();
        counts.clear(&view.fleet, &view.group(group).spec.placement.distinct_property);
        counts.resume(whereabouts);
        Self::counting(view, group, now, counts)
    }

    /// What a slot of the group asks for whose step in a rollout has not come, with the slots where the ask has them; `None`
    /// where that is nothing else.
    pub(crate) fn held(view: &View, ask: &Self, now: Time) -> Option<Self> {
        let held = view.group(ask.group).rolling.held.as_ref()?;
        let mut counts = Counts::default();
        counts.clear(&view.fleet, &held.spec.placement.distinct_property);
        counts.resume(&ask.counts.whereabouts());
        Some(Self::of_spec(view, ask.group, (&held.spec, held.revision), now, counts))
    }

    fn counting(view: &View, group: GroupIx, now: Time, counts: Counts) -> Self {
        let known = view.group(group);
        Self::of_spec(view, group, (&known.spec, known.revision), now, counts)
    }

    fn of_spec(
        view: &View,
        group: GroupIx,
        (spec, revision): (&Arc<ServiceSpec>, RevisionNumber),
        now: Time,
        counts: Counts,
    ) -> Self {
        let known = view.group(group);
        let rules = if Arc::ptr_eq(spec, &known.spec) { Arc::clone(&known.rules) } else { Arc::new(Rules::of(spec)) };
        let (limit, window) = (view.config.faulty_after_failures, view.config.faulty_window);
        let faulty = known.failures.keys().copied().filter(|node| known.is_faulty_on(*node, now, limit, window));
        let failed_on = known.failures.keys().copied().filter(|node| known.is_faulty_on(*node, now, 1, window));
        let terms = Arc::new(terms(view, known, spec, revision));
        let mut ask = Self {
            group,
            key: known.key.clone(),
            spec: Arc::clone(spec),
            rules,
            restarts_after: making::restarts_after(view, &known.key, spec),
            room: terms.memory_total().saturating_add(1),
            terms,
            counts,
            company: Company::of(view, known, &spec.placement),
            is_watched: view.is_watched(&known.key),
            faulty: faulty.collect(),
            failed_on: failed_on.collect(),
            branches: OnceCell::new(),
            per_node: SmallVec::new(),
            per_class: SmallVec::new(),
        };
        for filter in feasibility::FILTERS {
            match (filter.scope)(&ask) {
                Scope::Idle | Scope::Tree => {}
                Scope::Class => ask.per_class.push(filter),
                Scope::Node => ask.per_node.push(filter),
            }
        }
        ask
    }

    /// Whether a class may serve this ask at all.
    pub(crate) fn accepts_class(&self, view: &View, class: ClassIx) -> bool {
        let site = Site::of_class(view, class);
        self.per_class.iter().all(|filter| (filter.check)(self, &site))
    }

    /// Whether a node of an accepted class can take one more.
    pub(crate) fn fits(&self, view: &View, node: NodeIx) -> bool {
        let site = Site::of_node(view, node);
        debug_assert!(
            self.per_class.iter().all(|filter| (filter.check)(self, &site)),
            "a filter judged a class by something its nodes do not share: its scope has to be `Scope::Node`"
        );
        self.per_node.iter().all(|filter| (filter.check)(self, &site))
    }

    /// Whether a node can take one more, all filters asked.
    pub(crate) fn accepts(&self, view: &View, node: NodeIx) -> bool {
        let site = Site::of_node(view, node);
        self.per_class.iter().chain(&self.per_node).all(|filter| (filter.check)(self, &site))
    }

    /// Whether a node can take one more by every filter, those included that a strategy otherwise keeps by itself.
    pub(crate) fn could_take(&self, view: &View, node: NodeIx) -> bool {
        let site = Site::of_node(view, node);
        self.filters().all(|filter| (filter.check)(self, &site))
    }

    /// What one more replica would hold of a node that can take it.
    pub(crate) fn holding(&self, view: &View, node: NodeIx) -> Holding {
        let devices = feasibility::devices::allocate(self, &view.fleet, node).unwrap_or_default();
        Holding { terms: Arc::clone(&self.terms), devices }
    }

    /// Counts one more of the service on a node.
    pub(crate) fn put(&mut self, node: NodeIx) {
        self.counts.add(node);
        self.branches.take();
    }

    /// Counts one less.
    pub(crate) fn take_back(&mut self, node: NodeIx) {
        self.counts.remove_from(Some(node));
        self.branches.take();
    }

    /// Makes nodes the last choice for a while; gives back what is needed to end that.
    pub(crate) fn avoid(&mut self, nodes: &BTreeSet<NodeIx>) -> Avoiding {
        let new = |known: &BTreeSet<NodeIx>| nodes.difference(known).copied().collect();
        let avoiding = Avoiding { faulty: new(&self.faulty), failed_on: new(&self.failed_on) };
        self.faulty.extend(nodes);
        self.failed_on.extend(nodes);
        avoiding
    }

    /// Ends it.
    pub(crate) fn avoid_no_longer(&mut self, avoiding: &Avoiding) {
        self.faulty.retain(|node| !avoiding.faulty.contains(node));
        self.failed_on.retain(|node| !avoiding.failed_on.contains(node));
    }

    /// Whether a placement on one node can make another refuse, so that a candidate must be asked again before it is
    /// taken.
    pub(crate) fn is_volatile(&self) -> bool {
        !self.spec.placement.distinct_property.is_empty()
    }

    /// The filters that apply, in the order in which the primary reason is looked for.
    pub(crate) fn filters(&self) -> impl Iterator<Item = &'static Filter> + use<'_> {
        feasibility::FILTERS.iter().copied().filter(|filter| (filter.scope)(self) != Scope::Idle)
    }

    /// Gives the lent column back.
    pub(crate) fn into_counts(self) -> Counts {
        self.counts
    }
}

/// Nodes that are the last choice for a while, and were not before.
pub(crate) struct Avoiding {
    faulty: BTreeSet<NodeIx>,
    failed_on: BTreeSet<NodeIx>,
}

/// What a replica of the group is promised if it is placed now.
fn terms(view: &View, group: &Group, spec: &ServiceSpec, revision: RevisionNumber) -> Terms {
    let resources = &spec.resources;
    let config: &ClusterConfig = &view.config;
    Terms {
        revision,
        spec_hash: spec.spec_hash.clone(),
        kind: spec.kind,
        cpu_millis: resources.cpu_request_millis(),
        memory_bytes: config.memory_cap_bytes(resources),
        overhead_bytes: config.overhead_bytes(spec.driver),
        disk_bytes: config.default_ephemeral_disk_bytes,
        devices: resources.devices.clone(),
        device_requests: resources.device_requests.clone(),
        host_ports: host_ports(spec),
        volumes: volumes(spec),
        secret_versions: making::secrets(view, &group.key, spec),
        restart_epoch: group.restart_epoch,
        made_after: making::now(view, &group.key, spec),
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

/// Volumes that bind a replica to a home. A service with one replica per node has one volume per node instead.
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
