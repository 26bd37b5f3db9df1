//! Images that come late, or not at all for a while.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use longshore_model::{Driver, ReplicaState, RuntimeCode, Sighting, Work, container::PullPolicy, replica::Detail};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::one_driver;
use crate::{
    agent_process::{self, Orders},
    control::Control,
    engine::{IMAGE, Protected, Registry},
    runner::{Needs, Story},
    world::{Ground, in_slot},
};

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = one_driver![Docker:
        an_image_that_is_missing_is_pulled_once_its_registry_is_up,
        a_registry_that_wants_a_password_gets_the_clusters,
        an_image_that_may_not_be_pulled_is_a_failed_start,
        a_pull_that_is_no_longer_wanted_ends,
        a_slow_pull_shows_how_far_it_is,
        a_pull_whose_agent_is_killed_is_taken_up_by_the_next_and_nothing_is_doubled,
    ];
    stories.extend(one_driver![DockerAlone: a_stuck_pull_does_not_hold_up_fifty_others]);
    stories
}

const SLEEP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

/// A free port on the host's side.
fn free(ground: &Ground) -> SocketAddr {
    std::net::TcpListener::bind((ground.engine().host, 0)).unwrap().local_addr().unwrap()
}

/// Puts the image into a registry and takes it off the engine.
fn publish(ground: &Ground, reference: &str) {
    let engine = ground.engine();
    engine.docker(&["tag", IMAGE, reference]);
    engine.docker(&["push", reference]);
    engine.docker(&["rmi", reference]);
}

fn reason(seen: &Sighting) -> &str {
    match &seen.details["reason"] {
        Detail::Text(reason) => reason,
        other => panic!("{other:?} is no text"),
    }
}

fn from(ground: &Ground, image: &str) -> Work {
    ground.work(Driver::Docker, "web", SLEEP, |spec| image.clone_into(&mut spec.container.image))
}

async fn pull_failed(ground: &Ground, image: &str) -> (crate::world::Node, Work, Sighting) {
    let node = ground.node();
    let work = from(ground, image);
    node.control.put(&work);
    let seen = node.control.hears(&work, ReplicaState::Pending, Some(RuntimeCode::ImagePullFailed)).await;
    assert!(reason(&seen).starts_with(image), "{seen:?}");
    (node, work, seen)
}

async fn an_image_that_is_missing_is_pulled_once_its_registry_is_up(ground: Ground) {
    let address = free(&ground).to_string();
    let image = format!("{address}/web:1");
    let (node, work, seen) = pull_failed(&ground, &image).await;
    assert!(reason(&seen).contains("refused"), "{seen:?}");
    // The registry comes up, but does not know the tag.
    let registry = Registry::start(&ground.folder().join("registry"), &address, Protected::No);
    let unknown = |seen: &Sighting| seen.code == Some(RuntimeCode::ImagePullFailed) && reason(seen).contains("unknown");
    while !node.control.history(&work.key).iter().any(unknown) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    publish(&ground, &image);
    node.control.runs(&work).await;
    let codes: Vec<_> = node.control.history(&work.key).iter().filter_map(|seen| seen.code).collect();
    assert!(codes.starts_with(&[RuntimeCode::Pulling, RuntimeCode::ImagePullFailed]), "{codes:?}");
    let tries =
        node.control.history(&work.key).iter().filter_map(|seen| seen.details.get("tries").cloned()).next_back();
    assert!(matches!(tries, Some(Detail::Number(2..))), "{tries:?}");
    drop(registry);
}

async fn a_registry_that_wants_a_password_gets_the_clusters(ground: Ground) {
    let address = free(&ground).to_string();
    let image = format!("{address}/secret:1");
    let _registry = Registry::start(&ground.folder().join("registry"), &address, Protected::Yes);
    let engine = ground.engine();
    let folder = ground.folder().join("login");
    let config = folder.to_string_lossy().into_owned();
    engine.docker(&["--config", &config, "login", &address, "--username", "ann", "--password", "sesame"]);
    engine.docker(&["tag", IMAGE, &image]);
    engine.docker(&["--config", &config, "push", &image]);
    engine.docker(&["rmi", &image]);
    let node = ground.node();
    node.control.set_login("ann", "wrong");
    let work = from(&ground, &image);
    node.control.put(&work);
    let seen = node.control.hears(&work, ReplicaState::Pending, Some(RuntimeCode::ImagePullFailed)).await;
    assert!(!format!("{seen:?}").contains("wrong"), "{seen:?}");
    node.control.set_login("ann", "sesame");
    node.control.runs(&work).await;
}

async fn an_image_that_may_not_be_pulled_is_a_failed_start(ground: Ground) {
    let node = ground.node();
    let mut work = from(&ground, "nobody/has-this:1");
    let mut spec = (*work.spec).clone();
    spec.container.pull_policy = Some(PullPolicy::Never);
    work.spec = std::sync::Arc::new(spec);
    node.control.put(&work);
    let seen = node.control.hears(&work, ReplicaState::Failed, Some(RuntimeCode::StartFailed)).await;
    assert!(reason(&seen).contains("pull_policy is never"), "{seen:?}");
}

/// A registry that takes every connection and never says a word.
async fn silent_registry(ground: &Ground) -> String {
    let listener = TcpListener::bind((ground.engine().host, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok(connection) = listener.accept().await {
            held.push(connection);
        }
    });
    address.to_string()
}

async fn a_pull_that_is_no_longer_wanted_ends(ground: Ground) {
    let registry = silent_registry(&ground).await;
    let node = ground.node();
    let work = from(&ground, &format!("{registry}/web:1"));
    node.control.put(&work);
    node.control.hears(&work, ReplicaState::Pulling, Some(RuntimeCode::Pulling)).await;
    let began = Instant::now();
    node.control.stop(&work);
    node.control.stopped(&work).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(ground.containers(), [""; 0]);
}

/// Hands bytes on to the registry, and its answers back so slowly that a person could read along.
async fn slow_line(ground: &Ground, registry: String) -> String {
    let listener = TcpListener::bind((ground.engine().host, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&registry).await.unwrap();
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                (client.into_split(), server.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            tokio::spawn(async move {
                let mut chunk = vec![0; 16 * 1024];
                while let Ok(count @ 1..) = from_server.read(&mut chunk).await {
                    if to_client.write_all(&chunk[..count]).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(150)).await;
                }
            });
        }
    });
    address.to_string()
}

async fn a_slow_pull_shows_how_far_it_is(ground: Ground) {
    let address = free(&ground).to_string();
    let _registry = Registry::start(&ground.folder().join("registry"), &address, Protected::No);
    // An image of its own: layers the engine has are not fetched again.
    let engine = ground.engine();
    let layer = ground.folder().join("layer.tar");
    let noise = ground.folder().join("noise");
    std::fs::write(&noise, noise_of(1 << 20)).unwrap();
    let paths = [&layer, &ground.folder()].map(|path| path.to_string_lossy().into_owned());
    let tar = std::process::Command::new("tar").args(["-C", &paths[1], "-cf", &paths[0], "noise"]).status().unwrap();
    assert!(tar.success());
    let direct = format!("{address}/slow:1");
    engine.docker(&["import", &paths[0], &direct]);
    engine.docker(&["push", &direct]);
    engine.docker(&["rmi", &direct]);
    let line = slow_line(&ground, address).await;
    let node = ground.node();
    let work = from(&ground, &format!("{line}/slow:1"));
    node.control.put(&work);
    // It has no shell, so it cannot start; that it tried means that the image has come.
    node.control.hears(&work, ReplicaState::Failed, Some(RuntimeCode::StartFailed)).await;
    let moved = |seen: &Sighting| matches!(seen.details.get("done_bytes"), Some(Detail::Number(1..)));
    let history = node.control.history(&work.key);
    assert!(history.iter().any(|seen| seen.code == Some(RuntimeCode::Pulling) && moved(seen)), "{history:#?}");
}

/// The image with noise in its only layer, so that the engine has nothing of it.
fn publish_bulky(ground: &Ground, reference: &str) {
    let (engine, folder) = (ground.engine(), ground.folder());
    std::fs::write(folder.join("noise"), noise_of(1 << 19)).unwrap();
    let paths = [folder.join("noise"), folder.join("root.tar")].map(|path| path.to_string_lossy().into_owned());
    let scratch = engine.docker(&["create", "--network", "none", IMAGE, "sh"]);
    engine.docker(&["cp", &paths[0], &format!("{scratch}:/noise")]);
    engine.docker(&["export", "-o", &paths[1], &scratch]);
    engine.docker(&["rm", &scratch]);
    engine.docker(&["import", &paths[1], reference]);
    engine.docker(&["push", reference]);
    engine.docker(&["rmi", reference]);
}

async fn a_pull_whose_agent_is_killed_is_taken_up_by_the_next_and_nothing_is_doubled(ground: Ground) {
    let address = free(&ground).to_string();
    let _registry = Registry::start(&ground.folder().join("registry"), &address, Protected::No);
    publish_bulky(&ground, &format!("{address}/bulky:1"));
    let line = slow_line(&ground, address).await;
    let first = from(&ground, &format!("{line}/bulky:1"));
    let works = [first.clone(), in_slot(&first, 1)];
    let control = Arc::new(Control::default());
    let orders = Orders::of(&ground, Driver::Docker);
    agent_process::serve(Arc::clone(&control), &orders.socket);
    control.put_all(&works);
    let mut agent = agent_process::spawn(&orders);
    for _ in 0..2 {
        control.hears(&first, ReplicaState::Pulling, Some(RuntimeCode::Pulling)).await;
        // Amid the layer.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(ground.containers(), [""; 0], "it was too fast to be killed amid the pull");
        agent.kill().unwrap();
        agent.wait().unwrap();
        control.forget_history();
        agent = agent_process::spawn(&orders);
    }
    for work in &works {
        control.runs(work).await;
        let history = control.history(&work.key);
        let failed = |seen: &Sighting| matches!(seen.state, ReplicaState::Failed | ReplicaState::Pending);
        assert!(!history.iter().any(failed), "{history:#?}");
        assert!(history.iter().any(|seen| seen.code == Some(RuntimeCode::Pulling)), "{history:#?}");
    }
    assert_eq!(ground.containers().len(), 2);
    for work in &works {
        control.stop(work);
        control.stopped(work).await;
    }
    agent.kill().unwrap();
    agent.wait().unwrap();
}

/// Bytes that cannot be packed.
fn noise_of(length: usize) -> Vec<u8> {
    let mut state: u64 = 88_172_645_463_325_252;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

async fn a_stuck_pull_does_not_hold_up_fifty_others(ground: Ground) {
    let registry = silent_registry(&ground).await;
    let node = ground.node();
    let stuck = from(&ground, &format!("{registry}/web:1"));
    node.control.put(&stuck);
    node.control.hears(&stuck, ReplicaState::Pulling, Some(RuntimeCode::Pulling)).await;
    let others: Vec<Work> = (1..=50).map(|index| in_slot(&from(&ground, IMAGE), index)).collect();
    let began = Instant::now();
    node.control.put_all(&others);
    for work in &others {
        node.control.runs(work).await;
    }
    println!("     fifty replicas beside a stuck pull ran after {:.1} s", began.elapsed().as_secs_f32());
    // The engine itself may lose patience and be asked again; what it never does is come any further.
    let stuck = node.control.history(&stuck.key);
    assert!(stuck.iter().all(|seen| matches!(seen.state, ReplicaState::Pulling | ReplicaState::Pending)), "{stuck:#?}");
}
