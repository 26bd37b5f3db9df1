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
    Command, Heartbeat, NodeName, Plan, StateIndex, Time,
    rebalance::{Pressure, Share},
    work::Usage,
};
use longshore_scheduler::{
    View,
    rebalance::{self, Cycle, Measured, Rebalancer, Subject},
};
use longshore_store::replicated::{Filter, Leadership, Outcome, Part, Proposal, Replicated, Watched, Watcher};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{clock, hub::Hub, monitor::Monitor, voters};

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
        let plan = tokio::task::block_in_place(|| longshore_scheduler::plan(&mut self.view, self.heard, now));
        self.hub.figures.passes.add(1);
        self.hub.figures.deciding_micros.add_micros(started.elapsed());
        let wake = plan.wake_at.map_or(SAFETY_PASS, |at| at.since(now).max(Duration::from_millis(1)));
        self.due.within(wake);
        if !plan.is_empty() && self.commit(plan, now).await == Committed::InPart {
            self.due.within(LONGEST_WAIT);
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
            self.commit(plan, now).await;
        }
    }

    /// Proposes a plan. What of it is not carried out stays to be decided, a second later rather than at once: whatever
    /// stood in the way must have time to reach the view.
    async fn commit(&self, plan: Plan, now: Time) -> Committed {
        let placements = plan.placements();
        match self.store.propose(Proposal::by_system(Command::Commit(Box::new(plan)), now)).await {
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
