//! A virtual machine with a virtual agent on it: it pulls, starts, fails and stops as its images say.
//!
//! ```text
//! waits for image -> starting -> up -> ended
//!        \____________\__________\______\___> stopping -> gone
//! ```
//!
//! Owns: what runs on one machine and how long everything takes.
//! Must not touch: placement and the state machine. It hears orders and answers with reports.
//! Invariant: nothing that was set in motion before a machine went off is heard of after it has booted.

mod adoption;
mod container;
mod pulling;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use longshore_model::{
    Attempt, Generation, GroupKey, Health, NodeName, ReplicaState, RuntimeCode, ServiceSpec, SlotKey, StateIndex, Time,
    replica::Details,
};

pub(crate) use self::adoption::Due;
use self::{container::Container, pulling::PullState};
use crate::scenario::{Image, Mishap};

/// Time from the order to stop to the container being gone.
const STOPPING: Duration = Duration::from_secs(1);

/// One generation of one slot, as a machine knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ContainerId {
    pub(crate) group: GroupKey,
    pub(crate) slot: SlotKey,
    pub(crate) generation: Generation,
}

/// What an agent has to say of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) id: ContainerId,
    pub(crate) attempt: Attempt,
    pub(crate) state: ReplicaState,
    pub(crate) code: Option<RuntimeCode>,
    pub(crate) details: Details,
}

/// Something a machine is waiting for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// A try to pull an image is over.
    PullEnds(Arc<str>),
    /// The time has come to try again.
    PullAgain(Arc<str>),
    /// The process of a container has started.
    Started(ContainerId, Attempt),
    /// Its check has failed for long enough.
    Unhealthy(ContainerId, Attempt),
    /// Its process ends.
    Exits(ContainerId, Attempt),
    /// It is gone.
    StopEnds(ContainerId),
}

/// What a machine answers with.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) reports: Vec<Report>,
    pub(crate) alarms: Vec<(Time, Alarm)>,
}

/// Whether there was a process for something to happen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Felt {
    Yes,
    No,
}

/// How far a container really is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Its image or its process is on the way.
    Coming,
    /// Its process runs.
    Up,
    /// Its process has ended.
    Ended,
    /// It was told to stop.
    Leaving,
}

/// Whether a machine is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    On,
    Off,
}

/// What becomes of a heartbeat on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    Heard,
    Lost,
}

/// Whether messages get through to a machine and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Up,
    Cut,
    /// Messages get through again, and it first lets go of what is no longer its own.
    Returning,
}

/// One virtual machine.
#[derive(Debug)]
pub(crate) struct Machine {
    name: NodeName,
    power: Power,
    link: Link,
    boots: u32,
    /// What it says of itself while it is on.
    fitness: Health,
    /// Heartbeats missed in a row.
    missed: u32,
    /// How often it was connected.
    connection: u32,
    /// How far it has read its feed.
    cursor: StateIndex,
    images: BTreeSet<Arc<str>>,
    pulls: BTreeMap<Arc<str>, PullState>,
    containers: BTreeMap<ContainerId, Container>,
    behaviours: Arc<BTreeMap<String, Image>>,
}

impl Machine {
    pub(crate) fn new(name: NodeName, behaviours: Arc<BTreeMap<String, Image>>) -> Self {
        Self {
            name,
            power: Power::On,
            link: Link::Up,
            boots: 0,
            fitness: Health::Ready,
            missed: 0,
            connection: 0,
            cursor: StateIndex::default(),
            images: BTreeSet::new(),
            pulls: BTreeMap::new(),
            containers: BTreeMap::new(),
            behaviours,
        }
    }

    pub(crate) fn power(&self) -> Power {
        self.power
    }

    /// Whether it hears orders and its reports are heard.
    pub(crate) fn is_reachable(&self) -> bool {
        self.power == Power::On && self.link != Link::Cut
    }

    pub(crate) fn link(&self) -> Link {
        self.link
    }

    pub(crate) fn set_link(&mut self, link: Link) {
        self.link = link;
    }

    /// How often it was switched; an alarm of an earlier life is not for this one.
    pub(crate) fn boots(&self) -> u32 {
        self.boots
    }

    pub(crate) fn fitness(&self) -> Health {
        self.fitness
    }

    pub(crate) fn degrade(&mut self) {
        self.fitness = Health::Degraded;
    }

    /// Off at once; images stay on its disk, containers do not.
    pub(crate) fn power_off(&mut self) {
        self.power = Power::Off;
        self.boots += 1;
        self.pulls.clear();
        self.containers.clear();
    }

    /// Which connection it talks on.
    pub(crate) fn connection(&self) -> u32 {
        self.connection
    }

    /// It connects anew, and is told everything as of that index.
    pub(crate) fn connect(&mut self, cursor: StateIndex) {
        self.connection += 1;
        self.cursor = cursor;
    }

    /// Whether a message as of that index is news; what is older than what it knows is not.
    pub(crate) fn reads(&mut self, cursor: StateIndex) -> bool {
        let news = cursor >= self.cursor;
        self.cursor = self.cursor.max(cursor);
        news
    }

    pub(crate) fn boot(&mut self) {
        self.power = Power::On;
        self.fitness = Health::Ready;
    }

    /// A heartbeat is due. How many were missed in a row, with this one.
    pub(crate) fn beat(&mut self, beat: Beat) -> u32 {
        self.missed = if self.is_reachable() && beat == Beat::Heard { 0 } else { self.missed.saturating_add(1) };
        self.missed
    }

    /// A new leader has not counted any beats.
    pub(crate) fn forget_missed(&mut self) {
        self.missed = 0;
    }

    /// What is really on the machine.
    pub(crate) fn audit(&self) -> impl Iterator<Item = (&ContainerId, Attempt, Condition)> {
        self.containers.iter().map(|(id, container)| {
            let (attempt, condition) = container.condition();
            (id, attempt, condition)
        })
    }

    /// A generation shall run.
    pub(crate) fn run(&mut self, id: &ContainerId, attempt: Attempt, spec: &ServiceSpec, now: Time, out: &mut Outbox) {
        let mut container = Container::new(attempt, spec);
        if let Some(before) = self.containers.get(id) {
            container.inherit(before);
        }
        let image = Arc::clone(&container.image);
        self.containers.insert(id.clone(), container);
        if self.images.contains(&image) {
            self.begin(id, now, out);
        } else {
            self.await_image(id, &image, now, out);
        }
    }

    /// A generation shall run once more. What still runs is stopped first.
    pub(crate) fn restart(
        &mut self,
        id: ContainerId,
        attempt: Attempt,
        spec: &ServiceSpec,
        now: Time,
        out: &mut Outbox,
    ) {
        match self.containers.get_mut(&id).filter(|container| container.has_process()) {
            Some(running) => {
                running.replace_by(attempt);
                out.alarms.push((now.after(STOPPING), Alarm::StopEnds(id)));
            }
            None => self.run(&id, attempt, spec, now, out),
        }
    }

    /// A generation shall stop.
    pub(crate) fn stop(&mut self, id: &ContainerId, attempt: Attempt, now: Time, out: &mut Outbox) {
        let container = self.containers.entry(id.clone()).or_insert_with(|| Container::gone(attempt));
        container.end();
        out.alarms.push((now.after(STOPPING), Alarm::StopEnds(id.clone())));
    }

    /// Something happens to a container.
    pub(crate) fn befall(&mut self, id: &ContainerId, mishap: Mishap, out: &mut Outbox) -> Felt {
        match mishap {
            Mishap::Crash => self.ended(id, 1, out),
            Mishap::Complete => self.ended(id, 0, out),
            Mishap::Unhealthy => self.fall_ill(id, out),
            Mishap::Heal => self.recover(id, out),
        }
    }

    /// Something the machine was waiting for has happened.
    pub(crate) fn ring(&mut self, alarm: Alarm, now: Time, out: &mut Outbox) {
        match alarm {
            Alarm::PullEnds(image) => self.pull_ended(&image, now, out),
            Alarm::PullAgain(image) => self.pull(&image, now, out),
            Alarm::Started(id, attempt) => self.started(&id, attempt, now, out),
            Alarm::Unhealthy(id, attempt) => self.unhealthy(&id, attempt, out),
            Alarm::Exits(id, attempt) => self.exited(&id, attempt, out),
            Alarm::StopEnds(id) => self.stop_ended(&id, now, out),
        }
    }

    /// How an image behaves here.
    fn behaviour(&self, image: &str) -> Image {
        self.behaviours.get(image).filter(|image| image.applies_on(&self.name)).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
