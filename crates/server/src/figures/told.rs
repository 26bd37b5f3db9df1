//! The figures a daemon tells, whoever asks.
//!
//! Owns: their names, which are stable: people alert on them. Must not touch: anything that would wait.

use std::collections::BTreeMap;

use longshore_model::Health;
use longshore_store::{
    State as Kept,
    replicated::{Part, Replicated},
};

use super::{Figure, Kind};
use crate::hub::Hub;

/// The figures of a daemon, which has none unless it keeps the log.
pub(crate) fn of(hub: &Hub) -> Option<Vec<Figure>> {
    hub.store().map(|store| all(hub, &store))
}

/// All figures of a daemon, by the log it keeps.
pub(crate) fn all(hub: &Hub, store: &Replicated) -> Vec<Figure> {
    let state = store.read_local().state;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let mut figures = vec![Figure::labelled("longshore_build_info", Kind::Gauge, "version", [(version, 1)])];
    let (status, members) = (store.status(), store.members());
    let leads = store.leadership().borrow().part == Part::Leading;
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
    figures.extend(plain.map(|(name, value)| Figure::plain(name, Kind::Gauge, value)));
    let lag = status.lag.iter().map(|(member, behind)| (member.to_string(), *behind));
    figures.push(Figure::labelled("longshore_member_lag_entries", Kind::Gauge, "member", lag));
    figures.extend(of_state(&state));
    figures.extend(of_loops(hub));
    figures
}

/// What there is.
fn of_state(state: &Kept) -> Vec<Figure> {
    let access = state.access();
    let plain = [
        ("longshore_deployments", state.deployments().count()),
        ("longshore_services", state.groups().count()),
        ("longshore_secrets", state.secrets().count()),
        ("longshore_tokens", access.tokens().count()),
        ("longshore_seats", access.seats().count()),
    ];
    let mut figures: Vec<Figure> =
        plain.into_iter().map(|(name, value)| Figure::plain(name, Kind::Gauge, value as u64)).collect();
    let health = state.nodes().map(|node| match node.health {
        Health::Ready => "ready",
        Health::Suspect => "suspect",
        Health::Down => "down",
        Health::Degraded => "degraded",
    });
    let states = state.replicas().map(|(_, _, replica)| replica.state.as_str().to_owned());
    let slots = state.groups().flat_map(|(_, group)| group.slots.values());
    let waiting = slots.filter_map(|slot| slot.waiting.map(|reason| reason.code().to_owned()));
    figures.push(Figure::labelled("longshore_nodes", Kind::Gauge, "health", counted(health.map(str::to_owned))));
    figures.push(Figure::labelled("longshore_replicas", Kind::Gauge, "state", counted(states)));
    figures.push(Figure::labelled("longshore_replicas_pending", Kind::Gauge, "reason", counted(waiting)));
    figures
}

/// What was done since the daemon started.
fn of_loops(hub: &Hub) -> Vec<Figure> {
    let counts = &hub.figures;
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
    let mut figures: Vec<Figure> =
        plain.into_iter().map(|(name, value)| Figure::plain(name, Kind::Counter, value.get())).collect();
    let refused = counts.refused.get();
    figures.push(Figure::labelled("longshore_requests_refused_total", Kind::Counter, "code", refused));
    figures
}

fn counted(words: impl Iterator<Item = String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    words.for_each(|word| *counts.entry(word).or_default() += 1);
    counts
}
