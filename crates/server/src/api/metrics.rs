//! Metrics in the text format of Prometheus.
//!
//! Owns: the format. Must not touch: anything that blocks; a member without a quorum answers, too.

use std::{fmt::Write as _, sync::Arc};

use axum::extract::State;

use crate::{
    api::{ApiError, ApiState},
    observability::metrics::{Metric, MetricKind, collect},
};

pub(crate) async fn metrics(State(api): State<Arc<ApiState>>) -> Result<String, ApiError> {
    let mut metrics = collect::all(&api.ctx, &api.store()?);
    metrics.push(Metric::plain("longshore_event_streams", MetricKind::Gauge, api.streams.count() as u64));
    Ok(text(&metrics))
}

fn text(metrics: &[Metric]) -> String {
    let mut text = String::new();
    for Metric { name, kind, points } in metrics {
        let kind = match kind {
            MetricKind::Gauge => "gauge",
            MetricKind::Counter => "counter",
        };
        let _ = writeln!(text, "# TYPE {name} {kind}");
        for (label, value) in points {
            let label = label.as_ref().map_or_else(String::new, |(label, word)| format!("{{{label}=\"{word}\"}}"));
            let _ = writeln!(text, "{name}{label} {value}");
        }
    }
    text
}
