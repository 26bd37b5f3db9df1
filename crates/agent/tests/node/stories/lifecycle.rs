//! The lifecycle of a replica: every state and code, reached with a real process or container.

use std::time::{Duration, Instant};

use longshore_agent::AgentConfig;
use longshore_model::{
    Driver, ReplicaKey, ReplicaReport, ReplicaState, RuntimeCode, ServiceKind, SlotKey, Work,
    container::Hook,
    replica::Detail,
    service::{Port, PortMode, Protocol},
};

use super::both;
use crate::{
    fake_control_plane::FakeControlPlane,
    runner::{Needs, Story},
    test_node::{Node, TestEnv, check, in_slot, next_generation},
};

pub(crate) fn stories() -> Vec<Story> {
    both![
        a_replica_starts_runs_and_stops_and_leaves_nothing,
        a_crash_is_reported_with_its_code_and_the_next_attempt_is_a_new_start,
        a_crash_is_reported_with_the_last_lines_it_wrote,
        a_job_that_ends_well_is_completed_and_stays_so,
        a_command_that_does_not_exist_is_a_failed_start,
        running_is_reported_when_the_check_passes_and_degraded_when_it_fails,
        a_check_that_never_passes_is_degraded_and_never_running,
        a_replica_that_takes_too_much_memory_is_oom_killed,
        a_replica_that_ignores_its_signal_is_killed_after_its_own_grace,
        the_stop_signal_of_the_manifest_reaches_the_process,
        a_stop_overtakes_a_running_stop_with_less_grace,
        a_published_replica_keeps_serving_for_the_deregistration_delay,
        a_changed_environment_is_a_new_container_and_the_same_work_again_is_not,
        hooks_run_after_the_start_and_before_the_stop,
        stopping_one_slot_leaves_the_others_running,
    ]
}

const SLEEP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

fn states(history: &[ReplicaReport]) -> Vec<&'static str> {
    history.iter().map(|report| report.state.as_str()).collect()
}

async fn a_replica_starts_runs_and_stops_and_leaves_nothing(env: TestEnv, driver: Driver) {
    let node = env.node();
    let work = env.work(driver, "web", SLEEP, |_| {});
    node.control.put(&work);
    node.control.wait_running(&work).await;
    node.control.stop(&work);
    node.control.wait_stopped(&work).await;
    let history = node.control.history(&work.key);
    assert_eq!(states(&history), ["starting", "running", "draining", "stopped"]);
    node.control.remove(&work.key);
    match driver {
        Driver::Exec => assert_eq!(std::fs::read_dir(env.folder().join("agent/exec")).unwrap().count(), 0),
        Driver::Docker | Driver::Microvm => assert_eq!(env.containers(), [""; 0]),
    }
}

async fn a_crash_is_reported_with_its_code_and_the_next_attempt_is_a_new_start(env: TestEnv, driver: Driver) {
    let node = env.node();
    let mut work = env.work(driver, "web", "sleep 0.3; exit 7", |_| {});
    node.control.put(&work);
    for _ in 0..3 {
        let report = node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
        assert_eq!(report.details["exit_code"], Detail::Number(7));
        work = node.control.start_next_attempt(&work);
    }
    // After its third failure the control plane gives up; the last two attempts are kept.
    node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    if driver == Driver::Docker {
        assert_eq!(env.containers().len(), 2, "only the last two attempts are kept");
    }
}

async fn a_crash_is_reported_with_the_last_lines_it_wrote(env: TestEnv, driver: Driver) {
    let node = env.node();
    // One stream: nothing orders the lines of two.
    let script = "exec >&2; i=0; while [ $i -lt 30 ]; do echo line $i; i=$((i+1)); done; echo no database; exit 7";
    let work = env.work(driver, "web", script, |_| {});
    node.control.put(&work);
    let report = node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    let Detail::List(lines) = &report.details["last_lines"] else { panic!("{report:?} has no lines") };
    assert_eq!(lines.len(), 10, "{lines:?}");
    assert!(lines.contains(&"no database".to_owned()) && lines.contains(&"line 29".to_owned()), "{lines:?}");
    let silent = env.work(driver, "silent", "exit 7", |_| {});
    node.control.put(&silent);
    let report = node.control.wait_for_state(&silent, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    assert!(!report.details.contains_key("last_lines"), "{report:?}");
}

async fn a_job_that_ends_well_is_completed_and_stays_so(env: TestEnv, driver: Driver) {
    let mut node = env.node();
    let work = env.work(driver, "job", "exit 0", |spec| spec.kind = ServiceKind::Batch);
    node.control.put(&work);
    node.control.wait_for_state(&work, ReplicaState::Completed, None).await;
    let identity = env.identity(&work);
    node.stop_agent();
    node.control.clear_history();
    node.start_agent();
    node.control.wait_for_state(&work, ReplicaState::Completed, None).await;
    assert_eq!(env.identity(&work), identity, "a completed job was run again");
}

async fn a_command_that_does_not_exist_is_a_failed_start(env: TestEnv, driver: Driver) {
    let node = env.node();
    let work = env.work(driver, "web", "", |spec| spec.container.command = Some(vec!["/no/such/program".to_owned()]));
    node.control.put(&work);
    let report = node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::StartFailed)).await;
    assert!(
        matches!(&report.details["reason"], Detail::Text(reason) if reason.contains("no such file")
        || reason.contains("No such file")),
        "{report:?}"
    );
    // A failed start can be retried and stopped like any other attempt.
    let again = node.control.start_next_attempt(&work);
    node.control.wait_for_state(&again, ReplicaState::Failed, Some(RuntimeCode::StartFailed)).await;
    node.control.stop(&again);
    node.control.wait_stopped(&again).await;
}

async fn running_is_reported_when_the_check_passes_and_degraded_when_it_fails(env: TestEnv, driver: Driver) {
    let node = env.node();
    let script = "sleep 1; touch /tmp/$ID; trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let id = env.cluster_id.clone();
    let work = env.work(driver, "web", script, |spec| {
        spec.container.environment.insert("ID".to_owned(), Some(id.clone()));
        let mut check = check("test -e /tmp/$ID || { echo not there; false; }", 3);
        check.start_period = Duration::from_secs(20);
        spec.container.healthcheck = Some(check);
    });
    let began = Instant::now();
    node.control.put(&work);
    node.control.wait_running(&work).await;
    assert!(began.elapsed() >= Duration::from_millis(900), "it was running before its check could pass");
    remove_file(&env, &work, &format!("/tmp/{id}")).await;
    let report = node.control.wait_for_state(&work, ReplicaState::Degraded, Some(RuntimeCode::HealthcheckFailed)).await;
    assert_eq!(report.details["output"], Detail::Text("not there".to_owned()));
    assert_eq!(states(&node.control.history(&work.key)), ["starting", "running", "degraded"]);
    let again = node.control.start_next_attempt(&work);
    node.control.wait_running(&again).await;
    let _ = std::fs::remove_file(format!("/tmp/{id}"));
}

async fn remove_file(env: &TestEnv, work: &Work, path: &str) {
    match work.spec.driver {
        Driver::Exec => std::fs::remove_file(path).unwrap(),
        Driver::Docker | Driver::Microvm => drop(env.engine().docker(&["exec", &work.container_name(), "rm", path])),
    }
    tokio::task::yield_now().await;
}

async fn a_check_that_never_passes_is_degraded_and_never_running(env: TestEnv, driver: Driver) {
    let node = env.node();
    let work = env.work(driver, "web", SLEEP, |spec| spec.container.healthcheck = Some(check("exit 1", 2)));
    node.control.put(&work);
    node.control.wait_for_state(&work, ReplicaState::Degraded, Some(RuntimeCode::HealthcheckFailed)).await;
    assert_eq!(states(&node.control.history(&work.key)), ["starting", "degraded"]);
}

async fn a_replica_that_takes_too_much_memory_is_oom_killed(env: TestEnv, driver: Driver) {
    let node = env.node();
    // A string that keeps doubling soon exceeds the limit.
    let work = env.work(driver, "web", "x=0123456789abcdef; while :; do x=$x$x; done", |spec| {
        spec.resources.memory_limit_bytes = Some(24 << 20);
    });
    node.control.put(&work);
    node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::OomKilled)).await;
}

async fn a_replica_that_ignores_its_signal_is_killed_after_its_own_grace(env: TestEnv, driver: Driver) {
    let node = env.node();
    let work = env.work(driver, "web", "trap '' TERM; while :; do sleep 0.1; done", |spec| {
        spec.container.stop_grace_period = Some(Duration::from_secs(2));
    });
    node.control.put(&work);
    node.control.wait_running(&work).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let began = Instant::now();
    node.control.stop(&work);
    node.control.wait_stopped(&work).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(20), "{took:?}");
}

async fn the_stop_signal_of_the_manifest_reaches_the_process(env: TestEnv, driver: Driver) {
    let node = env.node();
    let folder = env.folder();
    let proof = folder.join("proof");
    let script = format!("trap 'echo usr1 > {0}; exit 0' USR1; while :; do sleep 0.1; done", proof.display());
    let work = env.work(driver, "web", &script, |spec| {
        spec.container.stop_signal = Some("SIGUSR1".to_owned());
        if driver == Driver::Docker {
            spec.mounts.push(bind(&folder));
        }
    });
    node.control.put(&work);
    node.control.wait_running(&work).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    node.control.stop(&work);
    node.control.wait_stopped(&work).await;
    assert_eq!(std::fs::read_to_string(proof).unwrap(), "usr1\n");
}

fn bind(folder: &std::path::Path) -> longshore_model::service::Mount {
    let path = folder.to_string_lossy().into_owned();
    longshore_model::service::Mount {
        source: longshore_model::service::MountSource::Bind(path.clone()),
        target: path,
        access: longshore_model::service::Access::ReadWrite,
        options: std::collections::BTreeMap::new(),
    }
}

async fn a_stop_overtakes_a_running_stop_with_less_grace(env: TestEnv, driver: Driver) {
    let node = env.node();
    let work = env.work(driver, "web", "trap '' TERM; while :; do sleep 0.1; done", |spec| {
        spec.container.stop_grace_period = Some(Duration::from_mins(5));
    });
    node.control.put(&work);
    node.control.wait_running(&work).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    node.control.stop(&work);
    node.control.wait_for_state(&work, ReplicaState::Draining, None).await;
    let now = longshore_model::Desired::Stop { grace: Some(Duration::from_secs(1)) };
    node.control.put(&Work { desired: now, ..work.clone() });
    node.control.wait_stopped(&work).await;
}

async fn a_published_replica_keeps_serving_for_the_deregistration_delay(env: TestEnv, driver: Driver) {
    let deregistration_delay = Duration::from_mins(1);
    let node = Node::start(AgentConfig { deregistration_delay, ..env.config() }, FakeControlPlane::default());
    let folder = env.folder();
    let script =
        format!("trap 'echo stopped >> {}/signals; exit 0' TERM; while :; do sleep 0.1; done", folder.display());
    let published = env.work(driver, "web", &script, |spec| {
        spec.container.stop_grace_period = Some(Duration::from_mins(5));
        let (target, protocol, mode) = (8080, Protocol::Tcp, PortMode::Ingress);
        spec.ports.push(Port { target, published: None, protocol, mode, host_ip: None });
        if driver == Driver::Docker {
            spec.mounts.push(bind(&folder));
        }
    });
    let unreachable = env.work(driver, "worker", SLEEP, |_| {});
    node.control.put_all(&[published.clone(), unreachable.clone()]);
    node.control.wait_running(&published).await;
    node.control.wait_running(&unreachable).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let began = Instant::now();
    node.control.stop(&published);
    node.control.stop(&unreachable);
    node.control.wait_for_state(&published, ReplicaState::Draining, None).await;
    node.control.wait_stopped(&unreachable).await;
    assert!(began.elapsed() < deregistration_delay, "a replica without ports was delayed");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!folder.join("signals").exists(), "it got its signal before the delay had passed");
    // A shorter grace period also shortens the delay.
    let now = longshore_model::Desired::Stop { grace: Some(Duration::from_secs(1)) };
    node.control.put(&Work { desired: now, ..published.clone() });
    node.control.wait_stopped(&published).await;
    assert!(began.elapsed() < deregistration_delay);
    assert_eq!(std::fs::read_to_string(folder.join("signals")).unwrap(), "stopped\n");
}

async fn a_changed_environment_is_a_new_container_and_the_same_work_again_is_not(env: TestEnv, driver: Driver) {
    let node = env.node();
    let work = env.work(driver, "web", SLEEP, |spec| {
        spec.container.environment.insert("COLOUR".to_owned(), Some("red".to_owned()));
    });
    node.control.put(&work);
    node.control.wait_running(&work).await;
    let identity = env.identity(&work);
    // A changed comment in the manifest gives a new revision with the same hash and generation.
    node.control.put(&Work { revision: longshore_model::RevisionNumber(2), ..work.clone() });
    let changed = next_generation(&work, |spec| {
        spec.container.environment.insert("COLOUR".to_owned(), Some("blue".to_owned()));
    });
    node.control.put(&changed);
    node.control.wait_running(&changed).await;
    assert_eq!(env.identity(&work), identity, "the old generation keeps running until its work says stop");
    node.control.stop(&work);
    node.control.wait_stopped(&work).await;
    assert_eq!(colour(&env, &changed), "blue");
}

fn colour(env: &TestEnv, work: &Work) -> String {
    match work.spec.driver {
        Driver::Exec => {
            let order = env.folder().join("agent/exec").join(work.container_name()).join("order.json");
            let text = std::fs::read_to_string(order).unwrap();
            let order: serde_json::Value = serde_json::from_str(&text).unwrap();
            let pairs = order["environment"].as_array().unwrap().clone();
            pairs.iter().find(|pair| pair[0] == "COLOUR").unwrap()[1].as_str().unwrap().to_owned()
        }
        Driver::Docker | Driver::Microvm => {
            env.engine().docker(&["exec", &work.container_name(), "sh", "-c", "echo $COLOUR"])
        }
    }
}

async fn hooks_run_after_the_start_and_before_the_stop(env: TestEnv, driver: Driver) {
    let node = env.node();
    let folder = env.folder();
    let hook = |word: &str| Hook {
        command: ["sh", "-c", &format!("echo {word} >> {}/turns", folder.display())].map(str::to_owned).to_vec(),
        ..Hook::default()
    };
    let work = env.work(driver, "web", SLEEP, |spec| {
        spec.container.post_start = vec![hook("started")];
        spec.container.pre_stop = vec![hook("stopping")];
        if driver == Driver::Docker {
            spec.mounts.push(bind(&folder));
        }
    });
    node.control.put(&work);
    node.control.wait_running(&work).await;
    assert_eq!(std::fs::read_to_string(folder.join("turns")).unwrap(), "started\n");
    node.control.stop(&work);
    node.control.wait_stopped(&work).await;
    assert_eq!(std::fs::read_to_string(folder.join("turns")).unwrap(), "started\nstopping\n");
}

async fn stopping_one_slot_leaves_the_others_running(env: TestEnv, driver: Driver) {
    let node = env.node();
    let works: Vec<Work> = (0..4).map(|index| in_slot(&env.work(driver, "web", SLEEP, |_| {}), index)).collect();
    node.control.put_all(&works);
    for work in &works {
        node.control.wait_running(work).await;
    }
    let before: Vec<String> = works[1..].iter().map(|work| env.identity(work)).collect();
    node.control.stop(&works[0]);
    node.control.wait_stopped(&works[0]).await;
    node.control.remove(&works[0].key);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let after: Vec<String> = works[1..].iter().map(|work| env.identity(work)).collect();
    assert_eq!(before, after);
    let ReplicaKey { slot, .. } = &works[0].key;
    assert!(matches!(slot, SlotKey::Index(_)));
    assert_eq!(states(&node.control.history(&works[0].key)).last(), Some(&"stopped"));
}
