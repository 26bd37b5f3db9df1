//! A virtual node with a virtual agent on it: it pulls, starts, fails and stops as its images are configured to.
//!
//! ```text
//! waits for image -> starting -> running -> exited
//!        \____________\__________\__________\___> stopping -> gone
//! ```
//!
//! Owns: what runs on one node and how long everything takes.
//! Must not touch: placement and the state machine. It takes orders and answers with reports.
//! Invariant: a timer that was set before a node was switched off has no effect after it has booted.

mod adoption;
mod container;
mod pulling;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use longshore_model::{
    Attempt, Health, NodeName, ReplicaKey, ReplicaState, RuntimeCode, ServiceSpec, StateIndex, Time, replica::Details,
};

pub(crate) use self::adoption::DesiredContainer;
use self::{container::Container, pulling::PullState};
use crate::scenario::{Image, InjectedFault};

/// Time from the order to stop to the container being gone.
const STOP_TIME: Duration = Duration::from_secs(1);

/// What an agent reports of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatusReport {
    pub(crate) key: ReplicaKey,
    pub(crate) attempt: Attempt,
    /// When the replica was placed, as the feed said that named it; `None` for a container that is here: it is of the
    /// replica that is placed here now.
    pub(crate) placed_at: Option<Time>,
    pub(crate) state: ReplicaState,
    pub(crate) code: Option<RuntimeCode>,
    pub(crate) details: Details,
}

/// Something a node is waiting for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// An attempt to pull an image ends.
    PullEnds(Arc<str>),
    /// The back-off of a failed pull is over.
    PullAgain(Arc<str>),
    /// The process of a container has started.
    Started(ReplicaKey, Attempt),
    /// Its health check has failed for long enough to count.
    Unhealthy(ReplicaKey, Attempt),
    /// Its process exits.
    Exits(ReplicaKey, Attempt),
    /// It is gone.
    StopEnds(ReplicaKey),
}

/// What a node answers with: reports to send, and timers to set.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) reports: Vec<StatusReport>,
    pub(crate) timers: Vec<(Time, Timer)>,
}

/// The real state of a container, whatever was reported of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerState {
    /// It waits for its image or its process.
    Starting,
    Running,
    Exited,
    /// It was told to stop, for good or to be restarted.
    Stopping,
}

/// Whether a heartbeat got through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeartbeatDelivery {
    Received,
    Lost,
}

/// Whether messages get through to a node and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Up,
    Cut,
    /// Messages get through again, and the node first stops what is no longer assigned to it.
    Reconnecting,
}

/// One virtual node.
#[derive(Debug)]
pub(crate) struct VirtualNode {
    name: NodeName,
    on: bool,
    link: Link,
    boots: u32,
    /// What it reports of itself while it is on.
    reported_health: Health,
    /// Heartbeats missed in a row.
    missed_heartbeats: u32,
    /// How often it has connected.
    connection: u32,
    /// The state index of the newest feed it has received.
    cursor: StateIndex,
    images: BTreeSet<Arc<str>>,
    pulls: BTreeMap<Arc<str>, PullState>,
    containers: BTreeMap<ReplicaKey, Container>,
    behaviours: Arc<BTreeMap<String, Image>>,
}

impl VirtualNode {
    pub(crate) fn new(name: NodeName, behaviours: Arc<BTreeMap<String, Image>>) -> Self {
        Self {
            name,
            on: true,
            link: Link::Up,
            boots: 0,
            reported_health: Health::Ready,
            missed_heartbeats: 0,
            connection: 0,
            cursor: StateIndex::default(),
            images: BTreeSet::new(),
            pulls: BTreeMap::new(),
            containers: BTreeMap::new(),
            behaviours,
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// Whether messages get through to it and back.
    pub(crate) fn is_reachable(&self) -> bool {
        self.on && self.link != Link::Cut
    }

    pub(crate) fn link(&self) -> Link {
        self.link
    }

    pub(crate) fn set_link(&mut self, link: Link) {
        self.link = link;
    }

    /// How often it was switched off. A timer set before the last time must not fire.
    pub(crate) fn boots(&self) -> u32 {
        self.boots
    }

    pub(crate) fn reported_health(&self) -> Health {
        self.reported_health
    }

    pub(crate) fn degrade(&mut self) {
        self.reported_health = Health::Degraded;
    }

    /// Switches it off at once. Images stay on its disk, containers do not.
    pub(crate) fn power_off(&mut self) {
        self.on = false;
        self.boots += 1;
        self.pulls.clear();
        self.containers.clear();
    }

    /// The number of the connection it sends and receives on.
    pub(crate) fn connection(&self) -> u32 {
        self.connection
    }

    /// Opens a new connection, on which it receives everything as of `cursor`.
    pub(crate) fn connect(&mut self, cursor: StateIndex) {
        self.connection += 1;
        self.cursor = cursor;
    }

    /// Moves on to the feed as of `cursor`. Returns `false` if the node has received a newer one.
    pub(crate) fn advance_cursor(&mut self, cursor: StateIndex) -> bool {
        let is_newest = cursor >= self.cursor;
        self.cursor = self.cursor.max(cursor);
        is_newest
    }

    pub(crate) fn boot(&mut self) {
        self.on = true;
        self.reported_health = Health::Ready;
    }

    /// Sends a heartbeat. Returns how many were missed in a row, this one included.
    pub(crate) fn heartbeat(&mut self, delivery: HeartbeatDelivery) -> u32 {
        let received = self.is_reachable() && delivery == HeartbeatDelivery::Received;
        self.missed_heartbeats = if received { 0 } else { self.missed_heartbeats.saturating_add(1) };
        self.missed_heartbeats
    }

    /// A new leader starts counting from zero.
    pub(crate) fn reset_missed_heartbeats(&mut self) {
        self.missed_heartbeats = 0;
    }

    /// The containers that are really on the node, for the invariants.
    pub(crate) fn containers(&self) -> impl Iterator<Item = (&ReplicaKey, Attempt, ContainerState)> {
        self.containers.iter().map(|(key, container)| (key, container.attempt(), container.state()))
    }

    /// Starts a generation, after its image was pulled.
    pub(crate) fn run(&mut self, key: &ReplicaKey, attempt: Attempt, spec: &ServiceSpec, now: Time, out: &mut Outbox) {
        let mut container = Container::new(attempt, spec);
        if let Some(previous) = self.containers.get(key) {
            container.inherit(previous);
        }
        let image = Arc::clone(&container.image);
        self.containers.insert(key.clone(), container);
        if self.images.contains(&image) {
            self.begin(key, now, out);
        } else {
            self.await_image(key, &image, now, out);
        }
    }

    /// Starts a generation again. A process that still runs is stopped first.
    pub(crate) fn restart(
        &mut self,
        key: ReplicaKey,
        attempt: Attempt,
        spec: &ServiceSpec,
        now: Time,
        out: &mut Outbox,
    ) {
        match self.containers.get_mut(&key).filter(|container| container.has_process()) {
            Some(running) => {
                running.stop_to_restart(attempt);
                out.timers.push((now.after(STOP_TIME), Timer::StopEnds(key)));
            }
            None => self.run(&key, attempt, spec, now, out),
        }
    }

    /// Stops a generation for good. One without a container is reported stopped too.
    pub(crate) fn stop(&mut self, key: &ReplicaKey, attempt: Attempt, now: Time, out: &mut Outbox) {
        let container = self.containers.entry(key.clone()).or_insert_with(|| Container::gone(attempt));
        container.stop_to_remove();
        out.timers.push((now.after(STOP_TIME), Timer::StopEnds(key.clone())));
    }

    /// Injects a fault into a container. Returns `false` if there is none it could affect.
    pub(crate) fn inject_fault(&mut self, key: &ReplicaKey, fault: InjectedFault, out: &mut Outbox) -> bool {
        match fault {
            InjectedFault::Crash => self.exit(key, 1, out),
            InjectedFault::Complete => self.exit(key, 0, out),
            InjectedFault::Unhealthy => self.force_unhealthy(key, out),
            InjectedFault::Heal => self.recover(key, out),
        }
    }

    pub(crate) fn fire(&mut self, timer: Timer, now: Time, out: &mut Outbox) {
        match timer {
            Timer::PullEnds(image) => self.pull_ended(&image, now, out),
            Timer::PullAgain(image) => self.pull(&image, now, out),
            Timer::Started(key, attempt) => self.started(&key, attempt, now, out),
            Timer::Unhealthy(key, attempt) => self.check_ended(&key, attempt, out),
            Timer::Exits(key, attempt) => self.exit_as_configured(&key, attempt, out),
            Timer::StopEnds(key) => self.stop_ended(&key, now, out),
        }
    }

    /// How an image behaves on this node.
    fn behaviour(&self, image: &str) -> Image {
        self.behaviours.get(image).filter(|image| image.applies_on(&self.name)).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
