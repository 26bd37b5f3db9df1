//! Stories of the Docker driver only, with what users and restarts do to an engine.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use longshore_model::{
    Driver, ReplicaReport, ReplicaState, RuntimeCode, Work,
    agent_protocol::CleanupState,
    container::{EngineDeviceRequest, Switch, Ulimit},
    replica::Detail,
    service::{Access, Mount, MountSource, Port, PortMode, Protocol},
    volume::Sharing,
};

use super::one_driver;
use crate::{
    docker_engine::IMAGE,
    fake_control_plane::FakeControlPlane,
    runner::{Needs, Story},
    test_node::{Node, TestEnv, in_slot, next_generation},
};

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = one_driver![Docker:
        every_setting_of_the_manifest_reaches_the_engine,
        volumes_are_named_after_their_deployment_and_outlive_the_replica,
        a_missing_host_path_is_created_unless_the_manifest_forbids_it,
        replicas_of_a_deployment_reach_each_other_by_name,
        a_replica_that_shares_anothers_network_waits_for_it,
        a_published_port_answers_on_the_node,
        an_externally_removed_or_stopped_container_is_a_failure_and_the_next_attempt_runs,
        nothing_of_another_cluster_or_of_the_user_is_touched_when_names_collide,
        volumes_and_networks_of_the_user_with_our_names_stay_the_users,
        the_network_of_a_deployment_goes_with_its_last_replica,
        nodes_that_share_an_engine_share_the_networks_of_a_deployment_and_heal_duplicates,
        the_fingerprint_describes_the_machine,
        devices_by_id_are_requested_from_the_engine,
    ];
    stories.extend(one_driver![DockerAlone:
        an_engine_that_restarts_is_waited_for_and_its_containers_are_started_again,
        live_restore_keeps_replicas_running_over_an_engine_restart,
        a_start_without_a_free_subnet_fails_and_is_retried_when_one_is_free,
    ]);
    stories.extend(one_driver![Heavy: two_hundred_replicas_start_at_once]);
    stories
}

const SLEEP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

fn web(env: &TestEnv) -> Work {
    env.work(Driver::Docker, "web", SLEEP, |_| {})
}

async fn every_setting_of_the_manifest_reaches_the_engine(env: TestEnv) {
    let node = env.node();
    let work = env.work(Driver::Docker, "web", SLEEP, |spec| {
        let container = &mut spec.container;
        container.environment.insert("A".to_owned(), Some("b c".to_owned()));
        container.labels.insert("team".to_owned(), "blue".to_owned());
        container.user = Some("1000:1000".to_owned());
        container.working_dir = Some("/tmp".to_owned());
        container.hostname = Some("box".to_owned());
        container.switches.extend([Switch::Init, Switch::ReadOnly]);
        container.security.cap_drop.insert("ALL".to_owned());
        container.security.cap_add.insert("NET_BIND_SERVICE".to_owned());
        container.limits.pids = Some(50);
        container.limits.shm_size_bytes = Some(16 << 20);
        container.limits.ulimits.insert("nofile".to_owned(), Ulimit { soft: 512, hard: 1024 });
        container.limits.sysctls.insert("net.core.somaxconn".to_owned(), "77".to_owned());
        container.limits.oom_score_adj = Some(321);
        container.devices = vec!["/dev/null:/dev/nothing:rw".to_owned()];
        container.resolver.extra_hosts.insert("db".to_owned(), ["10.0.0.9".to_owned()].into());
        container.resolver.dns = vec!["10.0.0.53".to_owned()];
        container.log_driver = Some("json-file".to_owned());
        container.log_options = BTreeMap::from([("max-size".to_owned(), "1m".to_owned())]);
        container.stop_signal = Some("SIGINT".to_owned());
        container.stop_grace_period = Some(Duration::from_secs(7));
        spec.resources.memory_limit_bytes = Some(64 << 20);
        spec.resources.cpu_limit_millis = Some(500);
        spec.mounts.push(Mount {
            source: MountSource::Tmpfs,
            target: "/scratch".to_owned(),
            access: Access::ReadWrite,
            options: BTreeMap::from([("size".to_owned(), "1048576".to_owned())]),
        });
    });
    node.control.put(&work);
    node.control.wait_running(&work).await;
    let name = work.container_name();
    let asked = [
        ("{{.Name}}", format!("/{name}")),
        ("{{.Config.User}} {{.Config.WorkingDir}} {{.Config.Hostname}}", "1000:1000 /tmp box".to_owned()),
        ("{{.Config.StopSignal}} {{.Config.StopTimeout}}", "SIGINT 7".to_owned()),
        ("{{.HostConfig.Init}} {{.HostConfig.ReadonlyRootfs}}", "true true".to_owned()),
        ("{{.HostConfig.CapDrop}} {{.HostConfig.CapAdd}}", "[ALL] [CAP_NET_BIND_SERVICE]".to_owned()),
        ("{{.HostConfig.PidsLimit}} {{.HostConfig.ShmSize}} {{.HostConfig.OomScoreAdj}}", "50 16777216 321".to_owned()),
        ("{{.HostConfig.Memory}} {{.HostConfig.NanoCpus}}", "67108864 500000000".to_owned()),
        ("{{.HostConfig.RestartPolicy.Name}}", "no".to_owned()),
        // Inspected and not measured, because the engine's runtime raises the soft limit to the hard one.
        ("{{range .HostConfig.Ulimits}}{{.Name}} {{.Soft}} {{.Hard}}{{end}}", "nofile 512 1024".to_owned()),
        ("{{.HostConfig.ExtraHosts}} {{.HostConfig.Dns}}", "[db:10.0.0.9] [10.0.0.53]".to_owned()),
        (
            "{{.HostConfig.LogConfig.Type}} {{index .HostConfig.LogConfig.Config \"max-size\"}}",
            "json-file 1m".to_owned(),
        ),
        (
            "{{index .Config.Labels \"team\"}} {{index .Config.Labels \"longshore.cluster\"}}",
            format!("blue {}", env.cluster_id),
        ),
    ];
    for (template, expected) in asked {
        assert_eq!(
            env.engine().inspect(&name, template).replace("CAP_", ""),
            expected.replace("CAP_", ""),
            "{template}"
        );
    }
    let inside = "echo $A; ulimit -Hn; cat /proc/sys/net/core/somaxconn; test -e /dev/nothing && df -k /scratch | tail -1 | awk '{print $2}'";
    assert_eq!(env.engine().docker(&["exec", &name, "sh", "-c", inside]), "b c\n1024\n77\n1024");
}

async fn devices_by_id_are_requested_from_the_engine(env: TestEnv) {
    let node = env.node();
    let work = env.work(Driver::Docker, "web", SLEEP, |spec| {
        spec.container.device_requests = vec![EngineDeviceRequest {
            driver: Some("nobodys".to_owned()),
            count: None,
            ids: ["GPU-7", "GPU-9"].map(str::to_owned).to_vec(),
            capabilities: ["gpu".to_owned()].into(),
            options: BTreeMap::new(),
        }];
    });
    node.control.put(&work);
    // No machine has that driver, so only the request to the engine can be checked.
    let report = node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::StartFailed)).await;
    assert!(format!("{report:?}").contains("could not select device driver"), "{report:?}");
    let template = "{{range .HostConfig.DeviceRequests}}{{.Driver}} {{.Count}} {{.DeviceIDs}} {{.Capabilities}}{{end}}";
    let asked = env.engine().inspect(&work.container_name(), template);
    assert_eq!(asked, "nobodys 0 [GPU-7 GPU-9] [[gpu]]");
}

fn volume(env: &TestEnv, key: &str) -> Mount {
    let name = format!("{}_{key}", env.cluster_id);
    let key = longshore_model::VolumeKey { namespace: "default".into(), name: name.as_str().into() };
    Mount {
        source: MountSource::Volume { key, sharing: Sharing::Deployment, driver: None },
        target: "/data".to_owned(),
        access: Access::ReadWrite,
        options: BTreeMap::new(),
    }
}

async fn volumes_are_named_after_their_deployment_and_outlive_the_replica(env: TestEnv) {
    let node = env.node();
    let script = format!("echo seen >> /data/log; {SLEEP}");
    let work = env.work(Driver::Docker, "db", &script, |spec| spec.mounts.push(volume(&env, "files")));
    node.control.put(&work);
    node.control.wait_running(&work).await;
    node.control.stop(&work);
    node.control.wait_stopped(&work).await;
    let next = next_generation(&work, |spec| drop(spec.container.environment.insert("B".to_owned(), None)));
    node.control.put(&next);
    node.control.wait_running(&next).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let name = format!("longshore_{}_files", env.cluster_id);
    assert_eq!(env.engine().docker(&["volume", "ls", "-q", "--filter", &format!("name={name}")]), name);
    assert_eq!(env.engine().docker(&["exec", &next.container_name(), "cat", "/data/log"]), "seen\nseen");
    node.control.stop(&next);
    node.control.wait_stopped(&next).await;
    env.engine().docker(&["volume", "rm", &name]);
}

async fn a_missing_host_path_is_created_unless_the_manifest_forbids_it(env: TestEnv) {
    let node = env.node();
    let [missing, refused, file] = ["a/b", "c", "letter"].map(|name| env.folder().join("host").join(name));
    let bind = |path: &std::path::Path, target: &str, options: &[(&str, &str)]| Mount {
        source: MountSource::Bind(path.to_string_lossy().into_owned()),
        target: target.to_owned(),
        access: Access::ReadWrite,
        options: options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
    };
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "dear reader").unwrap();
    let script = format!("cat /letter > /made/copy; {SLEEP}");
    let work = env.work(Driver::Docker, "web", &script, |spec| {
        spec.mounts = vec![bind(&missing, "/made", &[]), bind(&file, "/letter", &[("selinux", "z")])];
    });
    let other = env.work(Driver::Docker, "other", SLEEP, |spec| {
        spec.mounts = vec![bind(&refused, "/made", &[("create_host_path", "false")])];
    });
    node.control.put_all(&[work.clone(), other.clone()]);
    node.control.wait_running(&work).await;
    let report = node.control.wait_for_state(&other, ReplicaState::Failed, Some(RuntimeCode::StartFailed)).await;
    assert!(format!("{report:?}").contains("does not exist") && !refused.exists(), "{report:?}");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !std::fs::read_to_string(missing.join("copy")).is_ok_and(|text| text == "dear reader") {
        assert!(Instant::now() < deadline, "nothing was written to the mount");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let binds = env.engine().docker(&["inspect", "-f", "{{.HostConfig.Binds}}", &work.container_name()]);
    assert_eq!(binds, format!("[{}:/letter:z]", file.display()), "only the mount with `selinux` has a label");
}

async fn replicas_of_a_deployment_reach_each_other_by_name(env: TestEnv) {
    let node = env.node();
    let web = env.work(
        Driver::Docker,
        "web",
        "mkdir /tmp/w; echo hi > /tmp/w/index.html; httpd -f -p 8080 -h /tmp/w",
        |_| {},
    );
    let client = env.work(Driver::Docker, "client", SLEEP, |_| {});
    node.control.put_all(&[web.clone(), client.clone()]);
    node.control.wait_running(&web).await;
    node.control.wait_running(&client).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let asked = ["exec", &client.container_name(), "wget", "-q", "-O", "-", "http://web:8080/"];
    assert_eq!(env.engine().docker(&asked), "hi");
    let network =
        env.engine().inspect(&web.container_name(), "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}}{{end}}");
    assert_eq!(network, format!("longshore_{}_default", env.cluster_id));
}

async fn a_replica_that_shares_anothers_network_waits_for_it(env: TestEnv) {
    let node = env.node();
    let dependent = env.work(Driver::Docker, "dependent", SLEEP, |spec| {
        spec.container.namespaces.network = Some("service:web".to_owned());
    });
    node.control.put(&dependent);
    node.control.wait_for_state(&dependent, ReplicaState::Pending, Some(RuntimeCode::DependencyNotReady)).await;
    let ended = env.work(Driver::Docker, "web", "exit 1", |_| {});
    node.control.put(&ended);
    node.control.wait_for_state(&ended, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let report = node.agent().last_report(&dependent.key).unwrap();
    assert_eq!(report.code, Some(RuntimeCode::DependencyNotReady), "a replica that has exited does not count");
    let web = next_generation(&ended, |spec| spec.container.command.clone_from(&web(&env).spec.container.command));
    node.control.put(&web);
    node.control.wait_running(&dependent).await;
    let failed = node.control.history(&dependent.key).iter().any(|report| report.state == ReplicaState::Failed);
    assert!(!failed, "it has failed meanwhile: {:#?}", node.control.history(&dependent.key));
    let id = env.engine().inspect(&web.container_name(), "{{.Id}}");
    let mode = env.engine().inspect(&dependent.container_name(), "{{.HostConfig.NetworkMode}}");
    assert_eq!(mode, format!("container:{id}"));
}

async fn a_published_port_answers_on_the_node(env: TestEnv) {
    let node = env.node();
    let port = |published, mode| Port { target: 8080, published, protocol: Protocol::Tcp, mode, host_ip: None };
    let script = "mkdir /tmp/w; echo hi > /tmp/w/index.html; httpd -f -p 8080 -h /tmp/w";
    let works = [port(None, PortMode::Ingress), port(Some(28080), PortMode::Host)].map(|port| {
        env.work(Driver::Docker, &format!("{:?}", port.mode).to_lowercase(), script, |spec| spec.ports = vec![port])
    });
    node.control.put_all(&works);
    for (work, expected) in works.iter().zip([None, Some(28080)]) {
        let report = node.control.wait_running(work).await;
        let Detail::List(ports) = &report.details["ports"] else { panic!("{report:?}") };
        let number: u16 = ports[0].rsplit(':').next().unwrap().parse().unwrap();
        assert!(ports[0].starts_with("8080/tcp=") && expected.is_none_or(|expected| expected == number), "{ports:?}");
        let address = (env.engine().inside, number);
        let connected = async {
            while tokio::net::TcpStream::connect(address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), connected).await.expect("the published port does not answer");
    }
}

async fn an_externally_removed_or_stopped_container_is_a_failure_and_the_next_attempt_runs(env: TestEnv) {
    let mut node = env.node();
    let mut work = web(&env);
    node.control.put(&work);
    node.control.wait_running(&work).await;
    env.engine().docker(&["rm", "-f", &work.container_name()]);
    node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    work = node.control.start_next_attempt(&work);
    node.control.wait_running(&work).await;
    env.engine().docker(&["stop", &work.container_name()]);
    node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    work = node.control.start_next_attempt(&work);
    node.control.wait_running(&work).await;
    // Also while no agent runs: a container with a marker was removed, and is not silently created again.
    node.stop_agent();
    env.engine().docker(&["rm", "-f", &work.container_name()]);
    node.start_agent();
    let report = node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    assert!(format!("{report:?}").contains("removed by somebody else"), "{report:?}");
    work = node.control.start_next_attempt(&work);
    node.control.wait_running(&work).await;
}

async fn nothing_of_another_cluster_or_of_the_user_is_touched_when_names_collide(env: TestEnv) {
    let engine = env.engine();
    let work = web(&env);
    let name = work.container_name();
    let users = engine.docker(&["run", "-d", "--network", "none", "--name", &name, IMAGE, "sleep", "1000"]);
    // A container of another cluster with otherwise the same labels.
    let labels: Vec<String> = [
        "cluster=other",
        "node=n1",
        "namespace=default",
        &format!("deployment={}", env.cluster_id),
        "service=web",
        "slot=index:1",
        "generation=1",
        "attempt=0",
        "spec_hash=x",
        "stop_signal=SIGTERM",
        "stop_grace_ms=1",
    ]
    .iter()
    .map(|label| format!("--label=longshore.{label}"))
    .collect();
    let mut run = vec!["run", "-d", "--network", "none"];
    run.extend(labels.iter().map(String::as_str));
    run.extend([IMAGE, "sleep", "1000"]);
    let theirs = engine.docker(&run);
    let started = |id: &str| engine.inspect(id, "{{.State.Running}} {{.State.StartedAt}}");
    let before = (started(&users), started(&theirs));
    let node = env.node();
    let second = in_slot(&work, 1);
    node.control.put_all(&[work.clone(), second.clone()]);
    node.control.wait_running(&work).await;
    node.control.wait_running(&second).await;
    node.control.wait_for_heartbeat(|beat| beat.cleanup == CleanupState::Done).await;
    for work in [&work, &second] {
        node.control.stop(work);
        node.control.wait_stopped(work).await;
    }
    assert_eq!((started(&users), started(&theirs)), before);
    engine.docker(&["rm", "-f", &users, &theirs]);
}

async fn volumes_and_networks_of_the_user_with_our_names_stay_the_users(env: TestEnv) {
    let engine = env.engine();
    let [data, net] = ["files", "default"].map(|key| format!("longshore_{}_{key}", env.cluster_id));
    engine.docker(&["volume", "create", &data]);
    let net_id = engine.docker(&["network", "create", &net]);
    let mount = format!("{data}:/data");
    let write = "echo mine > /data/letter; sleep 1000";
    let users = engine.docker(&["run", "-d", "--network", &net, "-v", &mount, IMAGE, "sh", "-c", write]);
    let node = env.node();
    let work = env.work(Driver::Docker, "db", SLEEP, |spec| spec.mounts.push(volume(&env, "files")));
    node.control.put(&work);
    node.control.wait_running(&work).await;
    // An existing volume is used, because it may hold the user's data; an existing network is not joined.
    let name = work.container_name();
    assert_eq!(engine.docker(&["exec", &name, "cat", "/data/letter"]), "mine");
    let networks = "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}}{{end}}";
    assert_eq!(engine.inspect(&name, networks), format!("{net}_{}", &env.cluster_id[..12]));
    node.control.stop(&work);
    node.control.wait_stopped(&work).await;
    node.control.remove(&work.key);
    let ours = format!("name={net}_");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !engine.docker(&["network", "ls", "-q", "--filter", &ours]).is_empty() {
        assert!(Instant::now() < deadline, "our network was not removed");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(engine.docker(&["network", "inspect", "-f", "{{.Id}}", &net]), net_id);
    assert_eq!(engine.inspect(&users, "{{.State.Running}}"), "true");
    assert_eq!(engine.docker(&["exec", &users, "cat", "/data/letter"]), "mine");
    engine.docker(&["rm", "-f", &users]);
    engine.docker(&["volume", "rm", &data]);
    engine.docker(&["network", "rm", &net]);
}

async fn the_network_of_a_deployment_goes_with_its_last_replica(env: TestEnv) {
    let node = env.node();
    let works = [web(&env), in_slot(&web(&env), 1)];
    node.control.put_all(&works);
    let filter = format!("name=longshore_{}_default", env.cluster_id);
    let count = || env.engine().docker(&["network", "ls", "-q", "--filter", &filter]).lines().count();
    for work in &works {
        node.control.wait_running(work).await;
        assert_eq!(count(), 1);
    }
    for work in &works {
        node.control.stop(work);
        node.control.wait_stopped(work).await;
        node.control.remove(&work.key);
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while count() > 0 {
        assert!(Instant::now() < deadline, "the network was not removed");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The engine's API allows two networks of one name, where its command does not.
fn create_network_twice(env: &TestEnv, name: &str) {
    let body = format!(r#"{{"Name":"{name}","Labels":{{"longshore.cluster":"{}"}}}}"#, env.cluster_id);
    for _ in 0..2 {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-sf", "-XPOST", "-H", "Content-Type: application/json", "-d", &body, "--unix-socket"]);
        assert!(
            curl.arg(env.engine().socket()).arg("http://localhost/networks/create").output().unwrap().status.success()
        );
    }
}

async fn nodes_that_share_an_engine_share_the_networks_of_a_deployment_and_heal_duplicates(env: TestEnv) {
    let network = format!("longshore_{}_default", env.cluster_id);
    let count =
        || env.engine().docker(&["network", "ls", "-q", "--filter", &format!("name={network}")]).lines().count();
    create_network_twice(&env, &network);
    assert_eq!(count(), 2, "no two networks of one name could be made");
    let nodes = ["n1", "n2", "n3"].map(|name| {
        let mut config = env.config();
        config.node = name.into();
        config.data_dir = env.folder().join(name);
        Node::start(config, FakeControlPlane::default())
    });
    let at = |index: usize| {
        let serve = "mkdir -p /tmp/www; echo hello > /tmp/www/index.html; httpd -p 80 -h /tmp/www; ";
        let mut work = in_slot(
            &env.work(Driver::Docker, "web", &format!("{serve}{SLEEP}"), |_| {}),
            u32::try_from(index).unwrap(),
        );
        work.assignment.node = ["n1", "n2", "n3"][index].into();
        work
    };
    for (index, node) in nodes.iter().enumerate() {
        node.control.put(&at(index));
    }
    for (index, node) in nodes.iter().enumerate() {
        node.control.wait_running(&at(index)).await;
    }
    assert_eq!(count(), 1);
    for index in 0..3 {
        let other = at((index + 1) % 3).container_name();
        let page =
            env.engine().docker(&["exec", &at(index).container_name(), "wget", "-qO-", &format!("http://{other}/")]);
        assert_eq!(page, "hello");
    }
    // The node that goes takes nothing of the others along.
    nodes[0].control.stop(&at(0));
    nodes[0].control.wait_stopped(&at(0)).await;
    nodes[0].control.remove(&at(0).key);
    env.engine().docker(&["stop", "-t", "0", &at(1).container_name()]);
    let again = nodes[1].control.start_next_attempt(&at(1));
    nodes[1].control.wait_running(&again).await;
    assert_eq!(count(), 1);
    for (node, work) in [(&nodes[1], again), (&nodes[2], at(2))] {
        node.control.stop(&work);
        node.control.wait_stopped(&work).await;
        node.control.remove(&work.key);
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while count() > 0 {
        assert!(Instant::now() < deadline, "the network was not removed");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn the_fingerprint_describes_the_machine(env: TestEnv) {
    let node = env.node();
    let fingerprint = node.agent().fingerprint().await;
    assert_eq!(fingerprint.drivers, BTreeSet::from([Driver::Docker, Driver::Exec]));
    assert!(
        fingerprint.plugins.contains("network/bridge") && fingerprint.plugins.contains("log/json-file"),
        "{fingerprint:?}"
    );
    assert!(fingerprint.capacity.memory_bytes > 0 && fingerprint.platform.os == "linux", "{fingerprint:?}");
}

async fn an_engine_that_restarts_is_waited_for_and_its_containers_are_started_again(env: TestEnv) {
    let node = env.node();
    let works: Vec<Work> = (0..3).map(|index| in_slot(&web(&env), index)).collect();
    node.control.put_all(&works);
    for work in &works {
        node.control.wait_running(work).await;
    }
    node.control.clear_history();
    env.engine().stop_daemon();
    let late = in_slot(&web(&env), 9);
    node.control.put(&late);
    node.control.wait_for_state(&late, ReplicaState::Pending, Some(RuntimeCode::EngineUnreachable)).await;
    // Unavailable for longer than a restart takes: the fingerprint leaves it out.
    assert_eq!(node.agent().fingerprint().await.drivers, BTreeSet::from([Driver::Exec]));
    let mut changes = node.agent().driver_changes();
    env.engine().launch().unwrap();
    changes.changed().await.unwrap();
    assert!(node.agent().fingerprint().await.drivers.contains(&Driver::Docker), "it is not in the fingerprint again");
    node.control.wait_for_heartbeat(|beat| beat.answering.contains(&Driver::Docker)).await;
    for work in &works {
        node.control.wait_running(work).await;
        let history = node.control.history(&work.key);
        assert!(history.iter().all(|report| report.state != ReplicaState::Failed), "{history:#?}");
    }
    node.control.wait_running(&late).await;
}

async fn live_restore_keeps_replicas_running_over_an_engine_restart(env: TestEnv) {
    let engine = env.engine();
    engine.stop_daemon();
    engine.launch_with(&["--live-restore"]).unwrap();
    let node = env.node();
    let works: Vec<Work> = (0..3).map(|index| in_slot(&web(&env), index)).collect();
    node.control.put_all(&works);
    for work in &works {
        node.control.wait_running(work).await;
    }
    let before: Vec<String> = works.iter().map(|work| env.identity(work)).collect();
    engine.stop_daemon();
    node.control.wait_for_heartbeat(|beat| !beat.answering.contains(&Driver::Docker)).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    for work in &works {
        node.control.wait_for_state(work, ReplicaState::Running, Some(RuntimeCode::EngineUnreachable)).await;
    }
    let (mut changes, began) = (node.agent().driver_changes(), Instant::now());
    engine.launch_with(&["--live-restore"]).unwrap();
    assert!(node.agent().fingerprint().await.drivers.contains(&Driver::Docker), "a restarting engine was left out");
    changes.changed().await.unwrap();
    println!("     the engine was unavailable for {:.1} s", began.elapsed().as_secs_f32());
    let deadline = Instant::now() + Duration::from_secs(20);
    while works.iter().any(|work| node.agent().last_report(&work.key).unwrap().code.is_some()) {
        assert!(Instant::now() < deadline, "the code stays after the engine's return");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let after: Vec<String> = works.iter().map(|work| env.identity(work)).collect();
    assert_eq!(before, after);
    for work in &works {
        let history = node.control.history(&work.key);
        let states: Vec<_> = history.iter().map(|report| (report.state.as_str(), report.code)).collect();
        let unreachable = Some(RuntimeCode::EngineUnreachable);
        assert_eq!(states, [("starting", None), ("running", None), ("running", unreachable), ("running", None)]);
        assert_eq!(history[1].details, history[2].details, "its endpoints are kept");
    }
    for work in &works {
        node.control.stop(work);
        node.control.wait_stopped(work).await;
    }
    engine.stop_daemon();
    engine.launch().unwrap();
}

async fn a_start_without_a_free_subnet_fails_and_is_retried_when_one_is_free(env: TestEnv) {
    let engine = env.engine();
    engine.stop_daemon();
    engine.launch_with(&["--default-address-pool", "base=10.91.0.0/24,size=25"]).unwrap();
    let mut taken = Vec::new();
    while engine.try_docker(&["network", "create", &format!("full-{}", taken.len())]).status.success() {
        taken.push(format!("full-{}", taken.len()));
        assert!(taken.len() < 10, "the pool is never exhausted");
    }
    let node = env.node();
    let work = web(&env);
    node.control.put(&work);
    node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::SubnetPoolExhausted)).await;
    for network in taken {
        engine.docker(&["network", "rm", &network]);
    }
    node.control.wait_running(&work).await;
    node.control.stop(&work);
    node.control.wait_stopped(&work).await;
    engine.stop_daemon();
    engine.launch().unwrap();
}

/// Processor seconds that this process has used, and its memory now in MiB.
fn own_cost() -> (f64, u64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u32 = fields[11].parse::<u32>().unwrap() + fields[12].parse::<u32>().unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap().trim().trim_end_matches(" kB");
    (f64::from(ticks) / 100.0, kib.parse::<u64>().unwrap() / 1024)
}

/// The largest number of replicas that were starting at the same time.
fn most_at_once(history: &[ReplicaReport]) -> usize {
    let mut starting = BTreeSet::new();
    let mut most = 0;
    for report in history {
        let _: bool = match report.state {
            ReplicaState::Starting => starting.insert(report.key.clone()),
            _ => starting.remove(&report.key),
        };
        most = most.max(starting.len());
    }
    most
}

async fn two_hundred_replicas_start_at_once(env: TestEnv) {
    // The intervals of a real node; the short ones of other stories would dominate the measurement.
    let mut config = env.config();
    (config.heartbeat_interval, config.status_interval) = (Duration::from_secs(1), Duration::from_secs(30));
    let node = Node::start(config, FakeControlPlane::default());
    let works: Vec<Work> =
        (0..200).map(|index| in_slot(&env.work(Driver::Docker, "web", "exec sleep 100000", |_| {}), index)).collect();
    let (cpu, _) = own_cost();
    let began = Instant::now();
    node.control.put_all(&works);
    for work in &works {
        node.control.wait_running(work).await;
    }
    let started = began.elapsed();
    let (cpu_started, memory) = own_cost();
    println!(
        "     200 replicas running after {:.1} s; agent, control plane and story together: {:.1} s of processor time, {memory} MiB",
        started.as_secs_f32(),
        cpu_started - cpu
    );
    let most = most_at_once(&node.control.all_reports());
    // The permit is released when the engine has started it, before the inspection that reports it.
    assert!(most <= 2 * node.config.parallel_starts, "{most} starts at once");
    tokio::time::sleep(Duration::from_mins(1)).await;
    let (cpu_idle, memory) = own_cost();
    println!("     a minute later: {:.2} % of one core, {memory} MiB", (cpu_idle - cpu_started) / 60.0 * 100.0);
    for work in &works {
        node.control.stop(work);
    }
    for work in &works {
        node.control.wait_stopped(work).await;
    }
}
