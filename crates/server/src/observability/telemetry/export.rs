//! Sends spans and metrics to a collector: OTLP over HTTP, as JSON.
//!
//! Owns: the format of the protocol, and the intervals. Must not touch: what is measured.
//! Invariant: an unreachable collector costs the unsent data and one log line, and blocks nothing.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, header};
use longshore_api::connection;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{
    clock,
    lifecycle::node_context::NodeContext,
    observability::{
        metrics::{Metric, MetricKind, collect},
        telemetry::{Settings, Span, SpanKind},
    },
};

/// Time for one call.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Spans per call.
const BATCH: usize = 512;
/// Largest answer in bytes; a collector only confirms.
const MAX_ANSWER: usize = 64 * 1024;
/// Numbers of the OTLP specification.
const CUMULATIVE: u8 = 2;
const SERVER: u8 = 2;
const INTERNAL: u8 = 1;
const ERROR: u8 = 2;

/// Sends until the daemon ends.
pub(crate) async fn run(ctx: Arc<NodeContext>, settings: Settings, mut spans: mpsc::Receiver<Span>) {
    let mut exporter = Exporter { resource: resource(&settings, ctx.node().as_str()), settings, is_failing: false };
    let began = clock::nanos();
    let mut spans_due = tokio::time::interval(exporter.settings.spans_every);
    let mut metrics_due = tokio::time::interval(exporter.settings.metrics_every);
    for due in [&mut spans_due, &mut metrics_due] {
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    }
    loop {
        tokio::select! {
            _ = spans_due.tick() => {
                while !spans.is_empty() {
                    let mut batch = Vec::new();
                    spans.recv_many(&mut batch, BATCH).await;
                    exporter.send("/v1/traces", &exporter.traces(&batch)).await;
                }
            }
            _ = metrics_due.tick() => {
                if let Some(metrics) = collect::of(&ctx) {
                    exporter.send("/v1/metrics", &exporter.metrics(&metrics, began)).await;
                }
            }
        }
    }
}

struct Exporter {
    settings: Settings,
    resource: Value,
    /// Whether the last call failed. Only the first failure in a row is logged.
    is_failing: bool,
}

impl Exporter {
    async fn send(&mut self, path: &str, message: &Value) {
        let sent = tokio::time::timeout(TIMEOUT, self.post(path, message)).await;
        let sent = sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        if let (Err(error), false) = (&sent, self.is_failing) {
            tracing::warn!(collector = self.settings.address, %error, "traces and metrics cannot be sent");
        }
        self.is_failing = sent.is_err();
    }

    async fn post(&self, path: &str, message: &Value) -> io::Result<()> {
        let Settings { address, path: base, headers, .. } = &self.settings;
        let mut request = Request::builder().method(Method::POST).uri(format!("{base}{path}"));
        request = request.header(header::HOST, address).header(header::CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let body = Full::new(Bytes::from(message.to_string()));
        let request = request.body(body).map_err(io::Error::other)?;
        let stream = connection::connect_tcp(address).await?;
        let (status, _) = connection::exchange(stream, request, MAX_ANSWER).await?;
        if status.is_success() { Ok(()) } else { Err(io::Error::other(format!("it answers {status}"))) }
    }

    fn traces(&self, spans: &[Span]) -> Value {
        let spans: Vec<Value> = spans.iter().map(span).collect();
        json!({ "resourceSpans": [{
            "resource": self.resource,
            "scopeSpans": [{ "scope": scope(), "spans": spans }],
        }] })
    }

    fn metrics(&self, metrics: &[Metric], began: u64) -> Value {
        let now = clock::nanos().to_string();
        let metrics: Vec<Value> = metrics.iter().map(|it| metric(it, &began.to_string(), &now)).collect();
        json!({ "resourceMetrics": [{
            "resource": self.resource,
            "scopeMetrics": [{ "scope": scope(), "metrics": metrics }],
        }] })
    }
}

fn resource(settings: &Settings, node: &str) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let known =
        [("service.name", settings.service.as_str()), ("service.version", version), ("service.instance.id", node)];
    json!({ "attributes": known.map(|(name, value)| attribute(name, &Value::from(value))) })
}

fn scope() -> Value {
    json!({ "name": "longshore", "version": env!("CARGO_PKG_VERSION") })
}

/// Integers are texts in this protocol: 64 bits do not fit into a JSON number.
fn attribute(name: &str, value: &Value) -> Value {
    let value = match value {
        Value::Bool(value) => json!({ "boolValue": value }),
        Value::Number(number) => json!({ "intValue": number.to_string() }),
        Value::String(text) => json!({ "stringValue": text }),
        other @ (Value::Null | Value::Array(_) | Value::Object(_)) => json!({ "stringValue": other.to_string() }),
    };
    json!({ "key": name, "value": value })
}

fn span(span: &Span) -> Value {
    let attributes: Vec<Value> = span.attributes.iter().map(|(name, value)| attribute(name, value)).collect();
    let kind = match span.kind {
        SpanKind::Server => SERVER,
        SpanKind::Internal => INTERNAL,
    };
    let mut out = json!({
        "traceId": &*span.context.trace,
        "spanId": &*span.context.span,
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": span.start_ns.to_string(),
        "endTimeUnixNano": span.end_ns.to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = &span.parent {
        out["parentSpanId"] = Value::from(&**parent);
    }
    if let Some(code) = &span.failure {
        out["status"] = json!({ "code": ERROR, "message": code });
    }
    out
}

fn metric(it: &Metric, began: &str, now: &str) -> Value {
    let points: Vec<Value> = it
        .points
        .iter()
        .map(|(label, value)| {
            let attributes: Vec<Value> =
                label.iter().map(|(name, word)| attribute(name, &Value::from(word.as_str()))).collect();
            json!({
                "attributes": attributes, "startTimeUnixNano": began, "timeUnixNano": now, "asInt": value.to_string(),
            })
        })
        .collect();
    match it.kind {
        MetricKind::Gauge => json!({ "name": it.name, "gauge": { "dataPoints": points } }),
        MetricKind::Counter => json!({
            "name": it.name,
            "sum": { "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true },
        }),
    }
}
