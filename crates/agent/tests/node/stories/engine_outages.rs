//! Stories of engines that are installed, stopped, killed and started again, alone or with the whole machine: nothing
//! of that is a failure of a replica.

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, Instant},
};

use longshore_agent::DockerConfig;
use longshore_model::{Driver, ReplicaState, RuntimeCode, Work};

use super::{logs_and_exec::secret, one_driver};
use crate::{
    docker_engine::Engine,
    fake_control_plane::FakeControlPlane,
    runner::{Needs, Story},
    test_node::{Node, TestEnv, in_slot},
};

pub(crate) fn stories() -> Vec<Story> {
    one_driver![DockerAlone:
        an_engine_that_is_installed_later_is_found_and_no_start_has_failed,
        replicas_that_ended_with_their_engine_run_again_as_the_same_attempt,
        replicas_run_again_after_a_reboot_in_whichever_order_engine_and_agent_come_up,
    ]
}

/// Time from the engine's return until everything runs again.
const LIMIT: Duration = Duration::from_secs(30);

/// Runs until it is stopped, and needs its secret for that.
fn server(env: &TestEnv, index: u32) -> Work {
    let script =
        "trap 'exit 0' TERM; while :; do test \"$(cat /run/secrets/db_pass)\" = hunter2 || exit 9; sleep 0.1; done";
    in_slot(&env.work(Driver::Docker, "web", script, |spec| spec.container.files = vec![secret("db_pass")]), index)
}

/// Ends by itself.
fn finished(env: &TestEnv) -> Work {
    env.work(Driver::Docker, "once", "exit 3", |_| {})
}

async fn an_engine_that_is_installed_later_is_found_and_no_start_has_failed(env: TestEnv) {
    let engine = env.engine();
    engine.stop_daemon();
    let _ = fs::remove_file(engine.socket());
    let mut config = env.config();
    let elsewhere = env.folder().join("no-such.sock");
    config.docker = Some(DockerConfig::at_any(vec![elsewhere, engine.socket()]));
    let node = Node::start(config, FakeControlPlane::default());
    assert_eq!(node.agent().fingerprint().await.drivers, BTreeSet::from([Driver::Exec]));
    node.control.wait_settled().await;
    node.control.put_file("db_pass", b"hunter2");
    let work = server(&env, 0);
    node.control.put(&work);
    node.control.wait_for_state(&work, ReplicaState::Pending, Some(RuntimeCode::EngineUnreachable)).await;
    let mut changes = node.agent().driver_changes();
    engine.launch().unwrap();
    changes.changed().await.unwrap();
    assert!(node.agent().fingerprint().await.drivers.contains(&Driver::Docker));
    node.control.wait_running(&work).await;
    assert_none_failed(&node, &[work]);
}

async fn replicas_that_ended_with_their_engine_run_again_as_the_same_attempt(env: TestEnv) {
    let engine = env.engine();
    let node = env.node();
    let (works, ended) = put_work(&env, &node).await;
    for end in [Engine::stop_daemon, Engine::kill_daemon, Engine::power_off] {
        node.control.clear_history();
        let before: Vec<String> = works.iter().map(|work| env.identity(work)).collect();
        end(engine);
        node.control.wait_for_heartbeat(|beat| !beat.answering.contains(&Driver::Docker)).await;
        launch_again(engine);
        let since = Instant::now();
        wait_until_all_run(&env, &works).await;
        for work in &works {
            node.control.wait_running(work).await;
        }
        println!("     all run {:.1} s after the engine's return", since.elapsed().as_secs_f32());
        let after: Vec<String> = works.iter().map(|work| env.identity(work)).collect();
        let is_same_container = |(before, after): (&String, &String)| {
            before != after && before.split(' ').next() == after.split(' ').next()
        };
        assert!(before.iter().zip(&after).all(is_same_container), "{before:?} {after:?}");
        assert_none_failed(&node, &works);
        assert_eq!(engine.inspect(&ended.container_name(), "{{.State.Status}}"), "exited", "it had ended by itself");
    }
}

async fn replicas_run_again_after_a_reboot_in_whichever_order_engine_and_agent_come_up(env: TestEnv) {
    let engine = env.engine();
    let mut node = env.node();
    let (works, ended) = put_work(&env, &node).await;
    let end_agent = |node: &mut Node| {
        node.stop_agent();
        let _ = rustix::mount::unmount(env.folder().join("agent/secrets"), rustix::mount::UnmountFlags::DETACH);
        node.control.clear_history();
    };
    let launch = || launch_again(engine);
    for engine_first in [true, false] {
        end_agent(&mut node);
        engine.power_off();
        if engine_first {
            launch();
            node.start_agent();
        } else {
            node.start_agent();
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert!(works.iter().all(|work| node.agent().last_report(&work.key).unwrap().code.is_some()));
            launch();
        }
        wait_until_all_run(&env, &works).await;
        for work in &works {
            node.control.wait_running(work).await;
        }
        assert_none_failed(&node, &works);
        assert_eq!(engine.inspect(&ended.container_name(), "{{.State.Status}}"), "exited", "it had ended by itself");
    }
    // A restart of the engine that no agent has seen.
    end_agent(&mut node);
    engine.stop_daemon();
    launch();
    node.start_agent();
    wait_until_all_run(&env, &works).await;
    assert_none_failed(&node, &works);
    // What crashes while no agent runs has failed by itself.
    node.control.wait_running(&works[0]).await;
    node.stop_agent();
    engine.docker(&["kill", &works[0].container_name()]);
    node.start_agent();
    node.control.wait_for_state(&works[0], ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
}

/// Starts the engine after a crash, from which it may need a second start to recover.
fn launch_again(engine: &Engine) {
    let is_up = (0..4).any(|_| engine.launch().is_ok());
    assert!(is_up, "the engine does not start any more");
}

/// Starts three replicas that run on and one that ends.
async fn put_work(env: &TestEnv, node: &Node) -> (Vec<Work>, Work) {
    node.control.put_file("db_pass", b"hunter2");
    let works: Vec<Work> = (0..3).map(|index| server(env, index)).collect();
    node.control.put_all(&works);
    let ended = finished(env);
    node.control.put(&ended);
    for work in &works {
        node.control.wait_running(work).await;
    }
    node.control.wait_for_state(&ended, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    (works, ended)
}

async fn wait_until_all_run(env: &TestEnv, works: &[Work]) {
    let deadline = Instant::now() + LIMIT;
    let runs = |work: &Work| env.engine().inspect(&work.container_name(), "{{.State.Status}}") == "running";
    while !works.iter().all(runs) {
        assert!(Instant::now() < deadline, "not everything runs again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn assert_none_failed(node: &Node, works: &[Work]) {
    for work in works {
        let history = node.control.history(&work.key);
        assert!(history.iter().all(|report| report.state != ReplicaState::Failed), "{history:#?}");
    }
}
