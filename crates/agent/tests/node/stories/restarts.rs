//! Agents and control planes that go away, and what does not.

use std::{sync::Arc, time::Duration};

use longshore_model::{Driver, ReplicaState, RuntimeCode, Work, work::Standing};

use super::both;
use crate::{
    agent_process::{self, Orders},
    control::Control,
    runner::{Needs, Story},
    world::{Ground, check, in_slot},
};

pub(crate) fn stories() -> Vec<Story> {
    both![
        a_killed_agent_takes_nothing_with_it_and_adopts_everything,
        what_ends_while_no_agent_looks_is_reported_with_its_code,
        without_a_control_plane_everything_runs_on_and_an_agent_takes_up_its_work,
        a_healthy_replica_stays_running_over_a_restart_of_its_agent,
        only_a_snapshot_proves_that_something_is_not_wanted,
    ]
}

const SLEEP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

fn five(ground: &Ground, driver: Driver, script: &str) -> Vec<Work> {
    (0..5).map(|index| in_slot(&ground.work(driver, "web", script, |_| {}), index)).collect()
}

async fn a_killed_agent_takes_nothing_with_it_and_adopts_everything(ground: Ground, driver: Driver) {
    let control = Arc::new(Control::default());
    let orders = Orders::of(&ground, driver);
    agent_process::serve(Arc::clone(&control), &orders.socket);
    let works = five(&ground, driver, SLEEP);
    control.put_all(&works);
    let mut agent = agent_process::spawn(&orders);
    for work in &works {
        control.runs(work).await;
    }
    let before: Vec<String> = works.iter().map(|work| ground.identity(work)).collect();
    for _ in 0..3 {
        agent.kill().unwrap();
        agent.wait().unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        control.forget_history();
        agent = agent_process::spawn(&orders);
        for work in &works {
            control.runs(work).await;
        }
    }
    let after: Vec<String> = works.iter().map(|work| ground.identity(work)).collect();
    for work in &works {
        control.stop(work);
        control.stopped(work).await;
    }
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert_eq!(before, after, "the same containers, started once");
}

async fn what_ends_while_no_agent_looks_is_reported_with_its_code(ground: Ground, driver: Driver) {
    let mut node = ground.node();
    let work = ground.work(driver, "web", "sleep 1.5; exit 42", |_| {});
    node.control.put(&work);
    node.control.runs(&work).await;
    node.lose_agent();
    tokio::time::sleep(Duration::from_secs(3)).await;
    node.start_agent();
    let seen = node.control.hears(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    assert_eq!(seen.details["exit_code"], longshore_model::replica::Detail::Number(42));
}

async fn without_a_control_plane_everything_runs_on_and_an_agent_takes_up_its_work(ground: Ground, driver: Driver) {
    let mut node = ground.node();
    let works = five(&ground, driver, SLEEP);
    node.control.put_all(&works[..4]);
    for work in &works[..4] {
        node.control.runs(work).await;
    }
    let before: Vec<String> = works[..4].iter().map(|work| ground.identity(work)).collect();
    node.control.go_away();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The agent goes too, and comes back to silence: it has only what it wrote down.
    node.lose_agent();
    node.start_agent();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let during: Vec<String> = works[..4].iter().map(|work| ground.identity(work)).collect();
    assert_eq!(before, during);
    for work in &works[..4] {
        assert_eq!(node.agent().last_seen(&work.key).map(|seen| seen.state), Some(ReplicaState::Running));
    }
    node.control.forget_history();
    node.control.come_back();
    for work in &works[..4] {
        node.control.runs(work).await;
    }
    node.control.put(&works[4]);
    node.control.runs(&works[4]).await;
    let after: Vec<String> = works[..4].iter().map(|work| ground.identity(work)).collect();
    assert_eq!(before, after);
}

async fn a_healthy_replica_stays_running_over_a_restart_of_its_agent(ground: Ground, driver: Driver) {
    let mut node = ground.node();
    let work = ground.work(driver, "web", SLEEP, |spec| spec.container.healthcheck = Some(check("true", 3)));
    node.control.put(&work);
    node.control.runs(&work).await;
    node.lose_agent();
    node.control.forget_history();
    node.start_agent();
    node.control.runs(&work).await;
    let states: Vec<&str> = node.control.history(&work.key).iter().map(|seen| seen.state.as_str()).collect();
    assert_eq!(states, ["running"], "no traffic may be taken from it");
}

async fn only_a_snapshot_proves_that_something_is_not_wanted(ground: Ground, driver: Driver) {
    let mut node = ground.node();
    let works = five(&ground, driver, SLEEP);
    node.control.put_all(&works);
    for work in &works {
        node.control.runs(work).await;
    }
    let kept = ground.identity(&works[0]);
    node.lose_agent();
    // Its memory is gone, and so is the control plane: it must not conclude anything from that.
    std::fs::remove_file(ground.folder().join("agent/work.json")).unwrap();
    node.control.go_away();
    node.start_agent();
    tokio::time::sleep(Duration::from_secs(2)).await;
    for work in &works {
        ground.identity(work);
    }
    for work in &works[1..] {
        node.control.forget(&work.key);
    }
    node.control.come_back();
    node.control.beat(|beat| beat.cursor.is_some() && beat.standing == Standing::Settled).await;
    assert_eq!(ground.identity(&works[0]), kept);
    match driver {
        Driver::Exec => assert_eq!(std::fs::read_dir(ground.folder().join("agent/exec")).unwrap().count(), 1),
        Driver::Docker | Driver::Microvm => assert_eq!(ground.containers().len(), 1),
    }
}
