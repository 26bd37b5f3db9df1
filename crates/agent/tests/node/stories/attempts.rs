//! One attempt after the other: what becomes of the one before, and what is left of it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use longshore_agent::LogOptions;
use longshore_model::{Attempt, Driver, ReplicaState, RuntimeCode, Work};

use super::{both, looking, one_driver};
use crate::{
    runner::{Needs, Story},
    world::{Ground, Node, check},
};

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = both![
        the_output_of_the_attempt_before_can_be_read_and_no_older_one,
        an_unhealthy_replica_is_draining_until_it_has_stopped_and_says_why,
    ];
    stories.extend(one_driver![Docker: what_a_removed_container_could_read_is_gone_with_it]);
    stories
}

async fn output(node: &Node, work: &Work, attempt: u32) -> Option<Vec<String>> {
    let lines = node.agent().logs(&work.key, Attempt(attempt), LogOptions::default()).await.ok()?;
    Some(looking::texts(&looking::all(lines).await))
}

async fn the_output_of_the_attempt_before_can_be_read_and_no_older_one(ground: Ground, driver: Driver) {
    let mut node = ground.node();
    let mut work = ground.work(driver, "web", "echo last words of $$; exit 7", |_| {});
    node.control.put(&work);
    for _ in 0..2 {
        node.control.hears(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
        work = node.control.again(&work);
    }
    node.control.hears(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    let kept = async |node: &Node| {
        let mut kept = Vec::new();
        for attempt in 0..3 {
            kept.push(output(node, &work, attempt).await.map(|lines| lines.len()));
        }
        kept
    };
    assert_eq!(kept(&node).await, [None, Some(1), Some(1)]);
    node.lose_agent();
    node.start_agent();
    node.control.settles().await;
    assert_eq!(kept(&node).await, [None, Some(1), Some(1)], "another agent finds the same");
    node.control.stop(&work);
    node.control.stopped(&work).await;
    assert_eq!(kept(&node).await, [None, None, None], "nothing is left of a generation that has ended");
}

async fn an_unhealthy_replica_is_draining_until_it_has_stopped_and_says_why(ground: Ground, driver: Driver) {
    let node = ground.node();
    let script = "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done";
    let work = ground.work(driver, "web", script, |spec| spec.container.healthcheck = Some(check("echo no; false", 1)));
    node.control.put(&work);
    node.control.hears(&work, ReplicaState::Degraded, Some(RuntimeCode::HealthcheckFailed)).await;
    let next = node.control.again(&work);
    node.control.hears(&next, ReplicaState::Degraded, Some(RuntimeCode::HealthcheckFailed)).await;
    let history = node.control.history(&next.key);
    let of_next = history.iter().filter(|seen| seen.attempt == next.attempt).map(|seen| (seen.state, seen.code));
    let failed = Some(RuntimeCode::HealthcheckFailed);
    let expected = [(ReplicaState::Draining, failed), (ReplicaState::Starting, None), (ReplicaState::Degraded, failed)];
    assert_eq!(of_next.collect::<Vec<_>>(), expected);
}

fn given(ground: &Ground, work: &Work) -> PathBuf {
    ground.folder().join("agent/secrets").join(work.container_name())
}

async fn gone(path: &Path) {
    let gone = async {
        while path.exists() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("what is left is never swept away");
}

async fn what_a_removed_container_could_read_is_gone_with_it(ground: Ground) {
    let mut node = ground.node();
    node.control.put_file("db_pass", b"hunter2");
    let script = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let mut work =
        ground.work(Driver::Docker, "web", script, |spec| spec.container.files = vec![looking::secret("db_pass")]);
    node.control.put(&work);
    node.control.runs(&work).await;
    assert!(given(&ground, &work).exists());
    ground.engine().docker(&["rm", "-f", &work.container_name()]);
    node.control.hears(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    gone(&given(&ground, &work)).await;
    let first = work.clone();
    work = node.control.again(&work);
    node.control.runs(&work).await;
    let mark = |work: &Work| ground.folder().join("agent/made").join(work.container_name());
    assert!(!mark(&first).exists() && mark(&work).exists());
    // And while no agent looks, of work that is nobody's any more when it comes back.
    node.lose_agent();
    ground.engine().docker(&["rm", "-f", &work.container_name()]);
    node.control.forget(&work.key);
    assert!(given(&ground, &work).exists());
    node.start_agent();
    gone(&given(&ground, &work)).await;
    gone(&mark(&work)).await;
}
