//! What each state of a deployment means for a command that waits.

use longshore_api::Replica;
use serde_json::{Value, json};

use super::*;

fn deployment(status: &str, revision: u64, rollout: &Value) -> Deployment {
    let service = json!({
        "name": "web", "image": "web:1", "strategy": "spread", "driver": "docker", "desired": 2, "wanted": 2,
        "running": 2, "ports": [],
    });
    let deployment = json!({
        "namespace": "default", "name": "shop", "status": status, "reasons": ["exited"], "revision": revision,
        "revisions": [revision], "rollout": rollout, "services": [service],
    });
    serde_json::from_value(deployment).unwrap()
}

fn rollout(to: u64, state: &str) -> Value {
    json!({ "number": 1, "from": 1, "to": to, "state": state })
}

/// The rollout to revision 2, which failed because its replica exits.
fn failed_rollout(state: &str) -> Value {
    let mut rollout = rollout(2, state);
    rollout["failure_reason"] = json!("restart_exhausted");
    rollout["failed_replica"] = json!("shop-web-0");
    rollout["failure"] = json!({
        "generation": 2, "node": "n1", "state": "failed", "code": "restart_exhausted",
        "details": { "exit_code": 3, "last_lines": ["connecting to db", "no database"] },
    });
    rollout
}

fn replica(id: &str, state: &str, code: Option<&str>) -> Replica {
    let node = (state != "pending").then_some("n1");
    let replica = json!({
        "id": id, "namespace": "default", "deployment": "shop", "service": "web", "node": node, "state": state,
        "code": code, "details": {}, "generation": 1, "attempt": 0, "revision": 1, "restarts": 0, "since_ms": null,
        "address": null,
    });
    serde_json::from_value(replica).unwrap()
}

fn goal() -> Goal {
    Goal { namespace: "default".to_owned(), deployment: "shop".to_owned(), revision: 2 }
}

fn outcome_of(status: &str, revision: u64, rollout: &Value) -> Option<WaitOutcome> {
    judge(&deployment(status, revision, rollout), &[], &goal(), None)
}

fn why_failed(outcome: Option<WaitOutcome>) -> String {
    match outcome {
        Some(WaitOutcome::Failed(why)) => why,
        other => panic!("{other:?} is no failure"),
    }
}

#[test]
fn only_the_requested_revision_counts_as_complete() {
    assert_eq!(outcome_of("active", 2, &rollout(2, "completed")), Some(WaitOutcome::Complete));
    assert_eq!(outcome_of("active", 1, &rollout(2, "aborted")), None);
    assert_eq!(outcome_of("progressing", 2, &rollout(2, "in_progress")), None);
    assert_eq!(outcome_of("degraded", 2, &rollout(2, "completed")), None);
}

#[test]
fn a_rollback_says_what_failed_and_why_and_what_is_in_force() {
    insta::assert_snapshot!(why_failed(outcome_of("active", 1, &failed_rollout("rolled_back"))), @r"
    failed and was rolled back: shop-web-0 of revision 2 failed too often (restart_exhausted); it was failed on n1: restart_exhausted with code 3
    the last lines of shop-web-0:
      | connecting to db
      | no database
    revision 1 is in force again
    ");
}

#[test]
fn a_rollback_whose_replica_is_unknown_still_says_what_is_in_force() {
    insta::assert_snapshot!(why_failed(outcome_of("active", 1, &rollout(2, "rolled_back"))), @r"
    failed and was rolled back
    revision 1 is in force again
    ");
}

#[test]
fn a_rollout_that_waits_for_a_migration_that_failed_has_failed() {
    let mut waits = rollout(2, "in_progress");
    let mut migration = replica("shop-migrate-0", "failed", Some("exited"));
    migration.ended = true;
    let judged = |rollout: &Value| judge(&deployment("degraded", 2, rollout), &[migration.clone()], &goal(), None);
    assert_eq!(judged(&waits), None, "the rollout may still decide");
    waits["waits_for"] = json!({ "replica": "shop-app-0", "code": "dependency_not_ready" });
    assert_eq!(why_failed(judged(&waits)), "is degraded: shop-migrate-0 failed on n1: exited");
}

#[test]
fn a_change_that_was_superseded_has_failed() {
    let superseded = WaitOutcome::Failed("was changed again: revision 3 is active".to_owned());
    assert_eq!(outcome_of("active", 3, &rollout(3, "completed")), Some(superseded));
    assert_eq!(outcome_of("failed", 2, &Value::Null), Some(WaitOutcome::Failed("failed: exited".to_owned())));
}

#[test]
fn a_deployment_whose_replicas_are_given_up_shows_the_last_lines_of_one() {
    let mut failed = replica("shop-web-1", "failed", Some("restart_exhausted"));
    failed.details.insert("exit_code".to_owned(), json!(1));
    failed.details.insert("last_lines".to_owned(), json!(["no such table"]));
    let replicas = [replica("shop-web-0", "running", None), failed];
    let outcome = judge(&deployment("degraded", 2, &Value::Null), &replicas, &goal(), None);
    insta::assert_snapshot!(why_failed(outcome), @r"
    is degraded: shop-web-1 failed on n1: restart_exhausted with code 1
    the last lines of shop-web-1:
      | no such table
    ");
}

#[test]
fn a_rollout_that_waits_for_promotion_or_is_paused_needs_the_operator() {
    assert_eq!(
        outcome_of("progressing", 2, &rollout(2, "awaiting_promotion")),
        Some(WaitOutcome::OperatorNeeded(Blocker::Promotion))
    );
    assert_eq!(
        outcome_of("progressing", 2, &rollout(2, "paused")),
        Some(WaitOutcome::OperatorNeeded(Blocker::Pause(None)))
    );
}

#[test]
fn a_rollout_paused_by_a_failure_says_which() {
    let Some(WaitOutcome::OperatorNeeded(blocker)) = outcome_of("degraded", 2, &failed_rollout("paused")) else {
        panic!("a paused rollout needs the operator")
    };
    insta::assert_snapshot!(blocker.to_string(), @r"
    is paused: shop-web-0 of revision 2 failed too often (restart_exhausted); it was failed on n1: restart_exhausted with code 3
    the last lines of shop-web-0:
      | connecting to db
      | no database
    ");
}

#[test]
fn a_scaled_service_is_complete_once_it_runs_though_its_rollout_still_watches_it() {
    let rolling = deployment("progressing", 2, &rollout(2, "in_progress"));
    let count = |count| ServiceCount { service: "web".to_owned(), count };
    let runs = [replica("shop-web-0", "running", None), replica("shop-web-1", "running", None)];
    let judged = |replicas: &[Replica], scaled| judge(&rolling, replicas, &goal(), Some(&count(scaled)));
    assert_eq!(judged(&runs, 2), Some(WaitOutcome::Complete));
    assert_eq!(judged(&runs, 3), None, "the third slot is not open yet");
    let mut leaving = runs.to_vec();
    leaving.push(replica("shop-web-2", "draining", None));
    assert_eq!(judged(&leaving, 2), None, "the third replica still stops");
}

#[test]
fn replicas_without_a_node_are_an_answer_once_nothing_else_is_under_way() {
    let waits = replica("shop-web-1", "pending", Some("no_capacity_memory"));
    let found = |replicas: &[Replica], rollout: &Value| {
        unplaceable(&deployment("degraded", 2, rollout), replicas).map(|it| it.id.clone())
    };
    let with = |other: &str| [replica("shop-web-0", other, None), waits.clone()];
    assert_eq!(found(&with("running"), &Value::Null).as_deref(), Some("shop-web-1"));
    assert_eq!(found(&with("starting"), &Value::Null), None, "a start is under way");
    assert_eq!(found(&with("draining"), &Value::Null), None, "it makes room");
    let mut rolling = rollout(2, "in_progress");
    assert_eq!(found(&with("running"), &rolling), None, "the rollout has other steps to make first");
    rolling["waits_for"] = json!({ "replica": "shop-web-1", "code": "no_capacity_memory" });
    assert_eq!(found(&with("running"), &rolling).as_deref(), Some("shop-web-1"));
    assert_eq!(found(&with("running"), &rollout(2, "aborted")), None, "the way back is under way");
    let depends = [replica("shop-web-1", "pending", Some("dependency_not_ready"))];
    assert_eq!(found(&depends, &Value::Null), None, "it waits for another service, not for a node");
}
