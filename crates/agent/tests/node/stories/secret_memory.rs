//! The tmpfs for secrets: when it is mounted, reused by the next agent, and unmounted.

use std::{fs, path::Path, sync::Arc};

use longshore_model::{Driver, Work};

use super::{both, logs_and_exec::secret};
use crate::{
    agent_process::{self, AgentArgs},
    fake_control_plane::FakeControlPlane,
    runner::{Needs, Story},
    test_node::{Node, TestEnv, in_slot},
};

pub(crate) fn stories() -> Vec<Story> {
    both![
        a_killed_agent_leaves_the_secrets_tmpfs_mounted_and_the_next_agent_reuses_it,
        an_agent_that_shuts_down_unmounts_an_empty_secrets_tmpfs_and_the_next_mounts_it_again,
    ]
}

/// A replica that exits with code 9 as soon as it cannot read its secret.
fn reader(env: &TestEnv, driver: Driver, index: u32) -> Work {
    let place = match driver {
        Driver::Exec => "$LONGSHORE_FILE_DB_PASS",
        Driver::Docker | Driver::Microvm => "/run/secrets/db_pass",
    };
    let script =
        format!("trap 'exit 0' TERM; while :; do test \"$(cat {place})\" = hunter2 || exit 9; sleep 0.1; done");
    in_slot(&env.work(driver, "web", &script, |spec| spec.container.files = vec![secret("db_pass")]), index)
}

/// How many mounts there are on a folder. A second one would hide the files in the first.
fn mounts_on(folder: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let places = table.lines().filter_map(|line| line.split(' ').nth(4));
    places.filter(|place| Path::new(place) == folder).count()
}

async fn a_killed_agent_leaves_the_secrets_tmpfs_mounted_and_the_next_agent_reuses_it(env: TestEnv, driver: Driver) {
    let control = Arc::new(FakeControlPlane::default());
    let args = AgentArgs::of(&env, driver);
    let files = args.files();
    fs::create_dir_all(&files).unwrap();
    fs::write(files.join("db_pass"), "hunter2").unwrap();
    agent_process::serve(Arc::clone(&control), &args.socket);
    let (memory, works) = (env.folder().join("agent/secrets"), [0, 1].map(|index| reader(&env, driver, index)));
    control.put(&works[0]);
    let mut agent = agent_process::spawn(&args);
    control.wait_running(&works[0]).await;
    let before = env.identity(&works[0]);
    for _ in 0..2 {
        agent.kill().unwrap();
        agent.wait().unwrap();
        assert_eq!(mounts_on(&memory), 1);
        assert!(memory.join(works[0].container_name()).exists(), "its secret was removed with the agent");
        control.clear_history();
        agent = agent_process::spawn(&args);
        control.wait_running(&works[0]).await;
    }
    control.put(&works[1]);
    control.wait_running(&works[1]).await;
    assert_eq!(mounts_on(&memory), 1, "the next agent mounted a second tmpfs");
    assert_eq!(env.identity(&works[0]), before, "it was restarted, so it could not read its secret");
    for work in &works {
        control.stop(work);
        control.wait_stopped(work).await;
        assert!(!memory.join(work.container_name()).exists(), "its secret was not removed");
    }
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert_eq!(mounts_on(&memory), 1, "a killed agent cleans up nothing");
    let mut last = Node::start(env.config(), FakeControlPlane::restored());
    last.control.wait_settled().await;
    last.stop_agent();
    assert_eq!(mounts_on(&memory), 0, "an agent that shuts down unmounts it");
}

async fn an_agent_that_shuts_down_unmounts_an_empty_secrets_tmpfs_and_the_next_mounts_it_again(
    env: TestEnv,
    driver: Driver,
) {
    let mut node = env.node();
    node.control.put_file("db_pass", b"hunter2");
    let (memory, works) = (env.folder().join("agent/secrets"), [0, 1].map(|index| reader(&env, driver, index)));
    assert_eq!(mounts_on(&memory), 0, "it is mounted before it is needed");
    node.control.put(&works[0]);
    node.control.wait_running(&works[0]).await;
    let before = env.identity(&works[0]);
    node.stop_agent();
    assert_eq!(mounts_on(&memory), 1, "a replica still uses it");
    node.control.clear_history();
    node.start_agent();
    node.control.wait_running(&works[0]).await;
    assert_eq!(env.identity(&works[0]), before);
    node.control.stop(&works[0]);
    node.control.wait_stopped(&works[0]).await;
    node.stop_agent();
    assert_eq!(mounts_on(&memory), 0);
    assert_eq!(fs::read_dir(&memory).unwrap().count(), 0, "a secret was written to disk");
    node.start_agent();
    node.control.put(&works[1]);
    node.control.wait_running(&works[1]).await;
    assert_eq!(mounts_on(&memory), 1);
}
