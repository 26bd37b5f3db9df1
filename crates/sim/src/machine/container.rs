//! One container from its making to its end.
//!
//! Owns: the phases and the reports that go with each change of phase.
//! Invariant: an alarm meant for another attempt, or for a container told to stop, does nothing.

use std::{sync::Arc, time::Duration};

use longshore_model::{
    Attempt, ReplicaState, RuntimeCode, ServiceSpec, Time,
    replica::{Detail, Details},
};

use super::{Alarm, Condition, ContainerId, Felt, Machine, Outbox, Report};
use crate::scenario::{Check, Image};

/// Time a failing check is given before it counts.
const UNHEALTHY_AFTER: Duration = Duration::from_secs(5);

/// One container.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) image: Arc<str>,
    attempt: Attempt,
    phase: Phase,
    /// Whether its check was made to fail, whatever its image says.
    illness: Illness,
    /// What was last said of it, to be said again to whoever missed it.
    last: Option<(ReplicaState, Option<RuntimeCode>, Details)>,
}

/// Whether a container's check was made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Illness {
    None,
    Ill,
}

/// How far a container is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    AwaitsImage,
    Starting,
    Up,
    Ended,
    Stopping(Then),
}

/// What follows the stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Gone,
    Again,
}

impl Container {
    pub(super) fn new(attempt: Attempt, spec: &ServiceSpec) -> Self {
        let image = spec.container.image.as_str().into();
        Self { image, attempt, phase: Phase::AwaitsImage, illness: Illness::None, last: None }
    }

    /// What is left of a container the machine does not know.
    pub(super) fn gone(attempt: Attempt) -> Self {
        Self { image: "".into(), attempt, phase: Phase::Ended, illness: Illness::None, last: None }
    }

    pub(super) fn has_process(&self) -> bool {
        match self.phase {
            Phase::Starting | Phase::Up | Phase::Stopping(_) => true,
            Phase::AwaitsImage | Phase::Ended => false,
        }
    }

    /// Whether it waits for that image.
    pub(super) fn awaits(&self, image: &str) -> bool {
        self.phase == Phase::AwaitsImage && *self.image == *image
    }

    pub(super) fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// Whether it was told to stop for good.
    pub(super) fn is_leaving(&self) -> bool {
        self.phase == Phase::Stopping(Then::Gone)
    }

    /// How far it is, for whoever audits the machine.
    pub(super) fn condition(&self) -> (Attempt, Condition) {
        let condition = match self.phase {
            Phase::AwaitsImage | Phase::Starting => Condition::Coming,
            Phase::Up => Condition::Up,
            Phase::Ended => Condition::Ended,
            Phase::Stopping(_) => Condition::Leaving,
        };
        (self.attempt, condition)
    }

    pub(super) fn replace_by(&mut self, attempt: Attempt) {
        self.attempt = attempt;
        self.last = None;
        self.phase = Phase::Stopping(Then::Again);
    }

    pub(super) fn end(&mut self) {
        self.phase = Phase::Stopping(Then::Gone);
    }

    /// What was made to fail goes on failing when it is started once more.
    pub(super) fn inherit(&mut self, before: &Self) {
        self.illness = before.illness;
    }

    fn runs(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Up)
    }

    fn is(&self, attempt: Attempt, phases: &[Phase]) -> bool {
        self.attempt == attempt && phases.contains(&self.phase)
    }
}

impl Machine {
    /// The image is here: the container is made and its process starts.
    pub(super) fn begin(&mut self, id: &ContainerId, now: Time, out: &mut Outbox) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if container.phase != Phase::AwaitsImage {
            return;
        }
        container.phase = Phase::Starting;
        let (attempt, image, illness) = (container.attempt, Arc::clone(&container.image), container.illness);
        let Image { start, health, .. } = self.behaviour(&image);
        let health = if illness == Illness::Ill { Check::Fails } else { health };
        match health {
            Check::Passes => out.alarms.push((now.after(start), Alarm::Started(id.clone(), attempt))),
            Check::Fails => {
                let at = now.after(start.max(UNHEALTHY_AFTER));
                out.alarms.push((at, Alarm::Unhealthy(id.clone(), attempt)));
                self.exit_later(id, attempt, &image, now.after(start), out);
            }
        }
        self.report(id, ReplicaState::Starting, None, Details::new(), out);
    }

    pub(super) fn started(&mut self, id: &ContainerId, attempt: Attempt, now: Time, out: &mut Outbox) {
        let Some(container) = self.containers.get_mut(id).filter(|known| known.is(attempt, &[Phase::Starting])) else {
            return;
        };
        container.phase = Phase::Up;
        let (image, illness) = (Arc::clone(&container.image), container.illness);
        self.exit_later(id, attempt, &image, now, out);
        match illness {
            Illness::None => self.report(id, ReplicaState::Running, None, Details::new(), out),
            Illness::Ill => self.report_ill(id, out),
        }
    }

    fn exit_later(&self, id: &ContainerId, attempt: Attempt, image: &str, started: Time, out: &mut Outbox) {
        if let Some((_, after)) = self.behaviour(image).exit {
            out.alarms.push((started.after(after), Alarm::Exits(id.clone(), attempt)));
        }
    }

    /// The check has had its time. One that was mended meanwhile passes it.
    pub(super) fn unhealthy(&mut self, id: &ContainerId, attempt: Attempt, out: &mut Outbox) {
        let Some(container) = self.containers.get_mut(id).filter(|known| known.is(attempt, &[Phase::Starting])) else {
            return;
        };
        container.phase = Phase::Up;
        let (image, illness) = (Arc::clone(&container.image), container.illness);
        match (self.behaviour(&image).health, illness) {
            (Check::Passes, Illness::None) => self.report(id, ReplicaState::Running, None, Details::new(), out),
            (Check::Fails, _) | (_, Illness::Ill) => self.report_ill(id, out),
        }
    }

    fn report_ill(&mut self, id: &ContainerId, out: &mut Outbox) {
        self.report(id, ReplicaState::Degraded, Some(RuntimeCode::HealthcheckFailed), Details::new(), out);
    }

    /// The time has come at which the image's process ends.
    pub(super) fn exited(&mut self, id: &ContainerId, attempt: Attempt, out: &mut Outbox) {
        let Some(container) = self.containers.get(id).filter(|known| known.attempt == attempt) else { return };
        if let Some((code, _)) = self.behaviour(&container.image).exit {
            self.ended(id, code, out);
        }
    }

    /// The process of a container ends, if it has one.
    pub(super) fn ended(&mut self, id: &ContainerId, code: u8, out: &mut Outbox) -> Felt {
        let Some(container) = self.containers.get_mut(id).filter(|known| known.runs()) else { return Felt::No };
        container.phase = Phase::Ended;
        let details = Details::from([("exit_code".to_owned(), Detail::Number(u64::from(code)))]);
        if code == 0 {
            self.report(id, ReplicaState::Completed, None, details, out);
        } else {
            self.report(id, ReplicaState::Failed, Some(RuntimeCode::Exited), details, out);
        }
        Felt::Yes
    }

    /// The check of a container fails from now on. One that is only starting is found out when its time is up.
    pub(super) fn fall_ill(&mut self, id: &ContainerId, out: &mut Outbox) -> Felt {
        let Some(container) = self.containers.get_mut(id).filter(|known| known.runs()) else { return Felt::No };
        container.illness = Illness::Ill;
        if container.phase == Phase::Up {
            self.report_ill(id, out);
        }
        Felt::Yes
    }

    /// The check of a container passes again.
    pub(super) fn recover(&mut self, id: &ContainerId, out: &mut Outbox) -> Felt {
        let Some(container) = self.containers.get_mut(id) else { return Felt::No };
        container.illness = Illness::None;
        if container.phase == Phase::Up {
            self.report(id, ReplicaState::Running, None, Details::new(), out);
        }
        Felt::Yes
    }

    pub(super) fn stop_ended(&mut self, id: &ContainerId, now: Time, out: &mut Outbox) {
        let Some(container) = self.containers.get_mut(id) else { return };
        match container.phase {
            Phase::Stopping(Then::Gone) => {
                self.report(id, ReplicaState::Stopped, None, Details::new(), out);
                self.containers.remove(id);
            }
            Phase::Stopping(Then::Again) => {
                container.phase = Phase::AwaitsImage;
                self.begin(id, now, out);
            }
            Phase::AwaitsImage | Phase::Starting | Phase::Up | Phase::Ended => {}
        }
    }

    pub(super) fn report(
        &mut self,
        id: &ContainerId,
        state: ReplicaState,
        code: Option<RuntimeCode>,
        details: Details,
        out: &mut Outbox,
    ) {
        if let Some(container) = self.containers.get_mut(id) {
            container.last = Some((state, code, details.clone()));
            out.reports.push(Report { id: id.clone(), attempt: container.attempt, state, code, details });
        }
    }

    /// Says again what was last said of a container.
    pub(super) fn repeat(&self, id: &ContainerId, out: &mut Outbox) {
        let Some(container) = self.containers.get(id) else { return };
        if let Some((state, code, details)) = container.last.clone() {
            out.reports.push(Report { id: id.clone(), attempt: container.attempt, state, code, details });
        }
    }
}
