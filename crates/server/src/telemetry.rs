//! Traces and figures for a collector, where the operator names one.
//!
//! ```text
//! request ─▶ commit ─▶ plan ─▶ replica.start        one trace; a server that does not lead tells the one that does
//! ```
//!
//! Owns: which spans there are, what hangs together, and carrying them to whoever sends them.
//! Must not touch: how they are sent, and anything that would wait for it: what does not fit into the queue is dropped.
//! Invariant: without a collector nothing is kept and nothing costs more than a look; nothing secret is in a span.

mod export;
mod settings;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longshore_model::{StateIndex, Time};
use serde_json::Value;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{clock, hub::Hub, vault::random_hex};

pub(crate) use self::settings::Settings;

/// Spans that wait to be sent.
const QUEUE: usize = 4096;
/// Commits and passes that later spans may hang on: a replica that starts for minutes still finds its pass.
const REMEMBERED: usize = 1024;

tokio::task_local! {
    /// The request that is being answered.
    static REQUEST: Context;
}

/// A place in a trace, in hex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    trace: Arc<str>,
    span: Arc<str>,
}

impl Context {
    /// What a caller says it is part of: `00-<trace>-<span>-<flags>`. Anything else is nothing.
    pub(crate) fn of_caller(header: &str) -> Option<Self> {
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

    /// The same, for whoever is asked next.
    pub(crate) fn header(&self) -> String {
        format!("00-{}-{}-01", self.trace, self.span)
    }
}

/// What a span stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Somebody asked for something.
    Request,
    /// A part of what was done about it.
    Step,
}

/// Something that began, and ended.
#[derive(Debug)]
pub(crate) struct Span {
    context: Context,
    parent: Option<Arc<str>>,
    role: Role,
    name: String,
    began_ns: u64,
    ended_ns: u64,
    attributes: Vec<(&'static str, Value)>,
    failure: Option<String>,
}

impl Span {
    pub(crate) fn context(&self) -> Context {
        self.context.clone()
    }

    /// Says something of it.
    pub(crate) fn note(&mut self, name: &'static str, value: impl Into<Value>) {
        self.attributes.push((name, value.into()));
    }

    /// It did not end well, with this code.
    pub(crate) fn fail(&mut self, code: &str) {
        self.failure = Some(code.to_owned());
    }
}

/// Everything a daemon tells a collector; nothing where there is none.
#[derive(Default)]
pub(crate) struct Telemetry {
    queue: Option<mpsc::Sender<Span>>,
    /// By the index they led to.
    commits: Mutex<BTreeMap<u64, Context>>,
    /// By their time, which is that of every placement they made.
    passes: Mutex<BTreeMap<u64, Context>>,
}

impl Telemetry {
    /// One that keeps spans for whoever takes them.
    pub(crate) fn with_queue() -> (Self, mpsc::Receiver<Span>) {
        let (queue, spans) = mpsc::channel(QUEUE);
        (Self { queue: Some(queue), ..Self::default() }, spans)
    }

    /// Whether anybody wants to know.
    pub(crate) const fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// Begins a step, where anybody wants to know.
    pub(crate) fn begin(&self, name: impl Into<String>, parent: Option<Context>) -> Option<Span> {
        self.begin_as(Role::Step, name, parent)
    }

    /// Begins a span, where anybody wants to know.
    pub(crate) fn begin_as(&self, role: Role, name: impl Into<String>, parent: Option<Context>) -> Option<Span> {
        self.queue.as_ref()?;
        let trace = match &parent {
            Some(parent) => Arc::clone(&parent.trace),
            None => random_hex(16).ok()?.into(),
        };
        let context = Context { trace, span: random_hex(8).ok()?.into() };
        let now = clock::nanos();
        let parent = parent.map(|parent| parent.span);
        let (attributes, failure) = (Vec::new(), None);
        Some(Span { context, parent, role, name: name.into(), began_ns: now, ended_ns: now, attributes, failure })
    }

    /// The span ends now.
    pub(crate) fn end(&self, span: Option<Span>) {
        if let Some(span) = span {
            self.send(Span { ended_ns: clock::nanos(), ..span });
        }
    }

    fn send(&self, span: Span) {
        if let Some(queue) = &self.queue {
            // A collector that is away must not fill our memory.
            let _ = queue.try_send(span);
        }
    }

    /// Answers a request as part of a span.
    pub(crate) async fn within<T>(span: Option<&Span>, work: impl Future<Output = T>) -> T {
        match span {
            Some(span) => REQUEST.scope(span.context(), work).await,
            None => work.await,
        }
    }

    /// The request that is being answered, where one is.
    pub(crate) fn request() -> Option<Context> {
        REQUEST.try_with(Clone::clone).ok()
    }

    /// A command led to this state.
    pub(crate) fn committed(&self, index: StateIndex, span: Option<&Span>) {
        remember(&self.commits, index.0, span.map(Span::context));
    }

    /// The same, as another server tells.
    pub(crate) fn committed_elsewhere(&self, index: StateIndex, context: Option<Context>) {
        remember(&self.commits, index.0, context.filter(|_| self.is_on()));
    }

    /// A pass was made at this time.
    pub(crate) fn planned(&self, at: Time, span: Option<&Span>) {
        remember(&self.passes, at.0, span.map(Span::context));
    }

    /// The first command known of those that a pass has heard of since the one before.
    pub(crate) fn commit_between(&self, after: StateIndex, through: StateIndex) -> Option<Context> {
        // A range that ends before it begins is a mistake to a map, and nothing was heard of here.
        let heard = (after < through).then(|| after.0.saturating_add(1)..=through.0)?;
        lock(&self.commits).range(heard).next().map(|(_, context)| context.clone())
    }

    /// A replica runs, placed at one time and seen at another.
    pub(crate) fn replica_started(&self, placed_at: Time, seen_at: Time, about: impl FnOnce(&mut Span)) {
        let pass = lock(&self.passes).get(&placed_at.0).cloned();
        let Some(mut span) = self.begin("replica.start", pass) else { return };
        (span.began_ns, span.ended_ns) = (nanos(placed_at), nanos(seen_at).max(nanos(placed_at)));
        about(&mut span);
        self.send(span);
    }
}

const fn nanos(time: Time) -> u64 {
    time.0.saturating_mul(1_000_000)
}

fn remember(kept: &Mutex<BTreeMap<u64, Context>>, at: u64, context: Option<Context>) {
    let Some(context) = context else { return };
    let mut kept = lock(kept);
    kept.insert(at, context);
    while kept.len() > REMEMBERED {
        kept.pop_first();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends what the hub's parts tell, until the daemon ends.
pub(crate) fn start(hub: Arc<Hub>, settings: Settings, spans: mpsc::Receiver<Span>) -> JoinHandle<()> {
    tokio::spawn(export::run(hub, settings, spans))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_believed_only_where_it_says_it_right() {
        let good = format!("00-{}-{}-01", "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        assert!(Context::of_caller(&good).is_some());
        for wrong in ["", "00-0-0-01", &good.replace("0af", "0AF"), &good.replace("00-0", "ff-0"), &format!("{good}-x")]
        {
            assert_eq!(Context::of_caller(wrong), None, "{wrong}");
        }
        assert_eq!(
            Context::of_caller(&format!("00-{}-{}-01", "0".repeat(32), "1".repeat(16))),
            None,
            "no trace at all"
        );
    }

    #[test]
    fn a_replica_hangs_on_the_pass_that_placed_it_and_that_on_the_request() {
        let (telemetry, mut spans) = Telemetry::with_queue();
        let request = telemetry.begin("request", None);
        let commit = telemetry.begin("commit", request.as_ref().map(Span::context));
        telemetry.committed(StateIndex(7), commit.as_ref());
        assert_eq!(telemetry.commit_between(StateIndex(7), StateIndex(9)), None);
        let plan = telemetry.begin("plan", telemetry.commit_between(StateIndex(5), StateIndex(9)));
        telemetry.planned(Time(100), plan.as_ref());
        telemetry.replica_started(Time(100), Time(350), |span| span.note("replica", "shop-web-0"));
        for span in [request, commit, plan] {
            telemetry.end(span);
        }
        let told: Vec<Span> = std::iter::from_fn(|| spans.try_recv().ok()).collect();
        let named = |name: &str| told.iter().find(|span| span.name == name).unwrap();
        for (child, parent) in [("replica.start", "plan"), ("plan", "commit"), ("commit", "request")] {
            assert_eq!(named(child).parent, Some(named(parent).context.span.clone()), "{child}");
            assert_eq!(named(child).context.trace, named("request").context.trace, "{child}");
        }
        assert_eq!(named("replica.start").ended_ns - named("replica.start").began_ns, 250_000_000);
    }

    #[test]
    fn without_a_collector_nothing_is_kept() {
        let telemetry = Telemetry::default();
        assert!(telemetry.begin("request", None).is_none());
        telemetry.committed(StateIndex(1), None);
        let told = format!("00-{}-{}-01", "1".repeat(32), "2".repeat(16));
        assert_eq!(Context::of_caller(&told).map(|context| context.header()), Some(told.clone()));
        telemetry.committed_elsewhere(StateIndex(2), Context::of_caller(&told));
        assert!(lock(&telemetry.commits).is_empty());
    }
}
