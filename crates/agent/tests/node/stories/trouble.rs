//! What people and machines do to a node that nobody planned for.

use std::{path::Path, process::Command, time::Duration};

use longshore_model::{Driver, ReplicaState, RuntimeCode, Work};

use super::one_driver;
use crate::{
    control::Control,
    runner::{Needs, Story},
    world::{Ground, Node, in_slot},
};

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = one_driver![Docker:
        a_container_somebody_renames_is_still_the_replica,
        a_container_of_an_image_made_from_a_replica_is_its_makers,
        a_full_disk_under_the_agent_stops_nothing,
    ];
    stories.extend(one_driver![DockerAlone: an_engine_that_crashes_amid_starts_loses_nobody]);
    stories
}

const SLEEP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

fn web(ground: &Ground) -> Work {
    ground.work(Driver::Docker, "web", SLEEP, |_| {})
}

async fn a_container_somebody_renames_is_still_the_replica(ground: Ground) {
    let mut node = ground.node();
    let work = web(&ground);
    node.control.put(&work);
    node.control.runs(&work).await;
    let name = format!("mine-{}", ground.cluster_id);
    ground.engine().docker(&["rename", &work.container_name(), &name]);
    let identity = || ground.engine().inspect(&name, "{{.Id}} {{.State.StartedAt}}");
    let before = identity();
    node.lose_agent();
    node.control.forget_history();
    node.start_agent();
    node.control.runs(&work).await;
    node.control.settles().await;
    assert_eq!(identity(), before, "it was neither ended nor made anew");
    node.control.stop(&work);
    node.control.stopped(&work).await;
    assert_eq!(ground.containers(), [""; 0]);
}

async fn a_container_of_an_image_made_from_a_replica_is_its_makers(ground: Ground) {
    let engine = ground.engine();
    let mut node = ground.node();
    let mut work = web(&ground);
    node.control.put(&work);
    node.control.runs(&work).await;
    let image = format!("copy:{}", ground.cluster_id);
    engine.docker(&["commit", &work.container_name(), &image]);
    let copy = engine.docker(&["run", "-d", "--network", "none", &image]);
    let started = || engine.inspect(&copy, "{{.State.Running}} {{.State.StartedAt}}");
    let before = started();
    assert_eq!(ground.containers().len(), 2, "it has all the labels");
    node.lose_agent();
    node.start_agent();
    node.control.settles().await;
    work = node.control.again(&work);
    node.control.runs(&work).await;
    node.control.stop(&work);
    node.control.stopped(&work).await;
    node.control.is_done_with(&work.key);
    let swept = Node::start(node.config.clone(), Control::restored());
    swept.control.settles().await;
    assert_eq!(started(), before, "somebody's own container was ended");
    engine.docker(&["rm", "-f", &copy]);
}

async fn a_full_disk_under_the_agent_stops_nothing(ground: Ground) {
    let folder = ground.folder().join("agent");
    std::fs::create_dir_all(&folder).unwrap();
    let mounted = |arguments: &[&str]| Command::new("mount").args(arguments).arg(&folder).status().unwrap().success();
    assert!(mounted(&["-t", "tmpfs", "-o", "size=256k", "tmpfs"]));
    let mut node = ground.node();
    let first = web(&ground);
    node.control.put(&first);
    node.control.runs(&first).await;
    let before = ground.identity(&first);
    fill(&folder.join("ballast"));
    let second = in_slot(&first, 1);
    node.control.put(&second);
    node.control.runs(&second).await;
    node.lose_agent();
    node.control.forget_history();
    node.start_agent();
    node.control.runs(&first).await;
    node.control.runs(&second).await;
    assert_eq!(ground.identity(&first), before);
    std::fs::remove_file(folder.join("ballast")).unwrap();
    for work in [&first, &second] {
        node.control.stop(work);
        node.control.stopped(work).await;
    }
    assert_eq!(ground.containers(), [""; 0]);
    node.lose_agent();
    let _ = rustix::mount::unmount(&folder, rustix::mount::UnmountFlags::DETACH);
}

/// Writes until there is no room for a single byte more.
fn fill(path: &Path) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(path).unwrap();
    for size in [4096, 64, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
}

async fn an_engine_that_crashes_amid_starts_loses_nobody(ground: Ground) {
    let node = ground.node();
    let mut works: Vec<Work> = (0..6).map(|index| in_slot(&web(&ground), index)).collect();
    node.control.put_all(&works);
    node.control.runs(&works[0]).await;
    ground.engine().kill_daemon();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // It may need another start to get over what it was in the middle of.
    while ground.engine().launch().is_err() {}
    // What the crash ended is started again by the control plane; nothing else is, and nothing is left hanging.
    for work in &mut works {
        for _ in 0..3 {
            let up = node.control.runs_or_fails(work).await;
            if up == ReplicaState::Running && node.agent().last_seen(&work.key).unwrap().code.is_none() {
                break;
            }
            *work = node.control.again(work);
        }
        node.control.runs(work).await;
    }
    let ends = |work: &Work| {
        let seen = node.agent().last_seen(&work.key).unwrap();
        (seen.state, seen.code) == (ReplicaState::Running, None::<RuntimeCode>)
    };
    assert!(works.iter().all(ends));
    for work in &works {
        let filter = format!("label=longshore.slot=index:{}", slot_of(work));
        let cluster = format!("label=longshore.cluster={}", ground.cluster_id);
        let up = ground.engine().docker(&["ps", "-q", "--filter", &filter, "--filter", &cluster]);
        assert_eq!(up.lines().count(), 1, "{} runs once", work.key);
    }
}

fn slot_of(work: &Work) -> String {
    match &work.key.slot {
        longshore_model::SlotKey::Index(index) => index.0.to_string(),
        longshore_model::SlotKey::Node(node) => node.to_string(),
    }
}
