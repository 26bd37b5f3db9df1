//! Whether the daemon lives, whether it can do its work, and its figures.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use axum::{
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::Response,
};
use longshore_model::RequestCode;
use longshore_store::replicated::Part;

use super::{Desk, Refusal};
use crate::beginning_again::pack_backup;

pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// Ready is who can answer with the newest state. Anybody may ask, and so nobody is told why not.
pub(super) async fn ready(State(desk): State<Arc<Desk>>) -> Result<&'static str, Refusal> {
    let not_ready = |_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, RequestCode::NotReady, "not ready");
    desk.store()?.read().await.map(|_| "ready\n").map_err(not_ready)
}

/// Counts every request, and every refusal by its code.
pub(super) async fn count(State(desk): State<Arc<Desk>>, request: Request, next: Next) -> Response {
    desk.hub.figures.requests.add(1);
    let response = next.run(request).await;
    if let Some(Code(code)) = response.extensions().get::<Code>() {
        desk.hub.figures.refused.add(code);
    }
    response
}

/// The code that an answer carries.
#[derive(Clone, Debug)]
pub(super) struct Code(pub(super) String);

/// Figures in the text format of Prometheus.
pub(super) async fn metrics(State(desk): State<Arc<Desk>>) -> Result<String, Refusal> {
    let store = desk.store()?;
    let state = store.read_local().state;
    let status = store.status();
    let leads = store.leadership().borrow().part == Part::Leading;
    let figures = &desk.hub.figures;
    let mut replicas: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, _, replica) in state.replicas() {
        *replicas.entry(replica.state.as_str()).or_default() += 1;
    }
    let plain = [
        ("longshore_state_index", "gauge", state.index().0),
        ("longshore_leading", "gauge", u64::from(leads)),
        ("longshore_term", "gauge", status.term),
        ("longshore_log_last_entry", "gauge", status.last_entry),
        ("longshore_log_applied_entry", "gauge", status.applied_entry),
        ("longshore_nodes", "gauge", state.nodes().count() as u64),
        ("longshore_deployments", "gauge", state.deployments().count() as u64),
        ("longshore_terms_led_total", "counter", figures.terms_led.get()),
        ("longshore_scheduler_passes_total", "counter", figures.passes.get()),
        ("longshore_scheduler_deciding_microseconds_total", "counter", figures.deciding_micros.get()),
        ("longshore_plans_committed_total", "counter", figures.plans.get()),
        ("longshore_placements_committed_total", "counter", figures.placements.get()),
        ("longshore_plan_items_dropped_total", "counter", figures.dropped.get()),
        ("longshore_rebalance_cycles_total", "counter", figures.rebalance_cycles.get()),
        ("longshore_requests_total", "counter", figures.requests.get()),
        ("longshore_event_streams", "gauge", desk.followers.count() as u64),
    ];
    let mut text = String::new();
    for (name, kind, value) in plain {
        let _ = writeln!(text, "# TYPE {name} {kind}\n{name} {value}");
    }
    let _ = writeln!(text, "# TYPE longshore_replicas gauge");
    for (state, count) in replicas {
        let _ = writeln!(text, "longshore_replicas{{state=\"{state}\"}} {count}");
    }
    let _ = writeln!(text, "# TYPE longshore_requests_refused_total counter");
    for (code, count) in figures.refused.get() {
        let _ = writeln!(text, "longshore_requests_refused_total{{code=\"{code}\"}} {count}");
    }
    Ok(text)
}

/// Everything a cluster goes on with, keys included, as bytes that `longshore restore` takes.
pub(super) async fn backup(State(desk): State<Arc<Desk>>) -> Result<Vec<u8>, Refusal> {
    let failed = |error: String| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, RequestCode::NotReady, error);
    let state = desk.store()?.backup().await.map_err(|error| failed(error.to_string()))?;
    let vault = desk.hub.vault().ok_or_else(|| failed("this node has no keys".to_owned()))?;
    pack_backup(desk.hub.place().cluster, vault, state).map_err(failed)
}
