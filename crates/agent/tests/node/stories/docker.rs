//! What only an engine can do, and what people do to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use longshore_model::{
    Driver, ReplicaState, RuntimeCode, Sighting, Work,
    container::{DeviceRequest, Switch, Ulimit},
    replica::Detail,
    service::{Access, Mount, MountSource, Port, PortMode, Protocol},
    volume::Sharing,
    work::Standing,
};

use super::one_driver;
use crate::{
    control::Control,
    engine::IMAGE,
    runner::{Needs, Story},
    world::{Ground, Node, in_slot, next_generation},
};

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = one_driver![Docker:
        what_the_manifest_says_is_what_the_engine_was_told,
        volumes_are_named_after_their_deployment_and_outlive_the_replica,
        a_path_of_the_host_that_is_missing_is_made_unless_the_manifest_says_no,
        replicas_of_a_deployment_reach_each_other_by_name,
        a_replica_that_shares_anothers_network_waits_for_it,
        a_published_port_answers_on_the_node,
        a_container_somebody_removes_or_stops_is_a_failure_and_the_next_attempt_runs,
        nothing_of_another_cluster_or_of_the_user_is_touched_when_names_collide,
        a_volume_and_a_network_of_the_user_that_bear_our_names_stay_the_users,
        the_network_of_a_deployment_goes_with_its_last_replica,
        a_machine_says_what_it_is_and_has,
        devices_asked_for_by_id_are_asked_of_the_engine,
    ];
    stories.extend(one_driver![DockerAlone:
        an_engine_that_restarts_is_waited_for_and_its_containers_are_started_again,
        an_engine_that_keeps_its_containers_while_it_restarts_is_believed,
        a_network_without_a_subnet_says_so_and_starts_when_one_is_free,
    ]);
    stories.extend(one_driver![Heavy: two_hundred_replicas_start_at_once]);
    stories
}

const SLEEP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

fn web(ground: &Ground) -> Work {
    ground.work(Driver::Docker, "web", SLEEP, |_| {})
}

async fn what_the_manifest_says_is_what_the_engine_was_told(ground: Ground) {
    let node = ground.node();
    let work = ground.work(Driver::Docker, "web", SLEEP, |spec| {
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
    node.control.runs(&work).await;
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
        // The engine's own runtime raises the soft limit of what it runs to the hard one, so the books are asked.
        ("{{range .HostConfig.Ulimits}}{{.Name}} {{.Soft}} {{.Hard}}{{end}}", "nofile 512 1024".to_owned()),
        ("{{.HostConfig.ExtraHosts}} {{.HostConfig.Dns}}", "[db:10.0.0.9] [10.0.0.53]".to_owned()),
        (
            "{{.HostConfig.LogConfig.Type}} {{index .HostConfig.LogConfig.Config \"max-size\"}}",
            "json-file 1m".to_owned(),
        ),
        (
            "{{index .Config.Labels \"team\"}} {{index .Config.Labels \"longshore.cluster\"}}",
            format!("blue {}", ground.cluster_id),
        ),
    ];
    for (template, expected) in asked {
        assert_eq!(
            ground.engine().inspect(&name, template).replace("CAP_", ""),
            expected.replace("CAP_", ""),
            "{template}"
        );
    }
    let inside = "echo $A; ulimit -Hn; cat /proc/sys/net/core/somaxconn; test -e /dev/nothing && df -k /scratch | tail -1 | awk '{print $2}'";
    assert_eq!(ground.engine().docker(&["exec", &name, "sh", "-c", inside]), "b c\n1024\n77\n1024");
}

async fn devices_asked_for_by_id_are_asked_of_the_engine(ground: Ground) {
    let node = ground.node();
    let work = ground.work(Driver::Docker, "web", SLEEP, |spec| {
        spec.container.device_requests = vec![DeviceRequest {
            driver: Some("nobodys".to_owned()),
            count: None,
            ids: ["GPU-7", "GPU-9"].map(str::to_owned).to_vec(),
            capabilities: ["gpu".to_owned()].into(),
            options: BTreeMap::new(),
        }];
    });
    node.control.put(&work);
    // No machine has that driver, so what can be seen is that the engine was asked for exactly these.
    let seen = node.control.hears(&work, ReplicaState::Failed, Some(RuntimeCode::StartFailed)).await;
    assert!(format!("{seen:?}").contains("could not select device driver"), "{seen:?}");
    let template = "{{range .HostConfig.DeviceRequests}}{{.Driver}} {{.Count}} {{.DeviceIDs}} {{.Capabilities}}{{end}}";
    let asked = ground.engine().inspect(&work.container_name(), template);
    assert_eq!(asked, "nobodys 0 [GPU-7 GPU-9] [[gpu]]");
}

fn volume(ground: &Ground, key: &str) -> Mount {
    let name = format!("{}_{key}", ground.cluster_id);
    let key = longshore_model::VolumeKey { namespace: "default".into(), name: name.as_str().into() };
    Mount {
        source: MountSource::Volume { key, sharing: Sharing::Deployment, driver: None },
        target: "/data".to_owned(),
        access: Access::ReadWrite,
        options: BTreeMap::new(),
    }
}

async fn volumes_are_named_after_their_deployment_and_outlive_the_replica(ground: Ground) {
    let node = ground.node();
    let script = format!("echo seen >> /data/log; {SLEEP}");
    let work = ground.work(Driver::Docker, "db", &script, |spec| spec.mounts.push(volume(&ground, "files")));
    node.control.put(&work);
    node.control.runs(&work).await;
    node.control.stop(&work);
    node.control.stopped(&work).await;
    let next = next_generation(&work, |spec| drop(spec.container.environment.insert("B".to_owned(), None)));
    node.control.put(&next);
    node.control.runs(&next).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let name = format!("longshore_{}_files", ground.cluster_id);
    assert_eq!(ground.engine().docker(&["volume", "ls", "-q", "--filter", &format!("name={name}")]), name);
    assert_eq!(ground.engine().docker(&["exec", &next.container_name(), "cat", "/data/log"]), "seen\nseen");
    node.control.stop(&next);
    node.control.stopped(&next).await;
    ground.engine().docker(&["volume", "rm", &name]);
}

async fn a_path_of_the_host_that_is_missing_is_made_unless_the_manifest_says_no(ground: Ground) {
    let node = ground.node();
    let [missing, refused, file] = ["a/b", "c", "letter"].map(|name| ground.folder().join("host").join(name));
    let bind = |path: &std::path::Path, target: &str, options: &[(&str, &str)]| Mount {
        source: MountSource::Bind(path.to_string_lossy().into_owned()),
        target: target.to_owned(),
        access: Access::ReadWrite,
        options: options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
    };
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "dear reader").unwrap();
    let script = format!("cat /letter > /made/copy; {SLEEP}");
    let work = ground.work(Driver::Docker, "web", &script, |spec| {
        spec.mounts = vec![bind(&missing, "/made", &[]), bind(&file, "/letter", &[("selinux", "z")])];
    });
    let other = ground.work(Driver::Docker, "other", SLEEP, |spec| {
        spec.mounts = vec![bind(&refused, "/made", &[("create_host_path", "false")])];
    });
    node.control.put_all(&[work.clone(), other.clone()]);
    node.control.runs(&work).await;
    let seen = node.control.hears(&other, ReplicaState::Failed, Some(RuntimeCode::StartFailed)).await;
    assert!(format!("{seen:?}").contains("does not exist") && !refused.exists(), "{seen:?}");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !std::fs::read_to_string(missing.join("copy")).is_ok_and(|text| text == "dear reader") {
        assert!(Instant::now() < deadline, "nothing is written where it was mounted");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let binds = ground.engine().docker(&["inspect", "-f", "{{.HostConfig.Binds}}", &work.container_name()]);
    assert_eq!(binds, format!("[{}:/letter:z]", file.display()), "a label is asked for where the manifest asks for it");
}

async fn replicas_of_a_deployment_reach_each_other_by_name(ground: Ground) {
    let node = ground.node();
    let web = ground.work(
        Driver::Docker,
        "web",
        "mkdir /tmp/w; echo hi > /tmp/w/index.html; httpd -f -p 8080 -h /tmp/w",
        |_| {},
    );
    let client = ground.work(Driver::Docker, "client", SLEEP, |_| {});
    node.control.put_all(&[web.clone(), client.clone()]);
    node.control.runs(&web).await;
    node.control.runs(&client).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let asked = ["exec", &client.container_name(), "wget", "-q", "-O", "-", "http://web:8080/"];
    assert_eq!(ground.engine().docker(&asked), "hi");
    let network = ground
        .engine()
        .inspect(&web.container_name(), "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}}{{end}}");
    assert_eq!(network, format!("longshore_{}_default", ground.cluster_id));
}

async fn a_replica_that_shares_anothers_network_waits_for_it(ground: Ground) {
    let node = ground.node();
    let beside = ground.work(Driver::Docker, "beside", SLEEP, |spec| {
        spec.container.namespaces.network = Some("service:web".to_owned());
    });
    node.control.put(&beside);
    node.control.hears(&beside, ReplicaState::Pending, Some(RuntimeCode::DependencyNotReady)).await;
    let ended = ground.work(Driver::Docker, "web", "exit 1", |_| {});
    node.control.put(&ended);
    node.control.hears(&ended, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let seen = node.agent().last_seen(&beside.key).unwrap();
    assert_eq!(seen.code, Some(RuntimeCode::DependencyNotReady), "one that has ended is no company");
    let web = next_generation(&ended, |spec| spec.container.command.clone_from(&web(&ground).spec.container.command));
    node.control.put(&web);
    node.control.runs(&beside).await;
    let failed = node.control.history(&beside.key).iter().any(|seen| seen.state == ReplicaState::Failed);
    assert!(!failed, "a restart was used up: {:#?}", node.control.history(&beside.key));
    let id = ground.engine().inspect(&web.container_name(), "{{.Id}}");
    let mode = ground.engine().inspect(&beside.container_name(), "{{.HostConfig.NetworkMode}}");
    assert_eq!(mode, format!("container:{id}"));
}

async fn a_published_port_answers_on_the_node(ground: Ground) {
    let node = ground.node();
    let port = |published, mode| Port { target: 8080, published, protocol: Protocol::Tcp, mode, host_ip: None };
    let script = "mkdir /tmp/w; echo hi > /tmp/w/index.html; httpd -f -p 8080 -h /tmp/w";
    let works = [port(None, PortMode::Ingress), port(Some(28080), PortMode::Host)].map(|port| {
        ground.work(Driver::Docker, &format!("{:?}", port.mode).to_lowercase(), script, |spec| spec.ports = vec![port])
    });
    node.control.put_all(&works);
    for (work, expected) in works.iter().zip([None, Some(28080)]) {
        let seen = node.control.runs(work).await;
        let Detail::List(ports) = &seen.details["ports"] else { panic!("{seen:?}") };
        let number: u16 = ports[0].rsplit(':').next().unwrap().parse().unwrap();
        assert!(ports[0].starts_with("8080/tcp=") && expected.is_none_or(|expected| expected == number), "{ports:?}");
        let address = (ground.engine().inside, number);
        let connected = async {
            while tokio::net::TcpStream::connect(address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), connected).await.expect("nobody answers there");
    }
}

async fn a_container_somebody_removes_or_stops_is_a_failure_and_the_next_attempt_runs(ground: Ground) {
    let mut node = ground.node();
    let mut work = web(&ground);
    node.control.put(&work);
    node.control.runs(&work).await;
    ground.engine().docker(&["rm", "-f", &work.container_name()]);
    node.control.hears(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    work = node.control.again(&work);
    node.control.runs(&work).await;
    ground.engine().docker(&["stop", &work.container_name()]);
    node.control.hears(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    work = node.control.again(&work);
    node.control.runs(&work).await;
    // And while no agent looks: what it made and does not find was taken away, and is not quietly made again.
    node.lose_agent();
    ground.engine().docker(&["rm", "-f", &work.container_name()]);
    node.start_agent();
    let seen = node.control.hears(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    assert!(format!("{seen:?}").contains("removed by somebody else"), "{seen:?}");
    work = node.control.again(&work);
    node.control.runs(&work).await;
}

async fn nothing_of_another_cluster_or_of_the_user_is_touched_when_names_collide(ground: Ground) {
    let engine = ground.engine();
    let work = web(&ground);
    let name = work.container_name();
    let users = engine.docker(&["run", "-d", "--network", "none", "--name", &name, IMAGE, "sleep", "1000"]);
    // Another cluster's, which says it is the very same replica of the very same node.
    let labels: Vec<String> = [
        "cluster=other",
        "node=n1",
        "namespace=default",
        &format!("deployment={}", ground.cluster_id),
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
    let node = ground.node();
    let second = in_slot(&work, 1);
    node.control.put_all(&[work.clone(), second.clone()]);
    node.control.runs(&work).await;
    node.control.runs(&second).await;
    node.control.beat(|beat| beat.standing == Standing::Settled).await;
    for work in [&work, &second] {
        node.control.stop(work);
        node.control.stopped(work).await;
    }
    assert_eq!((started(&users), started(&theirs)), before);
    engine.docker(&["rm", "-f", &users, &theirs]);
}

async fn a_volume_and_a_network_of_the_user_that_bear_our_names_stay_the_users(ground: Ground) {
    let engine = ground.engine();
    let [data, net] = ["files", "default"].map(|key| format!("longshore_{}_{key}", ground.cluster_id));
    engine.docker(&["volume", "create", &data]);
    let net_id = engine.docker(&["network", "create", &net]);
    let mount = format!("{data}:/data");
    let write = "echo mine > /data/letter; sleep 1000";
    let users = engine.docker(&["run", "-d", "--network", &net, "-v", &mount, IMAGE, "sh", "-c", write]);
    let node = ground.node();
    let work = ground.work(Driver::Docker, "db", SLEEP, |spec| spec.mounts.push(volume(&ground, "files")));
    node.control.put(&work);
    node.control.runs(&work).await;
    // Data that was brought along is what was meant; who is on a network of somebody else's is not asked for.
    let name = work.container_name();
    assert_eq!(engine.docker(&["exec", &name, "cat", "/data/letter"]), "mine");
    let networks = "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}}{{end}}";
    assert_eq!(engine.inspect(&name, networks), format!("{net}_{}", &ground.cluster_id[..12]));
    node.control.stop(&work);
    node.control.stopped(&work).await;
    node.control.is_done_with(&work.key);
    let ours = format!("name={net}_");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !engine.docker(&["network", "ls", "-q", "--filter", &ours]).is_empty() {
        assert!(Instant::now() < deadline, "the network of ours is still there");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(engine.docker(&["network", "inspect", "-f", "{{.Id}}", &net]), net_id);
    assert_eq!(engine.inspect(&users, "{{.State.Running}}"), "true");
    assert_eq!(engine.docker(&["exec", &users, "cat", "/data/letter"]), "mine");
    engine.docker(&["rm", "-f", &users]);
    engine.docker(&["volume", "rm", &data]);
    engine.docker(&["network", "rm", &net]);
}

async fn the_network_of_a_deployment_goes_with_its_last_replica(ground: Ground) {
    let node = ground.node();
    let works = [web(&ground), in_slot(&web(&ground), 1)];
    node.control.put_all(&works);
    let filter = format!("name=longshore_{}_default", ground.cluster_id);
    let count = || ground.engine().docker(&["network", "ls", "-q", "--filter", &filter]).lines().count();
    for work in &works {
        node.control.runs(work).await;
        assert_eq!(count(), 1);
    }
    for work in &works {
        node.control.stop(work);
        node.control.stopped(work).await;
        node.control.is_done_with(&work.key);
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while count() > 0 {
        assert!(Instant::now() < deadline, "the network is still there");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn a_machine_says_what_it_is_and_has(ground: Ground) {
    let node = ground.node();
    let survey = node.agent().survey().await;
    assert_eq!(survey.drivers, BTreeSet::from([Driver::Docker, Driver::Exec]));
    assert!(survey.plugins.contains("network/bridge") && survey.plugins.contains("log/json-file"), "{survey:?}");
    assert!(survey.capacity.memory_bytes > 0 && survey.platform.os == "linux", "{survey:?}");
}

async fn an_engine_that_restarts_is_waited_for_and_its_containers_are_started_again(ground: Ground) {
    let node = ground.node();
    let works: Vec<Work> = (0..3).map(|index| in_slot(&web(&ground), index)).collect();
    node.control.put_all(&works);
    for work in &works {
        node.control.runs(work).await;
    }
    node.control.forget_history();
    ground.engine().end_daemon();
    let late = in_slot(&web(&ground), 9);
    node.control.put(&late);
    node.control.hears(&late, ReplicaState::Pending, Some(RuntimeCode::EngineUnreachable)).await;
    // Away for longer than a restart takes: no longer something this node offers.
    assert_eq!(node.agent().survey().await.drivers, BTreeSet::from([Driver::Exec]));
    let mut turns = node.agent().driver_turns();
    ground.engine().launch().unwrap();
    turns.changed().await.unwrap();
    assert!(node.agent().survey().await.drivers.contains(&Driver::Docker), "it is offered again at once");
    node.control.beat(|beat| beat.answering.contains(&Driver::Docker)).await;
    for work in &works {
        node.control.hears(work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
        let again = node.control.again(work);
        node.control.runs(&again).await;
    }
    node.control.runs(&late).await;
}

async fn an_engine_that_keeps_its_containers_while_it_restarts_is_believed(ground: Ground) {
    let engine = ground.engine();
    engine.end_daemon();
    engine.launch_with(&["--live-restore"]).unwrap();
    let node = ground.node();
    let works: Vec<Work> = (0..3).map(|index| in_slot(&web(&ground), index)).collect();
    node.control.put_all(&works);
    for work in &works {
        node.control.runs(work).await;
    }
    let before: Vec<String> = works.iter().map(|work| ground.identity(work)).collect();
    engine.end_daemon();
    node.control.beat(|beat| !beat.answering.contains(&Driver::Docker)).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    for work in &works {
        node.control.hears(work, ReplicaState::Running, Some(RuntimeCode::EngineUnreachable)).await;
    }
    let (mut turns, asked) = (node.agent().driver_turns(), Instant::now());
    engine.launch_with(&["--live-restore"]).unwrap();
    assert!(node.agent().survey().await.drivers.contains(&Driver::Docker), "it is only restarting");
    turns.changed().await.unwrap();
    println!("     the engine was away for {:.1} s", asked.elapsed().as_secs_f32());
    let deadline = Instant::now() + Duration::from_secs(20);
    while works.iter().any(|work| node.agent().last_seen(&work.key).unwrap().code.is_some()) {
        assert!(Instant::now() < deadline, "the code outlasts the engine's return");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let after: Vec<String> = works.iter().map(|work| ground.identity(work)).collect();
    assert_eq!(before, after);
    for work in &works {
        let history = node.control.history(&work.key);
        let said: Vec<_> = history.iter().map(|seen| (seen.state.as_str(), seen.code)).collect();
        let unseen = Some(RuntimeCode::EngineUnreachable);
        assert_eq!(said, [("starting", None), ("running", None), ("running", unseen), ("running", None)]);
        assert_eq!(history[1].details, history[2].details, "where it was is where it is found if it still runs");
    }
    for work in &works {
        node.control.stop(work);
        node.control.stopped(work).await;
    }
    engine.end_daemon();
    engine.launch().unwrap();
}

async fn a_network_without_a_subnet_says_so_and_starts_when_one_is_free(ground: Ground) {
    let engine = ground.engine();
    engine.end_daemon();
    engine.launch_with(&["--default-address-pool", "base=10.91.0.0/24,size=25"]).unwrap();
    let mut taken = Vec::new();
    while engine.try_docker(&["network", "create", &format!("full-{}", taken.len())]).status.success() {
        taken.push(format!("full-{}", taken.len()));
        assert!(taken.len() < 10, "the pool never ends");
    }
    let node = ground.node();
    let work = web(&ground);
    node.control.put(&work);
    node.control.hears(&work, ReplicaState::Failed, Some(RuntimeCode::SubnetPoolExhausted)).await;
    for network in taken {
        engine.docker(&["network", "rm", &network]);
    }
    node.control.runs(&work).await;
    node.control.stop(&work);
    node.control.stopped(&work).await;
    engine.end_daemon();
    engine.launch().unwrap();
}

/// What a process of this program has used so far: processor seconds, and its memory now in MiB.
fn own_cost() -> (f64, u64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u32 = fields[11].parse::<u32>().unwrap() + fields[12].parse::<u32>().unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap().trim().trim_end_matches(" kB");
    (f64::from(ticks) / 100.0, kib.parse::<u64>().unwrap() / 1024)
}

/// Most replicas that were seen starting at the same time.
fn most_at_once(history: &[Sighting]) -> usize {
    let mut starting = BTreeSet::new();
    let mut most = 0;
    for seen in history {
        let _: bool = match seen.state {
            ReplicaState::Starting => starting.insert(seen.key.clone()),
            _ => starting.remove(&seen.key),
        };
        most = most.max(starting.len());
    }
    most
}

async fn two_hundred_replicas_start_at_once(ground: Ground) {
    // The rhythm of a real node: what the others use to be quick would be most of what is measured here.
    let mut config = ground.config();
    (config.heartbeat_interval, config.status_interval) = (Duration::from_secs(1), Duration::from_secs(30));
    let node = Node::start(config, Control::default());
    let works: Vec<Work> = (0..200)
        .map(|index| in_slot(&ground.work(Driver::Docker, "web", "exec sleep 100000", |_| {}), index))
        .collect();
    let (cpu, _) = own_cost();
    let began = Instant::now();
    node.control.put_all(&works);
    for work in &works {
        node.control.runs(work).await;
    }
    let started = began.elapsed();
    let (cpu_started, memory) = own_cost();
    println!(
        "     200 replicas running after {:.1} s; agent, control plane and story together: {:.1} s of processor time, {memory} MiB",
        started.as_secs_f32(),
        cpu_started - cpu
    );
    let most = most_at_once(&node.control.everything());
    // The permit is given back when the engine has started it, and the look that says so follows.
    assert!(most <= 2 * node.config.parallel_starts, "{most} starts at once");
    tokio::time::sleep(Duration::from_mins(1)).await;
    let (cpu_idle, memory) = own_cost();
    println!("     a minute later: {:.2} % of one core, {memory} MiB", (cpu_idle - cpu_started) / 60.0 * 100.0);
    for work in &works {
        node.control.stop(work);
    }
    for work in &works {
        node.control.stopped(work).await;
    }
}
