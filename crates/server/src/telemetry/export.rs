//! Spans and figures on their way to a collector: OTLP over HTTP, as JSON.
//!
//! Owns: the shapes of the protocol, and the pace. Must not touch: what is told.
//! Invariant: a collector that is away costs what was not sent, is complained about once, and holds up nobody.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::mpsc};

use super::{Role, Settings, Span};
use crate::{
    clock,
    figures::{Figure, Kind, told},
    hub::Hub,
};

/// Time one call may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Spans of one call.
const TOGETHER: usize = 512;
/// Largest answer that is read; a collector has nothing to say but that it has taken all.
const LARGEST_ANSWER: usize = 64 * 1024;
/// As the protocol numbers them.
const CUMULATIVE: u8 = 2;
const SERVER: u8 = 2;
const INTERNAL: u8 = 1;
const ERROR: u8 = 2;

/// Sends until nobody tells anything any more.
pub(super) async fn run(hub: Arc<Hub>, settings: Settings, mut spans: mpsc::Receiver<Span>) {
    let mut exporter = Exporter { resource: resource(&settings, hub.node().as_str()), settings, away: Away::No };
    let began = clock::nanos();
    let mut spans_due = tokio::time::interval(exporter.settings.spans_every);
    let mut figures_due = tokio::time::interval(exporter.settings.figures_every);
    for due in [&mut spans_due, &mut figures_due] {
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    }
    loop {
        tokio::select! {
            _ = spans_due.tick() => {
                while !spans.is_empty() {
                    let mut batch = Vec::new();
                    spans.recv_many(&mut batch, TOGETHER).await;
                    exporter.send("/v1/traces", &exporter.traces(&batch)).await;
                }
            }
            _ = figures_due.tick() => {
                if let Some(figures) = told::of(&hub) {
                    exporter.send("/v1/metrics", &exporter.metrics(&figures, began)).await;
                }
            }
        }
    }
}

/// Whether the collector was away the last time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Away {
    No,
    Yes,
}

struct Exporter {
    settings: Settings,
    resource: Value,
    away: Away,
}

impl Exporter {
    async fn send(&mut self, path: &str, message: &Value) {
        let sent = tokio::time::timeout(PATIENCE, self.post(path, message)).await;
        let sent = sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match (sent, self.away) {
            (Ok(()), _) => self.away = Away::No,
            (Err(error), Away::No) => {
                self.away = Away::Yes;
                tracing::warn!(collector = self.settings.address, %error, "traces and figures cannot be sent");
            }
            (Err(_), Away::Yes) => {}
        }
    }

    async fn post(&self, path: &str, message: &Value) -> io::Result<()> {
        let Settings { address, path: base, headers, .. } = &self.settings;
        let stream = TcpStream::connect(address).await?;
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(io::Error::other)?;
        let connection = tokio::spawn(connection);
        let mut request = Request::builder().method(Method::POST).uri(format!("{base}{path}"));
        request = request.header(header::HOST, address).header(header::CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let body = Full::new(Bytes::from(message.to_string()));
        let request = request.body(body).map_err(io::Error::other)?;
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = response.status();
        let read = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
        connection.abort();
        read.map_err(io::Error::other)?;
        if status.is_success() { Ok(()) } else { Err(io::Error::other(format!("it answers {status}"))) }
    }

    fn traces(&self, spans: &[Span]) -> Value {
        let spans: Vec<Value> = spans.iter().map(span).collect();
        json!({ "resourceSpans": [{
            "resource": self.resource,
            "scopeSpans": [{ "scope": scope(), "spans": spans }],
        }] })
    }

    fn metrics(&self, figures: &[Figure], began: u64) -> Value {
        let now = clock::nanos().to_string();
        let metrics: Vec<Value> = figures.iter().map(|figure| metric(figure, &began.to_string(), &now)).collect();
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

/// Whole numbers are texts in this protocol, as 64 bits do not fit into a number of JSON.
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
    let kind = match span.role {
        Role::Request => SERVER,
        Role::Step => INTERNAL,
    };
    let mut told = json!({
        "traceId": &*span.context.trace,
        "spanId": &*span.context.span,
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": span.began_ns.to_string(),
        "endTimeUnixNano": span.ended_ns.to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = &span.parent {
        told["parentSpanId"] = Value::from(&**parent);
    }
    if let Some(code) = &span.failure {
        told["status"] = json!({ "code": ERROR, "message": code });
    }
    told
}

fn metric(figure: &Figure, began: &str, now: &str) -> Value {
    let points: Vec<Value> = figure
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
    match figure.kind {
        Kind::Gauge => json!({ "name": figure.name, "gauge": { "dataPoints": points } }),
        Kind::Counter => json!({
            "name": figure.name,
            "sum": { "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true },
        }),
    }
}
