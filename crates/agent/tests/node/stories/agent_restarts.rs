//! Restarts of the agent and outages of the control plane, which no replica may notice.

use std::{sync::Arc, time::Duration};

use longshore_model::{Driver, ReplicaState, RuntimeCode, Work, agent_protocol::CleanupState};

use super::both;
use crate::{
    agent_process::{self, AgentArgs},
    fake_control_plane::FakeControlPlane,
    runner::{Needs, Story},
    test_node::{TestEnv, check, in_slot},
};

pub(crate) fn stories() -> Vec<Story> {
    both![
        replicas_of_a_killed_agent_keep_running_and_are_adopted,
        an_exit_while_no_agent_runs_is_reported_with_its_code,
        without_a_control_plane_everything_keeps_running_and_a_restarted_agent_resumes_its_work,
        a_healthy_replica_stays_running_over_a_restart_of_its_agent,
        only_a_snapshot_makes_a_replica_an_orphan,
    ]
}

const SLEEP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

fn five(env: &TestEnv, driver: Driver, script: &str) -> Vec<Work> {
    (0..5).map(|index| in_slot(&env.work(driver, "web", script, |_| {}), index)).collect()
}

async fn replicas_of_a_killed_agent_keep_running_and_are_adopted(env: TestEnv, driver: Driver) {
    let control = Arc::new(FakeControlPlane::default());
    let args = AgentArgs::of(&env, driver);
    agent_process::serve(Arc::clone(&control), &args.socket);
    let works = five(&env, driver, SLEEP);
    control.put_all(&works);
    let mut agent = agent_process::spawn(&args);
    for work in &works {
        control.wait_running(work).await;
    }
    let before: Vec<String> = works.iter().map(|work| env.identity(work)).collect();
    for _ in 0..3 {
        agent.kill().unwrap();
        agent.wait().unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        control.clear_history();
        agent = agent_process::spawn(&args);
        for work in &works {
            control.wait_running(work).await;
        }
    }
    let after: Vec<String> = works.iter().map(|work| env.identity(work)).collect();
    for work in &works {
        control.stop(work);
        control.wait_stopped(work).await;
    }
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert_eq!(before, after, "a replica was restarted");
}

async fn an_exit_while_no_agent_runs_is_reported_with_its_code(env: TestEnv, driver: Driver) {
    let mut node = env.node();
    let work = env.work(driver, "web", "sleep 1.5; exit 42", |_| {});
    node.control.put(&work);
    node.control.wait_running(&work).await;
    node.stop_agent();
    tokio::time::sleep(Duration::from_secs(3)).await;
    node.start_agent();
    let report = node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    assert_eq!(report.details["exit_code"], longshore_model::replica::Detail::Number(42));
}

async fn without_a_control_plane_everything_keeps_running_and_a_restarted_agent_resumes_its_work(
    env: TestEnv,
    driver: Driver,
) {
    let mut node = env.node();
    let works = five(&env, driver, SLEEP);
    node.control.put_all(&works[..4]);
    for work in &works[..4] {
        node.control.wait_running(work).await;
    }
    let before: Vec<String> = works[..4].iter().map(|work| env.identity(work)).collect();
    node.control.disconnect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The agent restarts too, and has only its work file.
    node.stop_agent();
    node.start_agent();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let during: Vec<String> = works[..4].iter().map(|work| env.identity(work)).collect();
    assert_eq!(before, during);
    for work in &works[..4] {
        assert_eq!(node.agent().last_report(&work.key).map(|report| report.state), Some(ReplicaState::Running));
    }
    node.control.clear_history();
    node.control.reconnect();
    for work in &works[..4] {
        node.control.wait_running(work).await;
    }
    node.control.put(&works[4]);
    node.control.wait_running(&works[4]).await;
    let after: Vec<String> = works[..4].iter().map(|work| env.identity(work)).collect();
    assert_eq!(before, after);
}

async fn a_healthy_replica_stays_running_over_a_restart_of_its_agent(env: TestEnv, driver: Driver) {
    let mut node = env.node();
    let work = env.work(driver, "web", SLEEP, |spec| spec.container.healthcheck = Some(check("true", 3)));
    node.control.put(&work);
    node.control.wait_running(&work).await;
    node.stop_agent();
    node.control.clear_history();
    node.start_agent();
    node.control.wait_running(&work).await;
    let states: Vec<&str> = node.control.history(&work.key).iter().map(|report| report.state.as_str()).collect();
    assert_eq!(states, ["running"], "any other state would take it out of routing");
}

async fn only_a_snapshot_makes_a_replica_an_orphan(env: TestEnv, driver: Driver) {
    let mut node = env.node();
    let works = five(&env, driver, SLEEP);
    node.control.put_all(&works);
    for work in &works {
        node.control.wait_running(work).await;
    }
    let kept = env.identity(&works[0]);
    node.stop_agent();
    // Neither work file nor control plane: the agent must not conclude that nothing is desired.
    std::fs::remove_file(env.folder().join("agent/work.json")).unwrap();
    node.control.disconnect();
    node.start_agent();
    tokio::time::sleep(Duration::from_secs(2)).await;
    for work in &works {
        env.identity(work);
    }
    for work in &works[1..] {
        node.control.forget_silently(&work.key);
    }
    node.control.reconnect();
    node.control.wait_for_heartbeat(|beat| beat.cursor.is_some() && beat.cleanup == CleanupState::Done).await;
    assert_eq!(env.identity(&works[0]), kept);
    match driver {
        Driver::Exec => assert_eq!(std::fs::read_dir(env.folder().join("agent/exec")).unwrap().count(), 1),
        Driver::Docker | Driver::Microvm => assert_eq!(env.containers().len(), 1),
    }
}
