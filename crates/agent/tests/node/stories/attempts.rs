//! Successive attempts of a generation: how the previous one is stopped, and what is kept of it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use longshore_agent::LogOptions;
use longshore_model::{Attempt, Driver, ReplicaState, RuntimeCode, Work};

use super::{both, logs_and_exec, one_driver};
use crate::{
    runner::{Needs, Story},
    test_node::{Node, TestEnv, check},
};

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = both![
        the_output_of_the_previous_attempt_can_be_read_and_no_older_one,
        an_unhealthy_replica_is_draining_until_it_has_stopped_and_reports_why,
    ];
    stories.extend(one_driver![Docker: secrets_of_an_externally_removed_container_are_removed]);
    stories
}

async fn output(node: &Node, work: &Work, attempt: u32) -> Option<Vec<String>> {
    let lines = node.agent().logs(&work.key, Attempt(attempt), LogOptions::default()).await.ok()?;
    Some(logs_and_exec::texts(&logs_and_exec::all(lines).await))
}

async fn the_output_of_the_previous_attempt_can_be_read_and_no_older_one(env: TestEnv, driver: Driver) {
    let mut node = env.node();
    let mut work = env.work(driver, "web", "echo last words of $$; exit 7", |_| {});
    node.control.put(&work);
    for _ in 0..2 {
        node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
        work = node.control.start_next_attempt(&work);
    }
    node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    let kept = async |node: &Node| {
        let mut kept = Vec::new();
        for attempt in 0..3 {
            kept.push(output(node, &work, attempt).await.map(|lines| lines.len()));
        }
        kept
    };
    assert_eq!(kept(&node).await, [None, Some(1), Some(1)]);
    node.stop_agent();
    node.start_agent();
    node.control.wait_settled().await;
    assert_eq!(kept(&node).await, [None, Some(1), Some(1)], "a restarted agent finds the same");
    node.control.stop(&work);
    node.control.wait_stopped(&work).await;
    assert_eq!(kept(&node).await, [None, None, None], "nothing is left of a stopped generation");
}

async fn an_unhealthy_replica_is_draining_until_it_has_stopped_and_reports_why(env: TestEnv, driver: Driver) {
    let node = env.node();
    let script = "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done";
    let work = env.work(driver, "web", script, |spec| spec.container.healthcheck = Some(check("echo no; false", 1)));
    node.control.put(&work);
    node.control.wait_for_state(&work, ReplicaState::Degraded, Some(RuntimeCode::HealthcheckFailed)).await;
    let next = node.control.start_next_attempt(&work);
    node.control.wait_for_state(&next, ReplicaState::Degraded, Some(RuntimeCode::HealthcheckFailed)).await;
    let history = node.control.history(&next.key);
    let of_next =
        history.iter().filter(|report| report.attempt == next.attempt).map(|report| (report.state, report.code));
    let failed = Some(RuntimeCode::HealthcheckFailed);
    let expected = [(ReplicaState::Draining, failed), (ReplicaState::Starting, None), (ReplicaState::Degraded, failed)];
    assert_eq!(of_next.collect::<Vec<_>>(), expected);
}

fn secrets_of(env: &TestEnv, work: &Work) -> PathBuf {
    env.folder().join("agent/secrets").join(work.container_name())
}

async fn wait_until_gone(path: &Path) {
    let gone = async {
        while path.exists() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("it is never removed");
}

async fn secrets_of_an_externally_removed_container_are_removed(env: TestEnv) {
    let mut node = env.node();
    node.control.put_file("db_pass", b"hunter2");
    let script = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let mut work =
        env.work(Driver::Docker, "web", script, |spec| spec.container.files = vec![logs_and_exec::secret("db_pass")]);
    node.control.put(&work);
    node.control.wait_running(&work).await;
    assert!(secrets_of(&env, &work).exists());
    env.engine().docker(&["rm", "-f", &work.container_name()]);
    node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    wait_until_gone(&secrets_of(&env, &work)).await;
    let first = work.clone();
    work = node.control.start_next_attempt(&work);
    node.control.wait_running(&work).await;
    let marker = |work: &Work| env.folder().join("agent/made").join(work.container_name());
    assert!(!marker(&first).exists() && marker(&work).exists());
    // The same for a container removed while no agent runs, whose work is gone when the agent returns.
    node.stop_agent();
    env.engine().docker(&["rm", "-f", &work.container_name()]);
    node.control.forget_silently(&work.key);
    assert!(secrets_of(&env, &work).exists());
    node.start_agent();
    wait_until_gone(&secrets_of(&env, &work)).await;
    wait_until_gone(&marker(&work)).await;
}
