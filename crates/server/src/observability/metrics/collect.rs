//! Collects the metrics of a daemon.
//!
//! Owns: their names, which are stable: people alert on them. Must not touch: anything that blocks.

use std::collections::BTreeMap;

use longshore_model::{GroupKey, Health};
use longshore_network::ServiceTraffic;
use longshore_store::{
    State as ClusterState,
    replicated::{LeadershipRole, Replicated},
};

use crate::{
    lifecycle::node_context::NodeContext,
    observability::metrics::{Metric, MetricKind},
};

/// The metrics of a daemon; `None` without a store.
pub(crate) fn of(ctx: &NodeContext) -> Option<Vec<Metric>> {
    ctx.store().map(|store| all(ctx, &store))
}

/// All metrics of a daemon with a store.
pub(crate) fn all(ctx: &NodeContext, store: &Replicated) -> Vec<Metric> {
    let state = store.read_local().state;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let mut metrics = vec![Metric::labelled("longshore_build_info", MetricKind::Gauge, "version", [(version, 1)])];
    let (status, members) = (store.status(), store.members());
    let leads = store.leadership().borrow().role == LeadershipRole::Leading;
    let plain = [
        ("longshore_leading", u64::from(leads)),
        ("longshore_leader_known", u64::from(store.leadership().borrow().leader.is_some())),
        ("longshore_term", status.term),
        ("longshore_state_index", state.index().0),
        ("longshore_log_last_entry", status.last_entry),
        ("longshore_log_applied_entry", status.applied_entry),
        ("longshore_log_snapshot_entry", status.snapshot_entry),
        ("longshore_log_failed", u64::from(status.failure.is_some())),
        ("longshore_members", members.members.len() as u64),
        ("longshore_voters", members.voters.len() as u64),
    ];
    metrics.extend(plain.map(|(name, value)| Metric::plain(name, MetricKind::Gauge, value)));
    let lag = status.lag.iter().map(|(member, behind)| (member.to_string(), *behind));
    metrics.push(Metric::labelled("longshore_member_lag_entries", MetricKind::Gauge, "member", lag));
    metrics.extend(of_state(&state));
    metrics.extend(of_loops(ctx));
    metrics.extend(of_traffic(ctx));
    metrics
}

/// Gauges about the state.
fn of_state(state: &ClusterState) -> Vec<Metric> {
    let access = state.access();
    let plain = [
        ("longshore_deployments", state.deployments().count()),
        ("longshore_services", state.groups().count()),
        ("longshore_secrets", state.secrets().count()),
        ("longshore_tokens", access.tokens().count()),
        ("longshore_node_memberships", access.memberships().count()),
    ];
    let mut metrics: Vec<Metric> =
        plain.into_iter().map(|(name, value)| Metric::plain(name, MetricKind::Gauge, value as u64)).collect();
    let health = state.nodes().map(|node| match node.health {
        Health::Ready => "ready",
        Health::Suspect => "suspect",
        Health::Down => "down",
        Health::Degraded => "degraded",
    });
    let states = state.replicas().map(|(_, _, replica)| replica.state.as_str().to_owned());
    let slots = state.groups().flat_map(|(_, group)| group.slots.values());
    let waiting = slots.filter_map(|slot| slot.waiting.map(|reason| reason.code().to_owned()));
    metrics.push(Metric::labelled("longshore_nodes", MetricKind::Gauge, "health", counted(health.map(str::to_owned))));
    metrics.push(Metric::labelled("longshore_replicas", MetricKind::Gauge, "state", counted(states)));
    metrics.push(Metric::labelled("longshore_replicas_pending", MetricKind::Gauge, "reason", counted(waiting)));
    metrics
}

/// Counters since the daemon started.
fn of_loops(ctx: &NodeContext) -> Vec<Metric> {
    let counts = &ctx.counters;
    let plain = [
        ("longshore_terms_led_total", &counts.terms_led),
        ("longshore_scheduler_passes_total", &counts.passes),
        ("longshore_scheduler_deciding_microseconds_total", &counts.deciding_micros),
        ("longshore_plans_committed_total", &counts.plans),
        ("longshore_placements_committed_total", &counts.placements),
        ("longshore_plan_items_dropped_total", &counts.dropped),
        ("longshore_rebalance_cycles_total", &counts.rebalance_cycles),
        ("longshore_requests_total", &counts.requests),
    ];
    let mut metrics: Vec<Metric> =
        plain.into_iter().map(|(name, value)| Metric::plain(name, MetricKind::Counter, value.get())).collect();
    let refused = counts.refused.get();
    metrics.push(Metric::labelled("longshore_requests_refused_total", MetricKind::Counter, "code", refused));
    metrics
}

/// Traffic through the published ports of this machine, per service.
fn of_traffic(ctx: &NodeContext) -> Vec<Metric> {
    let traffic = ctx.published_ports.report().traffic;
    let of = |name: &'static str, kind, value: fn(&ServiceTraffic) -> u64| {
        let values = traffic.iter().map(|service| {
            let GroupKey { namespace, deployment, service: name } = &service.group;
            (format!("{namespace}/{deployment}/{name}"), value(service))
        });
        Metric::labelled(name, kind, "service", values.collect::<BTreeMap<_, _>>())
    };
    vec![
        of("longshore_service_connections_total", MetricKind::Counter, |service| service.connections),
        of("longshore_service_connections_open", MetricKind::Gauge, |service| service.open),
        of("longshore_service_received_bytes_total", MetricKind::Counter, |service| service.bytes_in),
        of("longshore_service_sent_bytes_total", MetricKind::Counter, |service| service.bytes_out),
        of("longshore_service_retries_total", MetricKind::Counter, |service| service.retries),
        of("longshore_service_ejections_total", MetricKind::Counter, |service| service.ejections),
        of("longshore_service_connections_refused_total", MetricKind::Counter, |service| service.refused),
    ]
}

fn counted(words: impl Iterator<Item = String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    words.for_each(|word| *counts.entry(word).or_default() += 1);
    counts
}
