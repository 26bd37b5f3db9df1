//! One container from its creation to its end.
//!
//! Owns: the phases and the reports of each change of phase.
//! Invariant: a timer of another attempt, or of a container that was told to stop, has no effect.

use std::{sync::Arc, time::Duration};

use longshore_model::{
    Attempt, ReplicaKey, ReplicaState, RuntimeCode, ServiceSpec, Time,
    replica::{Detail, Details},
};

use super::{ContainerState, Outbox, StatusReport, Timer, VirtualNode};
use crate::scenario::{Check, Image};

/// Time a failing check is given before it counts.
const UNHEALTHY_AFTER: Duration = Duration::from_secs(5);

/// One container.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) image: Arc<str>,
    attempt: Attempt,
    phase: Phase,
    /// Its check was made to fail, whatever its image says.
    forced_unhealthy: bool,
    /// The last report, to be sent again when it may have been lost.
    last_report: Option<(ReplicaState, Option<RuntimeCode>, Details)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    AwaitsImage,
    Starting,
    Running,
    Exited,
    Stopping(AfterStop),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterStop {
    Remove,
    Restart,
}

impl Container {
    pub(super) fn new(attempt: Attempt, spec: &ServiceSpec) -> Self {
        let image = spec.container.image.as_str().into();
        Self { image, attempt, phase: Phase::AwaitsImage, forced_unhealthy: false, last_report: None }
    }

    /// Stands for a container that does not exist, so that it can be reported stopped.
    pub(super) fn gone(attempt: Attempt) -> Self {
        Self { image: "".into(), attempt, phase: Phase::Exited, forced_unhealthy: false, last_report: None }
    }

    pub(super) fn has_process(&self) -> bool {
        match self.phase {
            Phase::Starting | Phase::Running | Phase::Stopping(_) => true,
            Phase::AwaitsImage | Phase::Exited => false,
        }
    }

    /// Whether it waits for that image.
    pub(super) fn awaits(&self, image: &str) -> bool {
        self.phase == Phase::AwaitsImage && *self.image == *image
    }

    pub(super) fn attempt(&self) -> Attempt {
        self.attempt
    }

    pub(super) fn is_being_removed(&self) -> bool {
        self.phase == Phase::Stopping(AfterStop::Remove)
    }

    pub(super) fn state(&self) -> ContainerState {
        match self.phase {
            Phase::AwaitsImage | Phase::Starting => ContainerState::Starting,
            Phase::Running => ContainerState::Running,
            Phase::Exited => ContainerState::Exited,
            Phase::Stopping(_) => ContainerState::Stopping,
        }
    }

    pub(super) fn stop_to_restart(&mut self, attempt: Attempt) {
        self.attempt = attempt;
        self.last_report = None;
        self.phase = Phase::Stopping(AfterStop::Restart);
    }

    pub(super) fn stop_to_remove(&mut self) {
        self.phase = Phase::Stopping(AfterStop::Remove);
    }

    /// A check that was made to fail goes on failing after a restart.
    pub(super) fn inherit(&mut self, previous: &Self) {
        self.forced_unhealthy = previous.forced_unhealthy;
    }

    /// Whether it has a process that was not told to stop.
    fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Running)
    }
}

impl VirtualNode {
    /// Starts the process of a container whose image is here.
    pub(super) fn begin(&mut self, key: &ReplicaKey, now: Time, out: &mut Outbox) {
        let Some(container) = self.containers.get_mut(key) else { return };
        if container.phase != Phase::AwaitsImage {
            return;
        }
        container.phase = Phase::Starting;
        let (attempt, image, forced) = (container.attempt, Arc::clone(&container.image), container.forced_unhealthy);
        let Image { start, health, .. } = self.behaviour(&image);
        let health = if forced { Check::Fails } else { health };
        match health {
            Check::Passes => out.timers.push((now.after(start), Timer::Started(key.clone(), attempt))),
            Check::Fails => {
                let at = now.after(start.max(UNHEALTHY_AFTER));
                out.timers.push((at, Timer::Unhealthy(key.clone(), attempt)));
                self.schedule_exit(key, attempt, &image, now.after(start), out);
            }
        }
        self.report(key, ReplicaState::Starting, None, Details::new(), out);
    }

    pub(super) fn started(&mut self, key: &ReplicaKey, attempt: Attempt, now: Time, out: &mut Outbox) {
        let Some((image, forced_unhealthy)) = self.set_running(key, attempt) else { return };
        self.schedule_exit(key, attempt, &image, now, out);
        self.report_check(key, if forced_unhealthy { Check::Fails } else { Check::Passes }, out);
    }

    /// Moves a starting container to running. Returns its image and whether its check was made to fail.
    fn set_running(&mut self, key: &ReplicaKey, attempt: Attempt) -> Option<(Arc<str>, bool)> {
        let is_starting = |known: &&mut Container| known.attempt == attempt && known.phase == Phase::Starting;
        let container = self.containers.get_mut(key).filter(is_starting)?;
        container.phase = Phase::Running;
        Some((Arc::clone(&container.image), container.forced_unhealthy))
    }

    fn schedule_exit(&self, key: &ReplicaKey, attempt: Attempt, image: &str, started: Time, out: &mut Outbox) {
        if let Some((_, after)) = self.behaviour(image).exit {
            out.timers.push((started.after(after), Timer::Exits(key.clone(), attempt)));
        }
    }

    /// The time given to a failing check is over. The container is healthy if it was healed meanwhile.
    pub(super) fn check_ended(&mut self, key: &ReplicaKey, attempt: Attempt, out: &mut Outbox) {
        let Some((image, forced_unhealthy)) = self.set_running(key, attempt) else { return };
        let check = if forced_unhealthy { Check::Fails } else { self.behaviour(&image).health };
        self.report_check(key, check, out);
    }

    fn report_check(&mut self, key: &ReplicaKey, check: Check, out: &mut Outbox) {
        let (state, code) = match check {
            Check::Passes => (ReplicaState::Running, None),
            Check::Fails => (ReplicaState::Degraded, Some(RuntimeCode::HealthcheckFailed)),
        };
        self.report(key, state, code, Details::new(), out);
    }

    /// The process exits with the code of its image.
    pub(super) fn exit_as_configured(&mut self, key: &ReplicaKey, attempt: Attempt, out: &mut Outbox) {
        let Some(container) = self.containers.get(key).filter(|known| known.attempt == attempt) else { return };
        if let Some((code, _)) = self.behaviour(&container.image).exit {
            self.exit(key, code, out);
        }
    }

    /// The process exits. Returns `false` if there is none.
    pub(super) fn exit(&mut self, key: &ReplicaKey, code: u8, out: &mut Outbox) -> bool {
        let Some(container) = self.containers.get_mut(key).filter(|known| known.is_active()) else { return false };
        container.phase = Phase::Exited;
        let details = Details::from([("exit_code".to_owned(), Detail::Number(u64::from(code)))]);
        if code == 0 {
            self.report(key, ReplicaState::Completed, None, details, out);
        } else {
            self.report(key, ReplicaState::Failed, Some(RuntimeCode::Exited), details, out);
        }
        true
    }

    /// Makes the check of a container fail. A starting one is reported when the time given to its check is over. Returns
    /// `false` if there is no process.
    pub(super) fn force_unhealthy(&mut self, key: &ReplicaKey, out: &mut Outbox) -> bool {
        let Some(container) = self.containers.get_mut(key).filter(|known| known.is_active()) else { return false };
        container.forced_unhealthy = true;
        if container.phase == Phase::Running {
            self.report_check(key, Check::Fails, out);
        }
        true
    }

    /// Makes the check of a container pass again. Returns `false` if there is no container.
    pub(super) fn recover(&mut self, key: &ReplicaKey, out: &mut Outbox) -> bool {
        let Some(container) = self.containers.get_mut(key) else { return false };
        container.forced_unhealthy = false;
        if container.phase == Phase::Running {
            self.report_check(key, Check::Passes, out);
        }
        true
    }

    pub(super) fn stop_ended(&mut self, key: &ReplicaKey, now: Time, out: &mut Outbox) {
        let Some(container) = self.containers.get_mut(key) else { return };
        match container.phase {
            Phase::Stopping(AfterStop::Remove) => {
                self.report(key, ReplicaState::Stopped, None, Details::new(), out);
                self.containers.remove(key);
            }
            Phase::Stopping(AfterStop::Restart) => {
                container.phase = Phase::AwaitsImage;
                self.begin(key, now, out);
            }
            Phase::AwaitsImage | Phase::Starting | Phase::Running | Phase::Exited => {}
        }
    }

    pub(super) fn report(
        &mut self,
        key: &ReplicaKey,
        state: ReplicaState,
        code: Option<RuntimeCode>,
        details: Details,
        out: &mut Outbox,
    ) {
        if let Some(container) = self.containers.get_mut(key) {
            container.last_report = Some((state, code, details));
            self.resend_last_report(key, out);
        }
    }

    /// Sends the last report of a container, again if it was sent before.
    pub(super) fn resend_last_report(&self, key: &ReplicaKey, out: &mut Outbox) {
        let Some(container) = self.containers.get(key) else { return };
        if let Some((state, code, details)) = container.last_report.clone() {
            let (key, attempt) = (key.clone(), container.attempt);
            out.reports.push(StatusReport { key, attempt, placed_at: None, state, code, details });
        }
    }
}
