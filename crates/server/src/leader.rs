//! What only a leader decides, in one task: passes of the scheduler, heartbeats, the rebalancer.
//!
//! ```text
//! changes ─▶ view ─▶ 50 ms of quiet, 1 s at most ─▶ plan ─▶ store
//! beats ───▶ monitor ─▶ suspect, down, ready ─────────────▶ store
//!        └─▶ rebalancer ─▶ every 30 s ─▶ plan ────────────▶ store
//! ```
//!
//! Owns: when each is asked, and what a leader remembers. Must not touch: the answers; they are proposed as they are.
//! Invariant: one task does all of it, and it has ended before another is started, so nothing runs twice.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use longshore_model::{
    Attempt, Command, Event, Heartbeat, NodeName, Plan, ReplicaState, StateIndex, Time,
    rebalance::{Pressure, Share},
    work::Usage,
};
use longshore_scheduler::{
    View,
    rebalance::{self, Cycle, Measured, Rebalancer, Subject},
};
use longshore_store::replicated::{Change, Filter, Leadership, Outcome, Part, Proposal, Replicated, Watched, Watcher};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{clock, hub::Hub, monitor::Monitor, telemetry::Span, voters};

/// Quiet time before a pass, so that what happens together is decided together.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Longest a pass is put off, so that a busy cluster is decided at all.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// A pass whatever happens, so that nothing overlooked stays overlooked.
const SAFETY_PASS: Duration = Duration::from_secs(30);

/// Starts and ends the leader's task with leadership, until the member stops.
pub(crate) async fn follow_leadership(store: Replicated, hub: Arc<Hub>) {
    let mut leadership = store.leadership();
    let mut leading: Option<(u64, Leading)> = None;
    loop {
        let Leadership { term, part, .. } = leadership.borrow_and_update().clone();
        let leads = part == Part::Leading;
        if let Some((_, ended)) = leading.take_if(|(since, _)| !leads || *since != term) {
            ended.end().await;
            tracing::info!(term, "no longer leading");
        }
        if leads && leading.is_none() {
            tracing::info!(term, "leading");
            hub.figures.terms_led.add(1);
            let leader = Leader::new(store.clone(), Arc::clone(&hub));
            let tasks = [
                tokio::spawn(leader.run(hub.pulse.listen())),
                tokio::spawn(voters::keep(Arc::clone(&hub), store.clone())),
            ];
            leading = Some((term, Leading(tasks)));
        }
        if part == Part::Stopped || leadership.changed().await.is_err() {
            return;
        }
    }
}

/// The leader's tasks; dropping them ends them, so that they cannot outlive whoever started them. The second changes who
/// keeps the log and nothing else, so the two have nothing to race for.
struct Leading([JoinHandle<()>; 2]);

impl Leading {
    /// Ends the tasks and waits until they have.
    async fn end(mut self) {
        for task in &mut self.0 {
            task.abort();
            let _ = task.await;
        }
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

struct Leader {
    store: Replicated,
    hub: Arc<Hub>,
    watcher: Watcher,
    view: View,
    /// How far the view has heard.
    heard: StateIndex,
    monitor: Monitor,
    rebalancer: Rebalancer,
    due: Due,
    /// What the pass before this one had heard.
    decided_from: StateIndex,
}

/// When the next pass is due.
struct Due {
    first_event: Option<Instant>,
    at: Instant,
}

impl Due {
    fn soon(&mut self) {
        let now = Instant::now();
        let first = *self.first_event.get_or_insert(now);
        self.at = (now + DEBOUNCE).min(first + LONGEST_WAIT);
    }

    fn within(&mut self, wait: Duration) {
        self.first_event = None;
        self.at = Instant::now() + wait.min(SAFETY_PASS);
    }
}

impl Leader {
    fn new(store: Replicated, hub: Arc<Hub>) -> Self {
        let state = store.read_local().state;
        let (heard, now) = (state.index(), clock::now());
        hub.loads.forget();
        let rhythm = state.config().beat_every(state.nodes().count());
        hub.pulse.set_rhythm(rhythm);
        Self {
            watcher: store.watch(heard, Filter::All),
            view: view_of(&state),
            heard,
            monitor: Monitor::new(now, rhythm),
            rebalancer: Rebalancer::new(now),
            due: Due { first_event: None, at: Instant::now() },
            decided_from: heard,
            store,
            hub,
        }
    }

    async fn run(mut self, mut beats: mpsc::Receiver<(NodeName, Heartbeat)>) {
        let mut look = tokio::time::interval(self.store.read_local().state.config().heartbeat_interval);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut cycle = tokio::time::interval(rebalance::CYCLE);
        cycle.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            // Looked at first: under constant change the branches below would always find something else to do.
            if self.due.at <= Instant::now() {
                self.pass().await;
            }
            let pass_due = pin!(tokio::time::sleep_until(self.due.at.into()));
            tokio::select! {
                watched = self.watcher.next() => match watched {
                    Watched::Changes { through, changes } => {
                        changes.iter().flat_map(|change| &change.events).for_each(|event| self.view.apply(event));
                        self.tell_starts(&changes);
                        self.heard = through;
                        self.due.soon();
                    }
                    Watched::Resync => self.start_over(),
                    Watched::Closed => return,
                },
                beat = beats.recv() => match beat {
                    Some((node, beat)) => self.hear(&node, beat),
                    None => return,
                },
                _ = look.tick() => self.judge().await,
                _ = cycle.tick() => self.rebalance().await,
                () = pass_due => {}
            }
        }
    }

    fn start_over(&mut self) {
        let state = self.store.read_local().state;
        self.view = view_of(&state);
        self.heard = state.index();
        self.watcher.resume(self.heard);
        self.due.soon();
    }

    async fn pass(&mut self) {
        let now = clock::now();
        let started = Instant::now();
        let because = self.hub.telemetry.commit_between(self.decided_from, self.heard);
        let mut span = self.hub.telemetry.begin("plan", because);
        self.decided_from = self.heard;
        let plan = tokio::task::block_in_place(|| longshore_scheduler::plan(&mut self.view, self.heard, now));
        self.hub.figures.passes.add(1);
        self.hub.figures.deciding_micros.add_micros(started.elapsed());
        let wake_at = plan.wake_at;
        let wake = |soonest: Duration| wake_at.map_or(SAFETY_PASS, |at| at.since(clock::now()).max(soonest));
        if plan.is_empty() {
            self.due.within(wake(Duration::from_millis(1)));
            return;
        }
        if let Some(span) = &mut span {
            span.note("longshore.placements", plan.placements());
            span.note("longshore.groups", plan.groups.len());
        }
        self.hub.telemetry.planned(now, span.as_ref());
        let committed = self.commit(plan, now, span.as_ref()).await;
        self.hub.telemetry.end(span);
        // Counted from now: a large plan takes its time, and what came of it must reach the view before the next pass.
        self.due.within(match committed {
            Committed::Whole => wake(DEBOUNCE),
            Committed::InPart => LONGEST_WAIT,
        });
    }

    /// Tells a collector of replicas that run from now on, and how long they took since they were placed.
    fn tell_starts(&self, changes: &[Arc<Change>]) {
        if !self.hub.telemetry.is_on() {
            return;
        }
        let state = self.store.read_local().state;
        for event in changes.iter().flat_map(|change| &change.events) {
            let Event::Observed {
                group, slot, generation, attempt: Attempt(0), state: ReplicaState::Running, at, ..
            } = event
            else {
                continue;
            };
            let held = state.group(group).and_then(|known| known.slots.get(slot));
            let replica = held.and_then(|held| held.replicas.iter().find(|seen| seen.generation == *generation));
            let Some(assignment) = replica.map(|replica| &replica.assignment) else { continue };
            self.hub.telemetry.replica_started(assignment.placed_at, *at, |span| {
                span.note("longshore.replica", slot.printed(group));
                span.note("longshore.node", assignment.node.as_str());
                span.note("longshore.generation", generation.0);
            });
        }
    }

    async fn rebalance(&mut self) {
        let now = clock::now();
        self.hub.figures.rebalance_cycles.add(1);
        let Cycle { plan, skips } =
            tokio::task::block_in_place(|| self.rebalancer.cycle(&mut self.view, self.heard, now));
        self.hub.note_pressures(&self.rebalancer);
        for skip in skips.iter().filter(|skip| skip.count == 1) {
            tracing::info!(reason = skip.reason.code(), node = %skip.weighed.src, "rebalance skipped");
        }
        if !plan.is_empty() {
            self.commit(plan, now, None).await;
        }
    }

    /// Proposes a plan. What of it is not carried out stays to be decided, a second later rather than at once: whatever
    /// stood in the way must have time to reach the view.
    async fn commit(&self, plan: Plan, now: Time, pass: Option<&Span>) -> Committed {
        let placements = plan.placements();
        let mut span = pass.and_then(|pass| self.hub.telemetry.begin("commit", Some(pass.context())));
        let proposed = self.store.propose(Proposal::by_system(Command::Commit(Box::new(plan)), now)).await;
        if let (Some(span), Err(error)) = (&mut span, &proposed) {
            span.fail(error.code());
        }
        self.hub.telemetry.end(span);
        match proposed {
            Ok(applied) => {
                self.hub.figures.plans.add(1);
                self.hub.figures.placements.add(placements - applied.dropped.len().min(placements));
                self.hub.figures.dropped.add(applied.dropped.len());
                let whole = applied.dropped.is_empty() && applied.outcome == Outcome::Changed;
                if whole { Committed::Whole } else { Committed::InPart }
            }
            Err(error) => {
                tracing::warn!(code = error.code(), "plan not committed");
                Committed::InPart
            }
        }
    }

    fn hear(&mut self, node: &NodeName, beat: Heartbeat) {
        let now = clock::now();
        self.monitor.hear(node, beat.standing, now);
        if let Some(pressure) = beat.pressure {
            self.hub.loads.note(node, pressure, now);
            let share = |millionths: u32| Share(i64::from(millionths));
            let pressure = Pressure { cpu: share(pressure.cpu_millionths), memory: share(pressure.memory_millionths) };
            self.rebalancer.sample(node, now, pressure);
        }
        for Usage { key, cpu_millis, memory_bytes } in beat.usage {
            let subject = Subject { group: key.group, slot: key.slot, generation: key.generation };
            self.rebalancer.usage(subject, Measured { cpu_millis, memory_bytes });
        }
    }

    async fn judge(&mut self) {
        let now = clock::now();
        let state = self.store.read_local().state;
        let changes = self.monitor.judge(&state.nodes().collect::<Vec<_>>(), state.config(), now);
        self.hub.pulse.set_rhythm(self.monitor.rhythm());
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
enum Committed {
    Whole,
    InPart,
}

/// A view that knows all of a state.
pub(crate) fn view_of(state: &longshore_store::State) -> View {
    let mut view = View::default();
    state.events().iter().for_each(|event| view.apply(event));
    view
}
