//! From what a driver shows to what is reported.
//!
//! Owns: the one place that decides which state and code a look stands for. Pure.
//! Invariant: a report is about one generation and attempt.

use longshore_model::{
    ReplicaState, RuntimeCode, ServiceKind, Sighting, Work,
    policy::RestartCondition,
    replica::{Detail, Details},
};

use crate::runtime::{Exit, ExitCause, Phase, Pulse, Seen};

/// Longest text taken from an engine or a health check into a report. Reports are replicated; output is not.
const LONGEST_TEXT: usize = 512;

/// A report about the attempt the work asks for.
pub(crate) fn sighting(work: &Work, state: ReplicaState, code: Option<RuntimeCode>, details: Details) -> Sighting {
    let placed_at = Some(work.assignment.placed_at);
    Sighting { key: work.key.clone(), attempt: work.attempt, placed_at, state, code, details }
}

/// What a look means.
pub(crate) fn of(work: &Work, seen: &Seen) -> Sighting {
    match &seen.phase {
        Phase::Made => sighting(work, ReplicaState::Starting, None, Details::new()),
        Phase::Refused { reason } => start_failed(work, reason),
        Phase::Up(pulse) => up(work, seen, pulse),
        Phase::Ended(exit) => ended(work, exit),
    }
}

/// It could not be started.
pub(crate) fn start_failed(work: &Work, reason: &str) -> Sighting {
    sighting(work, ReplicaState::Failed, Some(RuntimeCode::StartFailed), text("reason", reason))
}

/// It was made here, and somebody took it away.
pub(crate) fn gone(work: &Work) -> Sighting {
    let reason = "its container was removed by somebody else";
    sighting(work, ReplicaState::Failed, Some(RuntimeCode::Exited), text("reason", reason))
}

/// Its driver is away, so nobody can look: what was last seen stands, and the code says that it is only that. Nothing is
/// said of what has ended, or fails its check: that was seen, and is not undone by looking away.
pub(crate) fn unseen(work: &Work, last: Option<&Sighting>) -> Option<Sighting> {
    let last = last.filter(|last| last.attempt == work.attempt);
    let state = last.map_or(ReplicaState::Pending, |last| last.state);
    let reason = || text("reason", &format!("{} does not answer on this node", work.spec.driver.as_str()));
    let (state, details) = match state {
        // Where it was reached is where it is found if it still runs.
        ReplicaState::Running => (state, last.map(|last| last.details.clone()).unwrap_or_default()),
        ReplicaState::Starting => (state, reason()),
        // An image does not arrive without an engine.
        ReplicaState::Pending | ReplicaState::Pulling => (ReplicaState::Pending, reason()),
        ReplicaState::Degraded
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Failed
        | ReplicaState::Completed
        | ReplicaState::Lost => return None,
    };
    Some(sighting(work, state, Some(RuntimeCode::EngineUnreachable), details))
}

/// One named text, cut to a bearable length.
pub(crate) fn text(name: &str, value: &str) -> Details {
    let cut: String = value.trim().chars().take(LONGEST_TEXT).collect();
    Details::from([(name.to_owned(), Detail::Text(cut))])
}

fn up(work: &Work, seen: &Seen, pulse: &Pulse) -> Sighting {
    match pulse {
        Pulse::Unchecked | Pulse::Healthy => sighting(work, ReplicaState::Running, None, reachable(seen)),
        // Nobody shall talk to it yet, so where it can be reached would only be a second report of the same.
        Pulse::Starting => sighting(work, ReplicaState::Starting, None, Details::new()),
        // The count of failures is left out: it grows with every probe, and each would be a report of its own.
        Pulse::Unhealthy { output, .. } => {
            let mut details = reachable(seen);
            details.extend(text("output", output));
            sighting(work, ReplicaState::Degraded, Some(RuntimeCode::HealthcheckFailed), details)
        }
    }
}

fn reachable(seen: &Seen) -> Details {
    let mut details = Details::new();
    if let Some(address) = seen.address {
        details.insert("address".to_owned(), Detail::Text(address.to_string()));
    }
    if !seen.ports.is_empty() {
        details.insert("ports".to_owned(), Detail::List(seen.ports.clone()));
    }
    details
}

fn ended(work: &Work, exit: &Exit) -> Sighting {
    let mut details = Details::new();
    match exit.code.map(u64::try_from) {
        Some(Ok(code)) => drop(details.insert("exit_code".to_owned(), Detail::Number(code))),
        Some(Err(_)) | None => details.extend(text("reason", "nobody saw how it ended")),
    }
    let may_end = matches!(work.spec.kind, ServiceKind::Batch | ServiceKind::Sysbatch)
        || work.spec.restart.condition != RestartCondition::Any;
    match exit.cause {
        ExitCause::OutOfMemory => sighting(work, ReplicaState::Failed, Some(RuntimeCode::OomKilled), details),
        ExitCause::Own if may_end && exit.code == Some(0) => sighting(work, ReplicaState::Completed, None, details),
        ExitCause::Own => sighting(work, ReplicaState::Failed, Some(RuntimeCode::Exited), details),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longshore_model::{ServiceSpec, policy::RestartPolicy};

    use super::*;
    use crate::book::tests::work;

    fn seen(phase: Phase) -> Seen {
        Seen { phase, address: None, ports: Vec::new() }
    }

    fn exit(code: i64, cause: ExitCause) -> Seen {
        seen(Phase::Ended(Exit { code: Some(code), cause }))
    }

    fn short(sighting: &Sighting) -> (&'static str, Option<&'static str>) {
        (sighting.state.as_str(), sighting.code.map(RuntimeCode::code))
    }

    #[test]
    fn a_service_that_ends_has_failed_and_what_may_end_well_is_done() {
        let service = work(0, 1);
        for (condition, state) in [
            (RestartCondition::Any, "failed"),
            (RestartCondition::OnFailure, "completed"),
            (RestartCondition::None, "completed"),
        ] {
            let mut ending = service.clone();
            let restart = RestartPolicy { condition, ..RestartPolicy::default() };
            ending.spec = Arc::new(ServiceSpec { restart, ..ServiceSpec::default() });
            assert_eq!(of(&ending, &exit(0, ExitCause::Own)).state.as_str(), state);
            assert_eq!(of(&ending, &exit(1, ExitCause::Own)).state.as_str(), "failed");
        }
        let mut job = service.clone();
        job.spec = Arc::new(ServiceSpec { kind: ServiceKind::Batch, ..ServiceSpec::default() });
        assert_eq!(short(&of(&service, &exit(0, ExitCause::Own))), ("failed", Some("exited")));
        assert_eq!(short(&of(&job, &exit(0, ExitCause::Own))), ("completed", None));
        assert_eq!(short(&of(&job, &exit(3, ExitCause::Own))), ("failed", Some("exited")));
        assert_eq!(short(&of(&job, &exit(137, ExitCause::OutOfMemory))), ("failed", Some("oom_killed")));
    }

    #[test]
    fn running_waits_for_the_check_where_there_is_one() {
        let work = work(0, 1);
        let up = |pulse| of(&work, &seen(Phase::Up(pulse)));
        assert_eq!(short(&up(Pulse::Unchecked)), ("running", None));
        assert_eq!(short(&up(Pulse::Starting)), ("starting", None));
        assert_eq!(short(&up(Pulse::Healthy)), ("running", None));
        let failing = Pulse::Unhealthy { streak: 3, output: "refused\n".to_owned() };
        assert_eq!(short(&up(failing)), ("degraded", Some("healthcheck_failed")));
    }

    #[test]
    fn one_more_failed_probe_is_no_news() {
        let work = work(0, 1);
        let failing = |streak| of(&work, &seen(Phase::Up(Pulse::Unhealthy { streak, output: "no".to_owned() })));
        assert_eq!(failing(3), failing(4));
    }

    #[test]
    fn what_nobody_can_look_at_stays_what_it_was_and_says_so() {
        let work = work(0, 1);
        let last = |state| sighting(&work, state, None, text("address", "10.0.0.1"));
        let unseen = |state| unseen(&work, Some(&last(state)));
        let running = unseen(ReplicaState::Running).unwrap();
        assert_eq!(short(&running), ("running", Some("engine_unreachable")));
        assert_eq!(running.details, last(ReplicaState::Running).details);
        assert_eq!(short(&unseen(ReplicaState::Pulling).unwrap()), ("pending", Some("engine_unreachable")));
        assert_eq!(unseen(ReplicaState::Failed), None, "its end was seen");
        let mut next = work.clone();
        next.attempt.0 += 1;
        let of_next = super::unseen(&next, Some(&last(ReplicaState::Running))).unwrap();
        assert_eq!(short(&of_next), ("pending", Some("engine_unreachable")), "another attempt says nothing of it");
    }

    #[test]
    fn an_endless_message_is_cut() {
        let failed = start_failed(&work(0, 1), &"x".repeat(100_000));
        assert_eq!(failed.details["reason"], Detail::Text("x".repeat(LONGEST_TEXT)));
    }
}
