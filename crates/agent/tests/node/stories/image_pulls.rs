//! Image pulls that are slow, fail or hang.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use longshore_model::{Driver, ReplicaReport, ReplicaState, RuntimeCode, Work, container::PullPolicy, replica::Detail};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::one_driver;
use crate::{
    agent_process::{self, AgentArgs},
    docker_engine::{IMAGE, Registry, RegistryAuth},
    fake_control_plane::FakeControlPlane,
    runner::{Needs, Story},
    test_node::{TestEnv, in_slot},
};

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = one_driver![Docker:
        an_image_that_is_missing_is_pulled_once_its_registry_is_up,
        a_registry_with_a_password_gets_the_clusters_credentials,
        an_image_that_may_not_be_pulled_is_a_failed_start,
        a_pull_that_is_no_longer_needed_is_cancelled,
        a_slow_pull_reports_its_progress,
        a_pull_of_a_killed_agent_is_resumed_by_the_next_without_duplicates,
    ];
    stories.extend(one_driver![DockerAlone: a_stuck_pull_does_not_delay_fifty_others]);
    stories
}

const SLEEP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

/// A free port on the host's side of the engine's network.
fn free(env: &TestEnv) -> SocketAddr {
    std::net::TcpListener::bind((env.engine().host, 0)).unwrap().local_addr().unwrap()
}

/// Pushes the image to a registry and removes it from the engine.
fn publish(env: &TestEnv, reference: &str) {
    let engine = env.engine();
    engine.docker(&["tag", IMAGE, reference]);
    engine.docker(&["push", reference]);
    engine.docker(&["rmi", reference]);
}

fn reason(report: &ReplicaReport) -> &str {
    match &report.details["reason"] {
        Detail::Text(reason) => reason,
        other => panic!("{other:?} is not a text"),
    }
}

fn from(env: &TestEnv, image: &str) -> Work {
    env.work(Driver::Docker, "web", SLEEP, |spec| image.clone_into(&mut spec.container.image))
}

async fn pull_failed(env: &TestEnv, image: &str) -> (crate::test_node::Node, Work, ReplicaReport) {
    let node = env.node();
    let work = from(env, image);
    node.control.put(&work);
    let report = node.control.wait_for_state(&work, ReplicaState::Pending, Some(RuntimeCode::ImagePullFailed)).await;
    assert!(reason(&report).starts_with(image), "{report:?}");
    (node, work, report)
}

async fn an_image_that_is_missing_is_pulled_once_its_registry_is_up(env: TestEnv) {
    let address = free(&env).to_string();
    let image = format!("{address}/web:1");
    let (node, work, report) = pull_failed(&env, &image).await;
    assert!(reason(&report).contains("refused"), "{report:?}");
    // The registry starts, but does not have the tag yet.
    let registry = Registry::start(&env.folder().join("registry"), &address, RegistryAuth::Open);
    let unknown = |report: &ReplicaReport| {
        report.code == Some(RuntimeCode::ImagePullFailed) && reason(report).contains("unknown")
    };
    while !node.control.history(&work.key).iter().any(unknown) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    publish(&env, &image);
    node.control.wait_running(&work).await;
    let codes: Vec<_> = node.control.history(&work.key).iter().filter_map(|report| report.code).collect();
    assert!(codes.starts_with(&[RuntimeCode::Pulling, RuntimeCode::ImagePullFailed]), "{codes:?}");
    let tries =
        node.control.history(&work.key).iter().filter_map(|report| report.details.get("tries").cloned()).next_back();
    assert!(matches!(tries, Some(Detail::Number(2..))), "{tries:?}");
    drop(registry);
}

async fn a_registry_with_a_password_gets_the_clusters_credentials(env: TestEnv) {
    let address = free(&env).to_string();
    let image = format!("{address}/secret:1");
    let _registry = Registry::start(&env.folder().join("registry"), &address, RegistryAuth::Password);
    let engine = env.engine();
    let folder = env.folder().join("login");
    let config = folder.to_string_lossy().into_owned();
    engine.docker(&["--config", &config, "login", &address, "--username", "ann", "--password", "sesame"]);
    engine.docker(&["tag", IMAGE, &image]);
    engine.docker(&["--config", &config, "push", &image]);
    engine.docker(&["rmi", &image]);
    let node = env.node();
    node.control.set_login("ann", "wrong");
    let work = from(&env, &image);
    node.control.put(&work);
    let report = node.control.wait_for_state(&work, ReplicaState::Pending, Some(RuntimeCode::ImagePullFailed)).await;
    assert!(!format!("{report:?}").contains("wrong"), "{report:?}");
    node.control.set_login("ann", "sesame");
    node.control.wait_running(&work).await;
}

async fn an_image_that_may_not_be_pulled_is_a_failed_start(env: TestEnv) {
    let node = env.node();
    let mut work = from(&env, "nobody/has-this:1");
    let mut spec = (*work.spec).clone();
    spec.container.pull_policy = Some(PullPolicy::Never);
    work.spec = std::sync::Arc::new(spec);
    node.control.put(&work);
    let report = node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::StartFailed)).await;
    assert!(reason(&report).contains("pull_policy is never"), "{report:?}");
}

/// A registry that accepts every connection and never answers.
async fn silent_registry(env: &TestEnv) -> String {
    let listener = TcpListener::bind((env.engine().host, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok(connection) = listener.accept().await {
            held.push(connection);
        }
    });
    address.to_string()
}

async fn a_pull_that_is_no_longer_needed_is_cancelled(env: TestEnv) {
    let registry = silent_registry(&env).await;
    let node = env.node();
    let work = from(&env, &format!("{registry}/web:1"));
    node.control.put(&work);
    node.control.wait_for_state(&work, ReplicaState::Pulling, Some(RuntimeCode::Pulling)).await;
    let began = Instant::now();
    node.control.stop(&work);
    node.control.wait_stopped(&work).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(env.containers(), [""; 0]);
}

/// A proxy that forwards the registry's answers slowly.
async fn slow_proxy(env: &TestEnv, registry: String) -> String {
    let listener = TcpListener::bind((env.engine().host, 0)).await.unwrap();
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

async fn a_slow_pull_reports_its_progress(env: TestEnv) {
    let address = free(&env).to_string();
    let _registry = Registry::start(&env.folder().join("registry"), &address, RegistryAuth::Open);
    // An image of its own, because layers that the engine has are not pulled again.
    let engine = env.engine();
    let layer = env.folder().join("layer.tar");
    let noise = env.folder().join("noise");
    std::fs::write(&noise, noise_of(1 << 20)).unwrap();
    let paths = [&layer, &env.folder()].map(|path| path.to_string_lossy().into_owned());
    let tar = std::process::Command::new("tar").args(["-C", &paths[1], "-cf", &paths[0], "noise"]).status().unwrap();
    assert!(tar.success());
    let direct = format!("{address}/slow:1");
    engine.docker(&["import", &paths[0], &direct]);
    engine.docker(&["push", &direct]);
    engine.docker(&["rmi", &direct]);
    let proxy = slow_proxy(&env, address).await;
    let node = env.node();
    let work = from(&env, &format!("{proxy}/slow:1"));
    node.control.put(&work);
    // The image has no shell, so a failed start means that it was pulled.
    node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::StartFailed)).await;
    let moved = |report: &ReplicaReport| matches!(report.details.get("done_bytes"), Some(Detail::Number(1..)));
    let history = node.control.history(&work.key);
    assert!(history.iter().any(|report| report.code == Some(RuntimeCode::Pulling) && moved(report)), "{history:#?}");
}

/// Publishes an image whose only layer the engine does not have.
fn publish_bulky(env: &TestEnv, reference: &str) {
    let (engine, folder) = (env.engine(), env.folder());
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

async fn a_pull_of_a_killed_agent_is_resumed_by_the_next_without_duplicates(env: TestEnv) {
    let address = free(&env).to_string();
    let _registry = Registry::start(&env.folder().join("registry"), &address, RegistryAuth::Open);
    publish_bulky(&env, &format!("{address}/bulky:1"));
    let proxy = slow_proxy(&env, address).await;
    let first = from(&env, &format!("{proxy}/bulky:1"));
    let works = [first.clone(), in_slot(&first, 1)];
    let control = Arc::new(FakeControlPlane::default());
    let args = AgentArgs::of(&env, Driver::Docker);
    agent_process::serve(Arc::clone(&control), &args.socket);
    control.put_all(&works);
    let mut agent = agent_process::spawn(&args);
    for _ in 0..2 {
        control.wait_for_state(&first, ReplicaState::Pulling, Some(RuntimeCode::Pulling)).await;
        // In the middle of the layer.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(env.containers(), [""; 0], "the pull ended before the agent was killed");
        agent.kill().unwrap();
        agent.wait().unwrap();
        control.clear_history();
        agent = agent_process::spawn(&args);
    }
    for work in &works {
        control.wait_running(work).await;
        let history = control.history(&work.key);
        let failed = |report: &ReplicaReport| matches!(report.state, ReplicaState::Failed | ReplicaState::Pending);
        assert!(!history.iter().any(failed), "{history:#?}");
        assert!(history.iter().any(|report| report.code == Some(RuntimeCode::Pulling)), "{history:#?}");
    }
    assert_eq!(env.containers().len(), 2);
    for work in &works {
        control.stop(work);
        control.wait_stopped(work).await;
    }
    agent.kill().unwrap();
    agent.wait().unwrap();
}

/// Bytes that do not compress.
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

async fn a_stuck_pull_does_not_delay_fifty_others(env: TestEnv) {
    let registry = silent_registry(&env).await;
    let node = env.node();
    let stuck = from(&env, &format!("{registry}/web:1"));
    node.control.put(&stuck);
    node.control.wait_for_state(&stuck, ReplicaState::Pulling, Some(RuntimeCode::Pulling)).await;
    let others: Vec<Work> = (1..=50).map(|index| in_slot(&from(&env, IMAGE), index)).collect();
    let began = Instant::now();
    node.control.put_all(&others);
    for work in &others {
        node.control.wait_running(work).await;
    }
    println!("     fifty replicas next to a stuck pull ran after {:.1} s", began.elapsed().as_secs_f32());
    // The engine may give up and be asked again; the pull never gets any further.
    let stuck = node.control.history(&stuck.key);
    assert!(
        stuck.iter().all(|report| matches!(report.state, ReplicaState::Pulling | ReplicaState::Pending)),
        "{stuck:#?}"
    );
}
