//! The folder in memory that secrets lie in: who makes it, who takes it over, and when it goes.

use std::{fs, path::Path, sync::Arc};

use longshore_model::{Driver, Work};

use super::{both, looking::secret};
use crate::{
    agent_process::{self, Orders},
    control::Control,
    runner::{Needs, Story},
    world::{Ground, Node, in_slot},
};

pub(crate) fn stories() -> Vec<Story> {
    both![
        a_killed_agent_leaves_secrets_where_they_are_and_the_next_goes_on_in_the_same_memory,
        an_agent_that_ends_lets_go_of_the_memory_once_nothing_is_in_it_and_the_next_makes_it_anew,
    ]
}

/// A replica that ends with 9 as soon as it cannot read its secret.
fn reader(ground: &Ground, driver: Driver, index: u32) -> Work {
    let place = match driver {
        Driver::Exec => "$LONGSHORE_FILE_DB_PASS",
        Driver::Docker | Driver::Microvm => "/run/secrets/db_pass",
    };
    let script =
        format!("trap 'exit 0' TERM; while :; do test \"$(cat {place})\" = hunter2 || exit 9; sleep 0.1; done");
    in_slot(&ground.work(driver, "web", &script, |spec| spec.container.files = vec![secret("db_pass")]), index)
}

/// How many times something is mounted on a folder. A second one would hide what lies in the first.
fn mounts_on(folder: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let places = table.lines().filter_map(|line| line.split(' ').nth(4));
    places.filter(|place| Path::new(place) == folder).count()
}

async fn a_killed_agent_leaves_secrets_where_they_are_and_the_next_goes_on_in_the_same_memory(
    ground: Ground,
    driver: Driver,
) {
    let control = Arc::new(Control::default());
    let orders = Orders::of(&ground, driver);
    let files = orders.files();
    fs::create_dir_all(&files).unwrap();
    fs::write(files.join("db_pass"), "hunter2").unwrap();
    agent_process::serve(Arc::clone(&control), &orders.socket);
    let (memory, works) = (ground.folder().join("agent/secrets"), [0, 1].map(|index| reader(&ground, driver, index)));
    control.put(&works[0]);
    let mut agent = agent_process::spawn(&orders);
    control.runs(&works[0]).await;
    let before = ground.identity(&works[0]);
    for _ in 0..2 {
        agent.kill().unwrap();
        agent.wait().unwrap();
        assert_eq!(mounts_on(&memory), 1);
        assert!(memory.join(works[0].container_name()).exists(), "its secret went with the agent");
        control.forget_history();
        agent = agent_process::spawn(&orders);
        control.runs(&works[0]).await;
    }
    control.put(&works[1]);
    control.runs(&works[1]).await;
    assert_eq!(mounts_on(&memory), 1, "the next agent takes over what is mounted");
    assert_eq!(ground.identity(&works[0]), before, "it could read its secret all the time");
    for work in &works {
        control.stop(work);
        control.stopped(work).await;
        assert!(!memory.join(work.container_name()).exists(), "its secret outlived it");
    }
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert_eq!(mounts_on(&memory), 1, "whoever is killed cleans up nothing");
    let mut last = Node::start(ground.config(), Control::restored());
    last.control.settles().await;
    last.lose_agent();
    assert_eq!(mounts_on(&memory), 0, "and the next one that ends well does");
}

async fn an_agent_that_ends_lets_go_of_the_memory_once_nothing_is_in_it_and_the_next_makes_it_anew(
    ground: Ground,
    driver: Driver,
) {
    let mut node = ground.node();
    node.control.put_file("db_pass", b"hunter2");
    let (memory, works) = (ground.folder().join("agent/secrets"), [0, 1].map(|index| reader(&ground, driver, index)));
    assert_eq!(mounts_on(&memory), 0, "before anybody needs it there is none");
    node.control.put(&works[0]);
    node.control.runs(&works[0]).await;
    let before = ground.identity(&works[0]);
    node.lose_agent();
    assert_eq!(mounts_on(&memory), 1, "a replica still reads there");
    node.control.forget_history();
    node.start_agent();
    node.control.runs(&works[0]).await;
    assert_eq!(ground.identity(&works[0]), before);
    node.control.stop(&works[0]);
    node.control.stopped(&works[0]).await;
    node.lose_agent();
    assert_eq!(mounts_on(&memory), 0);
    assert_eq!(fs::read_dir(&memory).unwrap().count(), 0, "something of it was on disk");
    node.start_agent();
    node.control.put(&works[1]);
    node.control.runs(&works[1]).await;
    assert_eq!(mounts_on(&memory), 1);
}
