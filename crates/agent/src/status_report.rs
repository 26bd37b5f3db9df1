//! Builds the report about a replica from its inspection.
//!
//! Owns: which state and code an inspection means. Pure.
//! Invariant: a report is about one generation and attempt.

use longshore_model::{
    ReplicaReport, ReplicaState, RuntimeCode, ServiceKind, Work,
    policy::RestartCondition,
    replica::{Detail, Details},
};

use crate::runtime::{Exit, HealthStatus, Inspection, Phase};

/// Most characters of an engine's message or a health check's output in a report, because reports are replicated.
const MAX_TEXT: usize = 512;

/// A report about the attempt of the work.
pub(crate) fn report(work: &Work, state: ReplicaState, code: Option<RuntimeCode>, details: Details) -> ReplicaReport {
    let placed_at = Some(work.assignment.placed_at);
    ReplicaReport { key: work.key.clone(), attempt: work.attempt, placed_at, state, code, details }
}

/// The state that an inspection shows.
pub(crate) fn from_inspection(work: &Work, inspection: &Inspection) -> ReplicaReport {
    match &inspection.phase {
        Phase::Created => report(work, ReplicaState::Starting, None, Details::new()),
        Phase::StartFailed { reason } => start_failed(work, reason),
        Phase::Running(health) => running(work, inspection, health),
        Phase::Exited(exit) => exited(work, exit),
    }
}

pub(crate) fn start_failed(work: &Work, reason: &str) -> ReplicaReport {
    report(work, ReplicaState::Failed, Some(RuntimeCode::StartFailed), text("reason", reason))
}

/// It cannot be started while its engine is away or in trouble; the agent tries again.
pub(crate) fn start_delayed(work: &Work, reason: &str) -> ReplicaReport {
    report(work, ReplicaState::Pending, Some(RuntimeCode::EngineUnreachable), text("reason", reason))
}

/// It was created here and no longer exists, although the agent did not remove it.
pub(crate) fn removed_externally(work: &Work) -> ReplicaReport {
    let reason = "its container was removed by somebody else";
    report(work, ReplicaState::Failed, Some(RuntimeCode::Exited), text("reason", reason))
}

/// Its driver is unavailable: the last reported state stands, and the code marks it as unconfirmed. `None` for states
/// that an outage of the driver does not put in doubt, such as an exit or a failed health check.
pub(crate) fn engine_unreachable(work: &Work, last: Option<&ReplicaReport>) -> Option<ReplicaReport> {
    let last = last.filter(|last| last.attempt == work.attempt);
    let state = last.map_or(ReplicaState::Pending, |last| last.state);
    let reason = || text("reason", &format!("{} does not answer on this node", work.spec.driver.as_str()));
    let (state, details) = match state {
        // If it still runs, its address and ports are unchanged.
        ReplicaState::Running => (state, last.map(|last| last.details.clone()).unwrap_or_default()),
        ReplicaState::Starting => (state, reason()),
        // No image is pulled without an engine.
        ReplicaState::Pending | ReplicaState::Pulling => (ReplicaState::Pending, reason()),
        ReplicaState::Degraded
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Failed
        | ReplicaState::Completed
        | ReplicaState::Lost => return None,
    };
    Some(report(work, state, Some(RuntimeCode::EngineUnreachable), details))
}

/// One detail with a text, cut to [`MAX_TEXT`].
pub(crate) fn text(name: &str, value: &str) -> Details {
    let cut: String = value.trim().chars().take(MAX_TEXT).collect();
    Details::from([(name.to_owned(), Detail::Text(cut))])
}

fn running(work: &Work, inspection: &Inspection, health: &HealthStatus) -> ReplicaReport {
    match health {
        HealthStatus::Unchecked | HealthStatus::Healthy => {
            report(work, ReplicaState::Running, None, endpoints(inspection))
        }
        // No requests are routed to it yet; with its endpoints this would be a second report of the same state.
        HealthStatus::Starting => report(work, ReplicaState::Starting, None, Details::new()),
        // The failing streak is left out: it grows with every probe, and each would cause another report.
        HealthStatus::Unhealthy { output, .. } => {
            let mut details = endpoints(inspection);
            details.extend(text("output", output));
            report(work, ReplicaState::Degraded, Some(RuntimeCode::HealthcheckFailed), details)
        }
    }
}

/// Its address and published ports.
fn endpoints(inspection: &Inspection) -> Details {
    let mut details = Details::new();
    if let Some(address) = inspection.address {
        details.insert("address".to_owned(), Detail::Text(address.to_string()));
    }
    if !inspection.ports.is_empty() {
        details.insert("ports".to_owned(), Detail::List(inspection.ports.clone()));
    }
    details
}

fn exited(work: &Work, exit: &Exit) -> ReplicaReport {
    let mut details = Details::new();
    match exit.code.map(u64::try_from) {
        Some(Ok(code)) => drop(details.insert("exit_code".to_owned(), Detail::Number(code))),
        Some(Err(_)) | None => details.extend(text("reason", "its exit code is unknown")),
    }
    let may_complete = matches!(work.spec.kind, ServiceKind::Batch | ServiceKind::Sysbatch)
        || work.spec.restart.condition != RestartCondition::Any;
    if exit.oom_killed {
        report(work, ReplicaState::Failed, Some(RuntimeCode::OomKilled), details)
    } else if may_complete && exit.code == Some(0) {
        report(work, ReplicaState::Completed, None, details)
    } else {
        report(work, ReplicaState::Failed, Some(RuntimeCode::Exited), details)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longshore_model::{ServiceSpec, policy::RestartPolicy};

    use super::*;
    use crate::desired_work::tests::work;

    fn inspection(phase: Phase) -> Inspection {
        Inspection { phase, address: None, ports: Vec::new() }
    }

    fn exit(code: i64) -> Inspection {
        inspection(Phase::Exited(Exit { code: Some(code), oom_killed: false, ended_with_host: false }))
    }

    fn short(report: &ReplicaReport) -> (&'static str, Option<&'static str>) {
        (report.state.as_str(), report.code.map(RuntimeCode::code))
    }

    #[test]
    fn exit_code_zero_completes_a_job_and_fails_a_service_that_must_keep_running() {
        let service = work(0, 1);
        for (condition, state) in [
            (RestartCondition::Any, "failed"),
            (RestartCondition::OnFailure, "completed"),
            (RestartCondition::None, "completed"),
        ] {
            let mut service = service.clone();
            let restart = RestartPolicy { condition, ..RestartPolicy::default() };
            service.spec = Arc::new(ServiceSpec { restart, ..ServiceSpec::default() });
            assert_eq!(from_inspection(&service, &exit(0)).state.as_str(), state);
            assert_eq!(from_inspection(&service, &exit(1)).state.as_str(), "failed");
        }
        let mut job = service.clone();
        job.spec = Arc::new(ServiceSpec { kind: ServiceKind::Batch, ..ServiceSpec::default() });
        assert_eq!(short(&from_inspection(&service, &exit(0))), ("failed", Some("exited")));
        assert_eq!(short(&from_inspection(&job, &exit(0))), ("completed", None));
        assert_eq!(short(&from_inspection(&job, &exit(3))), ("failed", Some("exited")));
        let killed = inspection(Phase::Exited(Exit { code: Some(137), oom_killed: true, ended_with_host: false }));
        assert_eq!(short(&from_inspection(&job, &killed)), ("failed", Some("oom_killed")));
    }

    #[test]
    fn a_replica_with_a_health_check_is_running_once_it_passes() {
        let work = work(0, 1);
        let with = |health| from_inspection(&work, &inspection(Phase::Running(health)));
        assert_eq!(short(&with(HealthStatus::Unchecked)), ("running", None));
        assert_eq!(short(&with(HealthStatus::Starting)), ("starting", None));
        assert_eq!(short(&with(HealthStatus::Healthy)), ("running", None));
        let failing = HealthStatus::Unhealthy { failing_streak: 3, output: "refused\n".to_owned() };
        assert_eq!(short(&with(failing)), ("degraded", Some("healthcheck_failed")));
    }

    #[test]
    fn another_failed_probe_does_not_change_the_report() {
        let work = work(0, 1);
        let failing = |failing_streak| {
            let health = HealthStatus::Unhealthy { failing_streak, output: "no".to_owned() };
            from_inspection(&work, &inspection(Phase::Running(health)))
        };
        assert_eq!(failing(3), failing(4));
    }

    #[test]
    fn without_its_driver_a_replica_keeps_its_state_with_the_code_engine_unreachable() {
        let work = work(0, 1);
        let last = |state| report(&work, state, None, text("address", "10.0.0.1"));
        let unreachable = |state| engine_unreachable(&work, Some(&last(state)));
        let running = unreachable(ReplicaState::Running).unwrap();
        assert_eq!(short(&running), ("running", Some("engine_unreachable")));
        assert_eq!(running.details, last(ReplicaState::Running).details);
        assert_eq!(short(&unreachable(ReplicaState::Pulling).unwrap()), ("pending", Some("engine_unreachable")));
        assert_eq!(unreachable(ReplicaState::Failed), None, "its exit was observed");
        let mut next = work.clone();
        next.attempt.0 += 1;
        let of_next = engine_unreachable(&next, Some(&last(ReplicaState::Running))).unwrap();
        assert_eq!(
            short(&of_next),
            ("pending", Some("engine_unreachable")),
            "the report of another attempt does not count"
        );
    }

    #[test]
    fn a_long_message_is_cut() {
        let failed = start_failed(&work(0, 1), &"x".repeat(100_000));
        assert_eq!(failed.details["reason"], Detail::Text("x".repeat(MAX_TEXT)));
    }
}
