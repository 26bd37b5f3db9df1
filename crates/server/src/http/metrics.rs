//! Figures in the text format of Prometheus.
//!
//! Owns: their names, which are stable: people alert on them. Must not touch: anything that would wait; a member that
//! cannot reach the others tells its figures, too.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use axum::extract::State;
use longshore_model::Health;
use longshore_store::{State as Kept, replicated::Part};

use super::{Desk, Refusal};

/// Something that goes up and down.
const GAUGE: &str = "gauge";
/// Something that only grows.
const COUNTER: &str = "counter";

pub(super) async fn metrics(State(desk): State<Arc<Desk>>) -> Result<String, Refusal> {
    let store = desk.store()?;
    let state = store.read_local().state;
    let mut text = Text(String::new());
    text.labelled("longshore_build_info", GAUGE, "version", [(env!("CARGO_PKG_VERSION").to_owned(), 1)]);
    let (status, members) = (store.status(), store.members());
    let leads = store.leadership().borrow().part == Part::Leading;
    for (name, value) in [
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
        ("longshore_event_streams", desk.followers.count() as u64),
    ] {
        text.plain(name, GAUGE, value);
    }
    let lag = status.lag.iter().map(|(member, behind)| (member.to_string(), *behind));
    text.labelled("longshore_member_lag_entries", GAUGE, "member", lag);
    of_state(&state, &mut text);
    of_loops(&desk, &mut text);
    Ok(text.0)
}

/// What there is.
fn of_state(state: &Kept, text: &mut Text) {
    let access = state.access();
    for (name, value) in [
        ("longshore_deployments", state.deployments().count()),
        ("longshore_services", state.groups().count()),
        ("longshore_secrets", state.secrets().count()),
        ("longshore_tokens", access.tokens().count()),
        ("longshore_seats", access.seats().count()),
    ] {
        text.plain(name, GAUGE, value as u64);
    }
    let health = state.nodes().map(|node| match node.health {
        Health::Ready => "ready",
        Health::Suspect => "suspect",
        Health::Down => "down",
        Health::Degraded => "degraded",
    });
    text.labelled("longshore_nodes", GAUGE, "health", counted(health.map(str::to_owned)));
    let states = state.replicas().map(|(_, _, replica)| replica.state.as_str().to_owned());
    text.labelled("longshore_replicas", GAUGE, "state", counted(states));
    let slots = state.groups().flat_map(|(_, group)| group.slots.values());
    let waiting = slots.filter_map(|slot| slot.waiting.map(|reason| reason.code().to_owned()));
    text.labelled("longshore_replicas_pending", GAUGE, "reason", counted(waiting));
}

/// What was done since the daemon started.
fn of_loops(desk: &Desk, text: &mut Text) {
    let figures = &desk.hub.figures;
    for (name, value) in [
        ("longshore_terms_led_total", &figures.terms_led),
        ("longshore_scheduler_passes_total", &figures.passes),
        ("longshore_scheduler_deciding_microseconds_total", &figures.deciding_micros),
        ("longshore_plans_committed_total", &figures.plans),
        ("longshore_placements_committed_total", &figures.placements),
        ("longshore_plan_items_dropped_total", &figures.dropped),
        ("longshore_rebalance_cycles_total", &figures.rebalance_cycles),
        ("longshore_requests_total", &figures.requests),
    ] {
        text.plain(name, COUNTER, value.get());
    }
    text.labelled("longshore_requests_refused_total", COUNTER, "code", figures.refused.get());
}

fn counted(words: impl Iterator<Item = String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    words.for_each(|word| *counts.entry(word).or_default() += 1);
    counts
}

struct Text(String);

impl Text {
    fn plain(&mut self, name: &str, kind: &str, value: u64) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}\n{name} {value}");
    }

    /// Labels are words of ours and numbers; nothing that would have to be escaped.
    fn labelled(&mut self, name: &str, kind: &str, label: &str, values: impl IntoIterator<Item = (String, u64)>) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        for (value, count) in values {
            let _ = writeln!(self.0, "{name}{{{label}=\"{value}\"}} {count}");
        }
    }
}
