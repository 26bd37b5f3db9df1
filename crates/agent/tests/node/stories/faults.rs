//! External interference with a node: renamed and copied containers, full disks, crashes of the engine.

use std::{path::Path, process::Command, time::Duration};

use longshore_model::{Driver, ReplicaState, RuntimeCode, Work};

use super::one_driver;
use crate::{
    fake_control_plane::FakeControlPlane,
    runner::{Needs, Story},
    test_node::{Node, TestEnv, in_slot},
};

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = one_driver![Docker:
        a_renamed_container_is_still_the_replica,
        a_container_of_an_image_committed_from_a_replica_is_not_ours,
        a_full_disk_under_the_agent_stops_nothing,
    ];
    stories.extend(one_driver![DockerAlone: an_engine_crash_during_starts_loses_no_replica]);
    stories
}

const SLEEP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

fn web(env: &TestEnv) -> Work {
    env.work(Driver::Docker, "web", SLEEP, |_| {})
}

async fn a_renamed_container_is_still_the_replica(env: TestEnv) {
    let mut node = env.node();
    let work = web(&env);
    node.control.put(&work);
    node.control.wait_running(&work).await;
    let name = format!("mine-{}", env.cluster_id);
    env.engine().docker(&["rename", &work.container_name(), &name]);
    let identity = || env.engine().inspect(&name, "{{.Id}} {{.State.StartedAt}}");
    let before = identity();
    node.stop_agent();
    node.control.clear_history();
    node.start_agent();
    node.control.wait_running(&work).await;
    node.control.wait_settled().await;
    assert_eq!(identity(), before, "it was stopped or created again");
    node.control.stop(&work);
    node.control.wait_stopped(&work).await;
    assert_eq!(env.containers(), [""; 0]);
}

async fn a_container_of_an_image_committed_from_a_replica_is_not_ours(env: TestEnv) {
    let engine = env.engine();
    let mut node = env.node();
    let mut work = web(&env);
    node.control.put(&work);
    node.control.wait_running(&work).await;
    let image = format!("copy:{}", env.cluster_id);
    engine.docker(&["commit", &work.container_name(), &image]);
    let copy = engine.docker(&["run", "-d", "--network", "none", &image]);
    let started = || engine.inspect(&copy, "{{.State.Running}} {{.State.StartedAt}}");
    let before = started();
    assert_eq!(env.containers().len(), 2, "the copy has all the labels");
    node.stop_agent();
    node.start_agent();
    node.control.wait_settled().await;
    work = node.control.start_next_attempt(&work);
    node.control.wait_running(&work).await;
    node.control.stop(&work);
    node.control.wait_stopped(&work).await;
    node.control.remove(&work.key);
    let other = Node::start(node.config.clone(), FakeControlPlane::restored());
    other.control.wait_settled().await;
    assert_eq!(started(), before, "the user's container was stopped");
    engine.docker(&["rm", "-f", &copy]);
}

async fn a_full_disk_under_the_agent_stops_nothing(env: TestEnv) {
    let folder = env.folder().join("agent");
    std::fs::create_dir_all(&folder).unwrap();
    let mounted = |arguments: &[&str]| Command::new("mount").args(arguments).arg(&folder).status().unwrap().success();
    assert!(mounted(&["-t", "tmpfs", "-o", "size=256k", "tmpfs"]));
    let mut node = env.node();
    let first = web(&env);
    node.control.put(&first);
    node.control.wait_running(&first).await;
    let before = env.identity(&first);
    fill(&folder.join("ballast"));
    let second = in_slot(&first, 1);
    node.control.put(&second);
    node.control.wait_running(&second).await;
    node.stop_agent();
    node.control.clear_history();
    node.start_agent();
    node.control.wait_running(&first).await;
    node.control.wait_running(&second).await;
    assert_eq!(env.identity(&first), before);
    std::fs::remove_file(folder.join("ballast")).unwrap();
    for work in [&first, &second] {
        node.control.stop(work);
        node.control.wait_stopped(work).await;
    }
    assert_eq!(env.containers(), [""; 0]);
    node.stop_agent();
    let _ = rustix::mount::unmount(&folder, rustix::mount::UnmountFlags::DETACH);
}

/// Writes to the file until the disk is full.
fn fill(path: &Path) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(path).unwrap();
    for size in [4096, 64, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
}

async fn an_engine_crash_during_starts_loses_no_replica(env: TestEnv) {
    let node = env.node();
    let mut works: Vec<Work> = (0..6).map(|index| in_slot(&web(&env), index)).collect();
    node.control.put_all(&works);
    node.control.wait_running(&works[0]).await;
    env.engine().kill_daemon();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // It may need a second start to recover from the crash.
    while env.engine().launch().is_err() {}
    // The control plane starts the next attempt of what the crash has ended; everything else keeps running.
    for work in &mut works {
        for _ in 0..3 {
            let up = node.control.wait_running_or_failed(work).await;
            if up == ReplicaState::Running && node.agent().last_report(&work.key).unwrap().code.is_none() {
                break;
            }
            *work = node.control.start_next_attempt(work);
        }
        node.control.wait_running(work).await;
    }
    let is_running = |work: &Work| {
        let report = node.agent().last_report(&work.key).unwrap();
        (report.state, report.code) == (ReplicaState::Running, None::<RuntimeCode>)
    };
    assert!(works.iter().all(is_running));
    for work in &works {
        let filter = format!("label=longshore.slot=index:{}", slot_of(work));
        let cluster = format!("label=longshore.cluster={}", env.cluster_id);
        let up = env.engine().docker(&["ps", "-q", "--filter", &filter, "--filter", &cluster]);
        assert_eq!(up.lines().count(), 1, "{} runs once", work.key);
    }
}

fn slot_of(work: &Work) -> String {
    match &work.key.slot {
        longshore_model::SlotKey::Index(index) => index.0.to_string(),
        longshore_model::SlotKey::Node(node) => node.to_string(),
    }
}
