//! Traces and metrics for an OpenTelemetry collector, if one is configured.
//!
//! ```text
//! request ─▶ commit ─▶ plan ─▶ replica.start        one trace; a server that does not lead notifies the leader
//! ```
//!
//! Owns: which spans exist, how they are linked, and queueing them for the exporter.
//! Must not touch: how they are sent. Nothing waits for it: a span that does not fit into the queue is dropped.
//! Invariant: without a collector nothing is kept; no span holds a secret.

mod export;
mod settings;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longshore_model::{StateIndex, Time};
use serde_json::Value;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{clock, lifecycle::node_context::NodeContext, security::keyring::random_hex};

pub(crate) use self::settings::Settings;

/// Spans in the queue.
const QUEUE: usize = 4096;
/// Commits and passes that later spans can link to: a replica that takes minutes to start still finds its pass.
const MAX_REMEMBERED: usize = 1024;

tokio::task_local! {
    /// The request that the current task answers.
    static REQUEST: TraceContext;
}

/// A position in a trace: trace id and span id, in hex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    trace: Arc<str>,
    span: Arc<str>,
}

impl TraceContext {
    /// Parses a `traceparent` header, `00-<trace>-<span>-<flags>`; `None` for anything else.
    pub(crate) fn parse(header: &str) -> Option<Self> {
        let parts: Vec<&str> = header.split('-').collect();
        let hex = |text: &str, length| {
            text.len() == length
                && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
                && text.bytes().any(|byte| byte != b'0')
        };
        match parts.as_slice() {
            ["00", trace, span, flags] if hex(trace, 32) && hex(span, 16) && flags.len() == 2 => {
                Some(Self { trace: (*trace).into(), span: (*span).into() })
            }
            _ => None,
        }
    }

    /// The `traceparent` header for the next call.
    pub(crate) fn header(&self) -> String {
        format!("00-{}-{}-01", self.trace, self.span)
    }
}

/// Kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanKind {
    /// A request that was answered.
    Server,
    /// A step of the work that follows.
    Internal,
}

/// A span of a trace.
#[derive(Debug)]
pub(crate) struct Span {
    context: TraceContext,
    parent: Option<Arc<str>>,
    kind: SpanKind,
    name: String,
    start_ns: u64,
    end_ns: u64,
    attributes: Vec<(&'static str, Value)>,
    failure: Option<String>,
}

impl Span {
    pub(crate) fn context(&self) -> TraceContext {
        self.context.clone()
    }

    /// Sets an attribute.
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.attributes.push((name, value.into()));
    }

    /// Marks the span as failed with an error code.
    pub(crate) fn fail(&mut self, code: &str) {
        self.failure = Some(code.to_owned());
    }
}

/// The telemetry of a daemon; inactive without a collector.
#[derive(Default)]
pub(crate) struct Telemetry {
    queue: Option<mpsc::Sender<Span>>,
    /// By the state index they led to.
    commits: Mutex<BTreeMap<u64, TraceContext>>,
    /// By their time, which is that of every placement they made.
    passes: Mutex<BTreeMap<u64, TraceContext>>,
}

impl Telemetry {
    /// Telemetry with a queue for an exporter.
    pub(crate) fn with_queue() -> (Self, mpsc::Receiver<Span>) {
        let (queue, spans) = mpsc::channel(QUEUE);
        (Self { queue: Some(queue), ..Self::default() }, spans)
    }

    /// Whether a collector is configured.
    pub(crate) const fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// Starts an internal span; `None` without a collector.
    pub(crate) fn begin(&self, name: impl Into<String>, parent: Option<TraceContext>) -> Option<Span> {
        self.begin_as(SpanKind::Internal, name, parent)
    }

    /// Starts a span; `None` without a collector.
    pub(crate) fn begin_as(
        &self,
        kind: SpanKind,
        name: impl Into<String>,
        parent: Option<TraceContext>,
    ) -> Option<Span> {
        self.queue.as_ref()?;
        let trace = match &parent {
            Some(parent) => Arc::clone(&parent.trace),
            None => random_hex(16).ok()?.into(),
        };
        let context = TraceContext { trace, span: random_hex(8).ok()?.into() };
        let now = clock::nanos();
        let parent = parent.map(|parent| parent.span);
        let (attributes, failure) = (Vec::new(), None);
        Some(Span { context, parent, kind, name: name.into(), start_ns: now, end_ns: now, attributes, failure })
    }

    /// Ends the span now.
    pub(crate) fn end(&self, span: Option<Span>) {
        if let Some(span) = span {
            self.send(Span { end_ns: clock::nanos(), ..span });
        }
    }

    fn send(&self, span: Span) {
        if let Some(queue) = &self.queue {
            // An unreachable collector must not fill our memory.
            let _ = queue.try_send(span);
        }
    }

    /// Runs a future as part of a span.
    pub(crate) async fn in_span<T>(span: Option<&Span>, work: impl Future<Output = T>) -> T {
        match span {
            Some(span) => REQUEST.scope(span.context(), work).await,
            None => work.await,
        }
    }

    /// The request that the current task answers.
    pub(crate) fn current_request() -> Option<TraceContext> {
        REQUEST.try_with(Clone::clone).ok()
    }

    /// A command led to this state.
    pub(crate) fn committed(&self, index: StateIndex, span: Option<&Span>) {
        remember(&self.commits, index.0, span.map(Span::context));
    }

    /// A command of another server led to this state.
    pub(crate) fn committed_elsewhere(&self, index: StateIndex, context: Option<TraceContext>) {
        remember(&self.commits, index.0, context.filter(|_| self.is_on()));
    }

    /// A pass was made at this time.
    pub(crate) fn planned(&self, at: Time, span: Option<&Span>) {
        remember(&self.passes, at.0, span.map(Span::context));
    }

    /// The first known commit between two view indices.
    pub(crate) fn commit_between(&self, after: StateIndex, through: StateIndex) -> Option<TraceContext> {
        // `BTreeMap::range` panics on a reversed range.
        let range = (after < through).then(|| after.0.saturating_add(1)..=through.0)?;
        lock(&self.commits).range(range).next().map(|(_, context)| context.clone())
    }

    /// A replica started to run; the span lasts from its placement to its report.
    pub(crate) fn replica_started(&self, placed_at: Time, seen_at: Time, about: impl FnOnce(&mut Span)) {
        let pass = lock(&self.passes).get(&placed_at.0).cloned();
        let Some(mut span) = self.begin("replica.start", pass) else { return };
        (span.start_ns, span.end_ns) = (nanos(placed_at), nanos(seen_at).max(nanos(placed_at)));
        about(&mut span);
        self.send(span);
    }
}

const fn nanos(time: Time) -> u64 {
    time.0.saturating_mul(1_000_000)
}

fn remember(kept: &Mutex<BTreeMap<u64, TraceContext>>, at: u64, context: Option<TraceContext>) {
    let Some(context) = context else { return };
    let mut kept = lock(kept);
    kept.insert(at, context);
    while kept.len() > MAX_REMEMBERED {
        kept.pop_first();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the exporter.
pub(crate) fn start(ctx: Arc<NodeContext>, settings: Settings, spans: mpsc::Receiver<Span>) -> JoinHandle<()> {
    tokio::spawn(export::run(ctx, settings, spans))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_traceparent_header_is_accepted() {
        let good = format!("00-{}-{}-01", "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        assert!(TraceContext::parse(&good).is_some());
        for wrong in ["", "00-0-0-01", &good.replace("0af", "0AF"), &good.replace("00-0", "ff-0"), &format!("{good}-x")]
        {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
        }
        assert_eq!(
            TraceContext::parse(&format!("00-{}-{}-01", "0".repeat(32), "1".repeat(16))),
            None,
            "no trace at all"
        );
    }

    #[test]
    fn the_span_of_a_replica_is_linked_to_its_pass_and_that_to_the_request() {
        let (telemetry, mut spans) = Telemetry::with_queue();
        let request = telemetry.begin("request", None);
        let commit = telemetry.begin("commit", request.as_ref().map(Span::context));
        telemetry.committed(StateIndex(7), commit.as_ref());
        assert_eq!(telemetry.commit_between(StateIndex(7), StateIndex(9)), None);
        let plan = telemetry.begin("plan", telemetry.commit_between(StateIndex(5), StateIndex(9)));
        telemetry.planned(Time(100), plan.as_ref());
        telemetry.replica_started(Time(100), Time(350), |span| span.set("replica", "shop-web-0"));
        for span in [request, commit, plan] {
            telemetry.end(span);
        }
        let sent: Vec<Span> = std::iter::from_fn(|| spans.try_recv().ok()).collect();
        let named = |name: &str| sent.iter().find(|span| span.name == name).unwrap();
        for (child, parent) in [("replica.start", "plan"), ("plan", "commit"), ("commit", "request")] {
            assert_eq!(named(child).parent, Some(named(parent).context.span.clone()), "{child}");
            assert_eq!(named(child).context.trace, named("request").context.trace, "{child}");
        }
        assert_eq!(named("replica.start").end_ns - named("replica.start").start_ns, 250_000_000);
    }

    #[test]
    fn without_a_collector_nothing_is_kept() {
        let telemetry = Telemetry::default();
        assert!(telemetry.begin("request", None).is_none());
        telemetry.committed(StateIndex(1), None);
        let header = format!("00-{}-{}-01", "1".repeat(32), "2".repeat(16));
        assert_eq!(TraceContext::parse(&header).map(|context| context.header()), Some(header.clone()));
        telemetry.committed_elsewhere(StateIndex(2), TraceContext::parse(&header));
        assert!(lock(&telemetry.commits).is_empty());
    }
}
