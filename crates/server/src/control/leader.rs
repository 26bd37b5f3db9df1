//! The leader's loop: scheduling passes, failure detection, rebalancing, in one task.
//!
//! ```text
//! changes ────▶ view ─▶ 50 ms of quiet, 1 s at most ─▶ plan ─▶ store
//! heartbeats ─▶ failure detector ─▶ suspect, down, ready ────▶ store
//!           └─▶ rebalancer ─▶ every 30 s ─▶ plan ────────────▶ store
//! ```
//!
//! Owns: when each runs, and the leader's memory. Must not touch: the decisions; they are proposed as they are.
//! Invariant: one task does all of it, and it has ended before another is started, so nothing runs twice.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use longshore_model::{
    Attempt, Command, Event, Heartbeat, NodeName, Plan, ReplicaState, StateIndex, Time, access::AccessCommand,
    agent_protocol::Usage,
};
use longshore_scheduler::{
    View,
    rebalance::{self, Cycle, MeasuredUsage, Rebalancer},
};
use longshore_store::replicated::{
    Change, Filter, Leadership, LeadershipRole, Outcome, Proposal, Replicated, WatchEvent, Watcher,
};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    clock,
    control::{failure_detector::FailureDetector, membership},
    lifecycle::node_context::NodeContext,
    observability::telemetry::Span,
};

/// Quiet time before a pass, so that changes that arrive together are decided together.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Longest delay of a pass, so that a busy cluster is still scheduled.
const MAX_DEBOUNCE: Duration = Duration::from_secs(1);
/// A pass runs at least this often, in case an event was missed.
const MAX_PASS_INTERVAL: Duration = Duration::from_secs(30);

/// Starts the leader's tasks when this member becomes leader and ends them when it no longer is.
pub(crate) async fn follow_leadership(store: Replicated, ctx: Arc<NodeContext>) {
    let mut leadership = store.leadership();
    let mut leading: Option<(u64, LeaderTasks)> = None;
    loop {
        let Leadership { term, role, .. } = leadership.borrow_and_update().clone();
        let leads = role == LeadershipRole::Leading;
        if let Some((_, ended)) = leading.take_if(|(since, _)| !leads || *since != term) {
            ended.end().await;
            tracing::info!(term, "no longer leading");
        }
        if leads && leading.is_none() {
            tracing::info!(term, "leading");
            ctx.counters.terms_led.add(1);
            let leader = Leader::new(store.clone(), Arc::clone(&ctx));
            let tasks = [
                tokio::spawn(leader.run(ctx.heartbeats.subscribe())),
                tokio::spawn(membership::maintain(Arc::clone(&ctx), store.clone())),
            ];
            leading = Some((term, LeaderTasks(tasks)));
        }
        if role == LeadershipRole::Stopped || leadership.changed().await.is_err() {
            return;
        }
    }
}

/// The leader's tasks; dropping them aborts them. The second one only changes the Raft membership, so the two do not
/// race.
struct LeaderTasks([JoinHandle<()>; 2]);

impl LeaderTasks {
    /// Aborts the tasks and waits until they have ended.
    async fn end(mut self) {
        for task in &mut self.0 {
            task.abort();
            let _ = task.await;
        }
    }
}

impl Drop for LeaderTasks {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

struct Leader {
    store: Replicated,
    ctx: Arc<NodeContext>,
    watcher: Watcher,
    view: View,
    /// The state that the view reflects.
    view_index: StateIndex,
    detector: FailureDetector,
    rebalancer: Rebalancer,
    pass_timer: PassTimer,
    /// The view index of the previous pass.
    last_pass_index: StateIndex,
}

/// When the next pass runs.
struct PassTimer {
    first_event: Option<Instant>,
    at: Instant,
}

impl PassTimer {
    fn debounce(&mut self) {
        let now = Instant::now();
        let first = *self.first_event.get_or_insert(now);
        self.at = (now + DEBOUNCE).min(first + MAX_DEBOUNCE);
    }

    fn schedule_in(&mut self, wait: Duration) {
        self.first_event = None;
        self.at = Instant::now() + wait.min(MAX_PASS_INTERVAL);
    }
}

impl Leader {
    fn new(store: Replicated, ctx: Arc<NodeContext>) -> Self {
        let state = store.read_local().state;
        let (view_index, now) = (state.index(), clock::now());
        ctx.node_loads.clear();
        ctx.node_conditions.clear();
        let interval = state.config().heartbeat_interval_for(state.nodes().count());
        ctx.heartbeats.set_interval(interval);
        Self {
            watcher: store.watch(view_index, Filter::All),
            view: view_of(&state),
            view_index,
            detector: FailureDetector::new(now, interval),
            rebalancer: Rebalancer::new(now),
            pass_timer: PassTimer { first_event: None, at: Instant::now() },
            last_pass_index: view_index,
            store,
            ctx,
        }
    }

    async fn run(mut self, mut heartbeats: mpsc::Receiver<(NodeName, Heartbeat)>) {
        let mut look = tokio::time::interval(self.store.read_local().state.config().heartbeat_interval);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut cycle = tokio::time::interval(rebalance::CYCLE);
        cycle.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.enforce_policies().await;
        loop {
            // Checked first: under constant change the branches below would always be ready.
            if self.pass_timer.at <= Instant::now() {
                self.pass().await;
            }
            let pass_due = pin!(tokio::time::sleep_until(self.pass_timer.at.into()));
            tokio::select! {
                watched = self.watcher.next() => match watched {
                    WatchEvent::Changes { through, changes } => {
                        changes.iter().flat_map(|change| &change.events).for_each(|event| self.view.apply(event));
                        self.trace_starts(&changes);
                        self.view_index = through;
                        self.pass_timer.debounce();
                    }
                    WatchEvent::Resync => self.rebuild_view(),
                    WatchEvent::Closed => return,
                },
                heartbeat = heartbeats.recv() => match heartbeat {
                    Some((node, heartbeat)) => self.record_heartbeat(&node, heartbeat),
                    None => return,
                },
                _ = look.tick() => self.update_health().await,
                _ = cycle.tick() => self.rebalance().await,
                () = pass_due => {}
            }
        }
    }

    /// A cluster from before policies: namespaces that exist keep everything, new ones are denied until they have a policy.
    async fn enforce_policies(&self) {
        let state = self.store.read_local().state;
        if state.access().authority().is_some() && !state.access().enforces_policies() {
            let command = Command::Access(Box::new(AccessCommand::EnforcePolicies));
            if let Err(error) = self.store.propose(Proposal::by_system(command, clock::now())).await {
                tracing::warn!(%error, "policies could not be enforced yet; the next leader tries again");
            }
        }
    }

    fn rebuild_view(&mut self) {
        let state = self.store.read_local().state;
        self.view = view_of(&state);
        self.view_index = state.index();
        self.watcher.resume(self.view_index);
        self.pass_timer.debounce();
    }

    async fn pass(&mut self) {
        let now = clock::now();
        let started = Instant::now();
        let because = self.ctx.telemetry.commit_between(self.last_pass_index, self.view_index);
        let mut span = self.ctx.telemetry.begin("plan", because);
        self.last_pass_index = self.view_index;
        let plan = tokio::task::block_in_place(|| longshore_scheduler::plan(&mut self.view, self.view_index, now));
        self.ctx.counters.passes.add(1);
        self.ctx.counters.deciding_micros.add_micros(started.elapsed());
        let wake_at = plan.wake_at;
        let wake = |soonest: Duration| wake_at.map_or(MAX_PASS_INTERVAL, |at| at.since(clock::now()).max(soonest));
        if plan.is_empty() {
            self.pass_timer.schedule_in(wake(Duration::from_millis(1)));
            return;
        }
        if let Some(span) = &mut span {
            span.set("longshore.placements", plan.placements());
            span.set("longshore.groups", plan.groups.len());
        }
        self.ctx.telemetry.planned(now, span.as_ref());
        let committed = self.commit(plan, now, span.as_ref()).await;
        self.ctx.telemetry.end(span);
        // Counted from now: a large plan takes time to commit, and its result must reach the view before the next pass.
        self.pass_timer.schedule_in(match committed {
            CommitResult::Complete => wake(DEBOUNCE),
            CommitResult::Partial => MAX_DEBOUNCE,
        });
    }

    /// Sends a span for every replica that started to run, from its placement on.
    fn trace_starts(&self, changes: &[Arc<Change>]) {
        if !self.ctx.telemetry.is_on() {
            return;
        }
        let state = self.store.read_local().state;
        for event in changes.iter().flat_map(|change| &change.events) {
            let Event::Observed { key, attempt: Attempt(0), state: ReplicaState::Running, at, .. } = event else {
                continue;
            };
            let Some(assignment) = state.replica(key).map(|replica| &replica.assignment) else { continue };
            self.ctx.telemetry.replica_started(assignment.placed_at, *at, |span| {
                span.set("longshore.replica", key.replica_id());
                span.set("longshore.node", assignment.node.as_str());
                span.set("longshore.generation", key.generation.0);
            });
        }
    }

    async fn rebalance(&mut self) {
        let now = clock::now();
        self.ctx.counters.rebalance_cycles.add(1);
        let Cycle { plan, skips } =
            tokio::task::block_in_place(|| self.rebalancer.cycle(&mut self.view, self.view_index, now));
        self.ctx.note_pressures(&self.rebalancer);
        for skip in skips.iter().filter(|skip| skip.count == 1) {
            tracing::info!(reason = skip.reason.code(), node = %skip.score.src, "rebalance skipped");
        }
        if !plan.is_empty() {
            self.commit(plan, now, None).await;
        }
    }

    /// Proposes a plan. What was dropped from it is planned again after a second rather than at once: the cause must
    /// have time to reach the view.
    async fn commit(&self, plan: Plan, now: Time, pass: Option<&Span>) -> CommitResult {
        let placements = plan.placements();
        let mut span = pass.and_then(|pass| self.ctx.telemetry.begin("commit", Some(pass.context())));
        let proposed = self.store.propose(Proposal::by_system(Command::Commit(Box::new(plan)), now)).await;
        if let (Some(span), Err(error)) = (&mut span, &proposed) {
            span.fail(error.code());
        }
        self.ctx.telemetry.end(span);
        match proposed {
            Ok(applied) => {
                self.ctx.counters.plans.add(1);
                self.ctx.counters.placements.add(placements - applied.dropped.len().min(placements));
                self.ctx.counters.dropped.add(applied.dropped.len());
                let whole = applied.dropped.is_empty() && applied.outcome == Outcome::Changed;
                if whole { CommitResult::Complete } else { CommitResult::Partial }
            }
            Err(error) => {
                tracing::warn!(code = error.code(), "plan not committed");
                CommitResult::Partial
            }
        }
    }

    fn record_heartbeat(&mut self, node: &NodeName, heartbeat: Heartbeat) {
        let now = clock::now();
        self.detector.record(node, heartbeat.cleanup, now);
        self.ctx.node_conditions.record(node, heartbeat.conditions);
        if let Some(pressure) = heartbeat.pressure {
            self.ctx.node_loads.record(node, pressure, heartbeat.disk, now);
            self.rebalancer.sample(node, now, pressure);
        }
        for Usage { key, cpu_millis, memory_bytes } in heartbeat.usage {
            self.rebalancer.usage(key, MeasuredUsage { cpu_millis, memory_bytes });
        }
    }

    async fn update_health(&mut self) {
        let now = clock::now();
        let state = self.store.read_local().state;
        let changes = self.detector.evaluate(&state.nodes().collect::<Vec<_>>(), state.config(), now);
        self.ctx.heartbeats.set_interval(self.detector.interval());
        let proposals = changes.into_iter().map(|(node, health)| {
            tracing::warn!(%node, ?health, "node health changed");
            Proposal::by_system(Command::SetHealth { node, health, at: now }, now)
        });
        for answer in self.store.propose_all(proposals.collect()).await {
            if let Err(error) = answer {
                tracing::warn!(code = error.code(), "node health not committed");
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommitResult {
    Complete,
    Partial,
}

/// A view that reflects a whole state.
pub(crate) fn view_of(state: &longshore_store::State) -> View {
    let mut view = View::default();
    state.events().iter().for_each(|event| view.apply(event));
    view
}
