//! Three hosts with a container engine each: what runs on them is changed, lost and left alone, and clients notice
//! nothing.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "support/test_cluster.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod test_cluster;

#[path = "cli/terminal.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod terminal;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::{fs::MetadataExt as _, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use longshore_api::{Client, Endpoint};
use serde_json::Value;
use test_cluster::{Cluster, eventually, files_containing};

/// A web server whose page names its version, and which exits at once on SIGTERM.
fn manifest(replicas: u32, version: &str) -> String {
    let page = format!("mkdir -p /tmp/www; echo {version} > /tmp/www/index.html");
    let serve = "trap 'exit 0' TERM; httpd -f -p 80 -h /tmp/www & while :; do sleep 1 & wait $!; done";
    format!(
        "\
name: shop
services:
  web:
    image: busybox:1
    pull_policy: never
    command: [\"sh\", \"-c\", \"{page}; {serve}\"]
    environment:
      VERSION: \"{version}\"
    ports:
      - target: 80
        mode: host
    deploy:
      replicas: {replicas}
      update_config:
        order: start-first
        monitor: 1s
"
    )
}

fn apply(cluster: &Cluster, text: &str) -> Value {
    let file = cluster.folder.path().join("shop.yaml");
    fs::write(&file, text.replace("$!", "$$!")).unwrap();
    cluster.nodes[0].expect_json(&["apply", "-f", file.to_str().unwrap()])
}

fn is_active(status: &Value) -> bool {
    status["deployments"][0]["status"] == "active"
}

/// The status, once the deployment is active.
fn active(cluster: &Cluster, at: usize) -> Value {
    eventually("active", || cluster.nodes[at].json(&["status"]).filter(is_active))
}

/// Addresses of the running replicas.
fn addresses(replicas: &[longshore_api::Replica]) -> Vec<SocketAddr> {
    let running = replicas.iter().filter(|replica| replica.state == longshore_api::ReplicaState::Running);
    let ports = running.filter_map(|replica| {
        let node: u8 = replica.node.as_deref()?.strip_prefix('n')?.parse().ok()?;
        let bound = replica.details.get("ports")?.as_array()?.first()?.as_str()?.to_owned();
        let port: u16 = bound.rsplit(':').next()?.parse().ok()?;
        Some(SocketAddr::from(([10, 213, 77, node], port)))
    });
    ports.collect()
}

/// Requests the page of one replica after the other until it is stopped.
struct Load {
    ended: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(socket: PathBuf) -> Self {
        let (ended, asked, failed) =
            (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let targets: Arc<std::sync::Mutex<Vec<SocketAddr>>> = Arc::default();
        let list = {
            let (ended, targets) = (Arc::clone(&ended), Arc::clone(&targets));
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let client = Client::new(Endpoint::Unix(socket));
                while !ended.load(Ordering::Relaxed) {
                    if let Ok(replicas) = runtime.block_on(client.replicas()) {
                        *targets.lock().unwrap() = addresses(&replicas);
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            })
        };
        let questions = {
            let (ended, asked, failed) = (Arc::clone(&ended), Arc::clone(&asked), Arc::clone(&failed));
            std::thread::spawn(move || {
                let mut turn = 0_usize;
                while !ended.load(Ordering::Relaxed) {
                    let addresses = targets.lock().unwrap().clone();
                    if !addresses.is_empty() {
                        turn += 1;
                        asked.fetch_add(1, Ordering::Relaxed);
                        let address = addresses[turn % addresses.len()];
                        if let Err(error) = get(address) {
                            println!("{address}: {error}");
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            })
        };
        Self { ended, asked, failed, threads: vec![list, questions] }
    }

    /// The number of requests, and of failed ones.
    fn end(self) -> (u64, u64) {
        self.ended.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        (self.asked.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }
}

fn get(address: SocketAddr) -> std::io::Result<()> {
    let limit = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200") {
        Ok(())
    } else {
        Err(std::io::Error::other(format!("it answers {answer:?}")))
    }
}

const SECRET: &str = "correct-horse-battery-staple";

/// One replica per host with a secret and a config, which prints one line.
const KEEPERS: &str = "\
name: vault
services:
  keeper:
    image: busybox:1
    pull_policy: never
    command: [\"sh\", \"-c\", \"trap 'exit 0' TERM; echo I keep it; while :; do sleep 1 & wait $!; done\"]
    secrets: [{ source: db_pass, mode: 0400 }]
    configs: [{ source: motto, target: /etc/motto }]
    deploy: { replicas: 3 }
secrets: { db_pass: { external: true } }
configs: { motto: { content: nothing is lost } }
";

/// Logs, files and `exec` of containers work from every host, and a secret is on no host's disk.
fn check_logs_exec_and_secrets(cluster: &Cluster) {
    let file = cluster.folder.path().join("secret");
    fs::write(&file, SECRET).unwrap();
    cluster.nodes[0].expect_json(&["secret", "put", "db_pass", "--file", file.to_str().unwrap()]);
    fs::remove_file(&file).unwrap();
    apply(cluster, KEEPERS);
    cluster.running(0, 3);
    for (at, asked) in cluster.nodes.iter().enumerate() {
        // A replica on another host than the one that answers.
        let status = asked.expect_json(&["status", "vault"]);
        let rows = status["replicas"].as_array().unwrap();
        let elsewhere = rows.iter().find(|row| row["node"] != asked.name.as_str()).unwrap();
        let id = elsewhere["id"].as_str().unwrap();
        assert_eq!(asked.text(&["exec", id, "cat", "/run/secrets/db_pass"]), SECRET);
        assert_eq!(asked.text(&["exec", id, "cat", "/etc/motto"]), "nothing is lost");
        let kind = ["exec", id, "busybox", "stat", "-f", "-c", "%T", "/run/secrets/db_pass"];
        assert_eq!(asked.text(&kind), "tmpfs");
        let writing = asked.ask(&["exec", id, "sh", "-c", "echo x > /run/secrets/db_pass"]);
        assert!(!writing.status.success(), "nobody may write a secret");
        assert_eq!(asked.ask(&["exec", id, "sh", "-c", "exit 7"]).status.code(), Some(7));
        let wrong = asked.ask(&["exec", id, "/no/such/program"]);
        assert!(!wrong.status.success(), "{wrong:?}");
        let lines = eventually("a line of each", || {
            let lines = asked.text(&["logs", "vault/keeper"]);
            (lines.lines().count() == 3).then_some(lines)
        });
        assert!(lines.lines().all(|line| line.ends_with(" | I keep it")), "{lines}");
        let engine = asked.engine.as_ref().unwrap();
        let name = engine.docker(&["ps", "--format", "{{.Names}}"]);
        assert!(!engine.docker(&["inspect", &name]).contains(SECRET), "host {at} shows the secret");
    }
    assert_eq!(files_on_disk_containing(cluster.folder.path(), SECRET.as_bytes()), Vec::<PathBuf>::new());
    shell(cluster);
    cluster.nodes[0].expect_json(&["rm", "vault"]);
    eventually("everything is gone", || engines(cluster).iter().all(Vec::is_empty).then_some(()));
    let left = cluster.nodes.iter().map(|node| fs::read_dir(node.data.join("agent/secrets")).unwrap().count());
    assert_eq!(left.sum::<usize>(), 0, "a secret outlived its replica");
}

/// An interactive shell in a container on another host.
fn shell(cluster: &Cluster) {
    let socket = cluster.nodes[1].data.join("longshore.sock");
    let mut terminal = terminal::Terminal::run(&["exec", "-it", "vault-keeper-0", "sh"], |command| {
        command.env("LONGSHORE_SOCKET", &socket);
    });
    terminal.press(b"echo I am $LONGSHORE_REPLICA; busybox stty size\r");
    terminal.wait_for("I am vault-keeper-0\n40 100");
    terminal.resize(50, 132);
    // The new size arrives asynchronously.
    std::thread::sleep(Duration::from_secs(1));
    terminal.press(b"busybox stty size\r");
    terminal.wait_for("\n50 132");
    terminal.press(b"exit 3\r");
    assert_eq!(terminal.wait_until_it_ends().code(), Some(3));
}

/// Files below a folder that contain these bytes, without those on other file systems mounted there.
fn files_on_disk_containing(folder: &Path, needle: &[u8]) -> Vec<PathBuf> {
    let disk = fs::metadata(folder).unwrap().dev();
    let mut found = files_containing(folder, needle);
    found.retain(|path| fs::metadata(path).is_ok_and(|metadata| metadata.dev() == disk));
    found
}

/// One service for every way a replica can end.
const FAILURES: &str = "\
name: fate
x-box: &box { image: \"busybox:1\", pull_policy: never }
services:
  crashes: { <<: *box, command: [sh, -c, \"sleep 0.2; exit 3\"] }
  hungry:
    <<: *box
    command: [sh, -c, \"x=aaaaaaaa; while :; do x=$$x$$x; done\"]
    deploy: { resources: { limits: { memory: 16m } }, restart_policy: { condition: none } }
  impossible: { <<: *box, command: [/no/such/program], deploy: { restart_policy: { condition: none } } }
  unfetched: { image: \"10.213.77.254:5/nothing:1\", command: [sh] }
  job: { <<: *box, command: [sh, -c, exit 0], deploy: { mode: replicated-job } }
  sickly:
    <<: *box
    command: [sh, -c, \"trap 'exit 0' TERM; echo > /tmp/well; while :; do sleep 1 & wait $!; done\"]
    healthcheck: { test: [CMD, cat, /tmp/well], interval: 500ms, retries: 2 }
  stateful:
    <<: *box
    command: [sh, -c, \"trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done\"]
    volumes: [\"things:/things\"]
  pinned:
    <<: *box
    command: [sh, -c, \"trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done\"]
    deploy: { placement: { constraints: [node.hostname == n2] } }
volumes: { things: {} }
";

fn row(cluster: &Cluster, id: &str) -> Option<Value> {
    let status = cluster.nodes[0].json(&["status", "fate"])?;
    status["replicas"].as_array()?.iter().find(|row| row["id"] == id).cloned()
}

/// Crashes, out-of-memory kills, failed health checks, missing images and completed jobs have different codes.
fn check_every_failure_code(cluster: &Cluster) {
    apply(cluster, FAILURES);
    let expected = [
        ("fate-crashes-0", "failed", "restart_exhausted"),
        ("fate-hungry-0", "failed", "oom_killed"),
        ("fate-impossible-0", "failed", "start_failed"),
        ("fate-unfetched-0", "pending", "image_pull_failed"),
        ("fate-job-0", "completed", ""),
        ("fate-sickly-0", "running", ""),
        ("fate-stateful-0", "running", ""),
        ("fate-pinned-0", "running", ""),
    ];
    for (id, state, code) in expected {
        eventually(&format!("{id} {state} {code}"), || {
            let row = row(cluster, id)?;
            (row["state"] == state && row["code"].as_str().unwrap_or_default() == code).then_some(())
        });
    }
    let crashes = row(cluster, "fate-crashes-0").unwrap();
    assert_eq!((&crashes["restarts"], &crashes["details"]["exit_code"]), (&2.into(), &3.into()), "{crashes:#}");

    // A failed health check makes the replica degraded, then restarts it.
    let mut events = UnixStream::connect(cluster.nodes[0].data.join("longshore.sock")).unwrap();
    events.write_all(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    events.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut told = String::new();
    let mut hear = |words: &[&str]| {
        let mut part = [0; 4096];
        while !told.lines().any(|line| words.iter().all(|word| line.contains(word))) {
            let length = events.read(&mut part).unwrap();
            told.push_str(&String::from_utf8_lossy(&part[..length]));
        }
    };
    hear(&["200 OK"]);
    cluster.nodes[0].text(&["exec", "fate-sickly-0", "busybox", "rm", "/tmp/well"]);
    hear(&["\"fate-sickly-0\"", "\"degraded\"", "\"healthcheck_failed\""]);
    eventually("restarted", || {
        let row = row(cluster, "fate-sickly-0")?;
        (row["restarts"] == 1 && row["state"] == "running").then_some(())
    });

    // Data does not move, and the drain names the replica.
    let home = row(cluster, "fate-stateful-0").unwrap()["node"].as_str().unwrap().to_owned();
    cluster.nodes[0].expect_json(&["node", "drain", &home]);
    eventually("the drain says what it waits for", || {
        let node = cluster.nodes[0].json(&["node", "inspect", &home])?;
        let left = node["drain"]["left"].as_array()?;
        let data = left.iter().any(|it| it["replica"] == "fate-stateful-0" && it["why"] == "drain_blocked_stateful");
        data.then_some(())
    });
    let stateful = row(cluster, "fate-stateful-0").unwrap();
    assert_eq!((&stateful["state"], &stateful["code"]), (&"running".into(), &"drain_blocked_stateful".into()));
    cluster.nodes[0].expect_json(&["node", "activate", &home]);
    drain_past_its_deadline(cluster);
    cluster.nodes[0].expect_json(&["rm", "fate"]);
    eventually("everything is gone", || engines(cluster).iter().all(Vec::is_empty).then_some(()));
}

/// A replica that fits no other node before the drain deadline keeps running, and the drain has timed out.
fn drain_past_its_deadline(cluster: &Cluster) {
    let before = cluster.nodes[1].engine.as_ref().unwrap().running();
    cluster.nodes[1].expect_json(&["cluster", "settings", "drain_timeout=3s"]);
    cluster.nodes[0].expect_json(&["node", "drain", "n2"]);
    let node = eventually("the drain is overdue", || {
        cluster.nodes[0].json(&["node", "inspect", "n2"]).filter(|node| node["drain"]["outcome"] == "timed_out")
    });
    let left = node["drain"]["left"].as_array().unwrap().iter().find(|it| it["replica"] == "fate-pinned-0").unwrap();
    assert_eq!((&node["intent"], &left["why"]), (&"draining".into(), &"constraint_unsatisfied".into()));
    let pinned = row(cluster, "fate-pinned-0").unwrap();
    assert_eq!((&pinned["state"], &pinned["code"]), (&"running".into(), &"drain_timeout".into()), "{pinned:#}");
    assert_eq!((&pinned["node"], &pinned["details"]["reason"]), (&"n2".into(), &left["why"]), "{pinned:#}");
    let after = cluster.nodes[1].engine.as_ref().unwrap().running();
    assert!(!after.is_empty() && after.iter().all(|it| before.contains(it)), "{after:?} of {before:?}");
    cluster.nodes[0].expect_json(&["node", "activate", "n2"]);
    assert_eq!(row(cluster, "fate-pinned-0").unwrap()["code"], Value::Null);
    let settings = cluster.nodes[2].expect_json(&["cluster", "settings", "drain_timeout=5m"]);
    assert_eq!(settings["drain_timeout"], "5m");
}

/// A registry on the bridge between the hosts, for `ann` with the password `sesame-of-the-registry`. Ends with its
/// value.
struct Registry(Child);

impl Registry {
    const ADDRESS: &str = "10.213.77.254:5077";
    const PASSWORDS: &str = "ann:$2b$04$Vv8dGyrAn8CmWsKReZIQou1t2BgjoGYs3ojZ0hdpwvW7Ve7ZXu3Ua\n";

    fn start(folder: &Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("passwords"), Self::PASSWORDS).unwrap();
        let place = folder.display();
        let config = format!(
            "version: 0.1\nlog: {{ level: error }}\nstorage: {{ filesystem: {{ rootdirectory: {place}/store }} }}\n\
             http: {{ addr: \"{}\" }}\nauth: {{ htpasswd: {{ realm: story, path: {place}/passwords }} }}\n",
            Self::ADDRESS
        );
        fs::write(folder.join("config.yml"), config).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(folder.join("config.yml")).stdout(Stdio::null()).stderr(Stdio::null());
        let registry = Self(command.spawn().unwrap());
        eventually("the registry listens", || TcpStream::connect(Self::ADDRESS).ok());
        registry
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Every host pulls a private image once the cluster has the login, which appears nowhere.
fn check_registry_login(cluster: &Cluster) {
    let registry = Registry::start(&cluster.folder.path().join("registry"));
    let image = format!("{}/private:1", Registry::ADDRESS);
    let engine = cluster.nodes[0].engine.as_ref().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let config = elsewhere.path().to_str().unwrap();
    engine.docker(&["--config", config, "login", Registry::ADDRESS, "-u", "ann", "-p", "sesame-of-the-registry"]);
    engine.docker(&["tag", "busybox:1", &image]);
    engine.docker(&["--config", config, "push", &image]);
    engine.docker(&["rmi", &image]);
    let manifest = format!(
        "name: private\nservices:\n  web:\n    image: \"{image}\"\n    command: [sh, -c, \"trap 'exit 0' TERM; \
         while :; do sleep 1 & wait $!; done\"]\n    deploy: {{ replicas: 3 }}\n"
    );
    apply(cluster, &manifest);
    eventually("nobody may have it", || {
        let status = cluster.nodes[0].json(&["status", "private"])?;
        let rows = status["replicas"].as_array()?.iter();
        (rows.filter(|row| row["code"] == "image_pull_failed").count() == 3).then_some(())
    });
    let file = elsewhere.path().join("password");
    fs::write(&file, "sesame-of-the-registry\n").unwrap();
    let login = ["registry", "login", Registry::ADDRESS, "-u", "ann", "--password-file", file.to_str().unwrap()];
    cluster.nodes[1].expect_json(&login);
    cluster.running(0, 3);
    assert!(cluster.nodes[2].text(&["registry", "ls"]).contains(Registry::ADDRESS));
    assert_eq!(files_on_disk_containing(cluster.folder.path(), b"sesame-of-the-registry"), Vec::<PathBuf>::new());
    let status = cluster.nodes[0].expect_json(&["status"]).to_string();
    assert!(!status.contains("sesame-of-the-registry"), "{status}");
    // No manifest can mount it as a file.
    let name = format!("registry:{}", Registry::ADDRESS);
    let thief = format!(
        "name: thief\nservices: {{ web: {{ image: \"busybox:1\", secrets: [s] }} }}\n\
         secrets: {{ s: {{ external: true, name: \"{name}\" }} }}\n"
    );
    let file = cluster.folder.path().join("thief.yaml");
    fs::write(&file, thief).unwrap();
    let refused = cluster.nodes[0].ask(&["apply", "-f", file.to_str().unwrap()]);
    assert!(!refused.status.success(), "{}", String::from_utf8_lossy(&refused.stdout));
    cluster.nodes[0].expect_json(&["registry", "logout", Registry::ADDRESS]);
    cluster.nodes[0].expect_json(&["rm", "private"]);
    eventually("everything is gone", || engines(cluster).iter().all(Vec::is_empty).then_some(()));
    drop(registry);
}

/// `longshore up` builds a missing image and uses an existing one; `apply` to several nodes warns.
fn check_image_builds(cluster: &Cluster) {
    let engine = cluster.nodes[0].engine.as_ref().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    write("src/Dockerfile", "FROM busybox:1\nARG GREETING\nLABEL greeting=$GREETING\nCOPY page /page\n");
    write("src/page", "first\n");
    write(
        "compose.yaml",
        "name: home\nservices:\n  web:\n    build: { context: src, args: { GREETING: hello } }\n    \
         command: [sh, -c, \"cat /page; trap 'exit 0' TERM; while :; do sleep 1 & wait $$!; done\"]\n",
    );
    let up = |more: &[&str]| {
        let log = folder.path().join("log");
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_longshore"));
        command.args(["up", "--docker"]).arg(engine.socket()).args(["--data-dir", "data"]).args(more);
        command.current_dir(folder.path()).stdout(fs::File::create(&log).unwrap());
        let mut child = command.stderr(fs::File::create(folder.path().join("err")).unwrap()).spawn().unwrap();
        eventually("it runs", || {
            let ended = child.try_wait().unwrap();
            assert_eq!(ended, None, "{}", fs::read_to_string(folder.path().join("err")).unwrap());
            fs::read_to_string(&log).ok().filter(|text| text.contains("home is active"))
        });
        let id = engine.docker(&["ps", "-q", "--filter", "ancestor=home-web"]);
        let said = engine.docker(&["logs", &id]);
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert!(child.wait().unwrap().success());
        let told = fs::read_to_string(folder.path().join("err")).unwrap();
        (said, told.contains("building home-web"))
    };
    assert_eq!(up(&[]), ("first".to_owned(), true), "an image that is missing is built");
    assert_eq!(engine.docker(&["image", "inspect", "-f", "{{.Config.Labels.greeting}}", "home-web"]), "hello");
    write("src/page", "second\n");
    assert_eq!(up(&[]), ("first".to_owned(), false), "one that is there is used");
    assert_eq!(up(&["--build"]), ("second".to_owned(), true), "unless it shall be built anew");

    let manifest = folder.path().join("compose.yaml");
    let applied = cluster.nodes[1].ask(&["apply", "-f", manifest.to_str().unwrap()]);
    let warned = String::from_utf8_lossy(&applied.stderr).into_owned();
    assert!(warned.contains("every node pulls `home-web`"), "{warned}");
    cluster.nodes[1].expect_json(&["rm", "home"]);
    eventually("it is gone", || cluster.nodes[1].json(&["status"])?["replicas"].as_array()?.is_empty().then_some(()));
}

#[test]
fn three_hosts_roll_out_an_update_under_load_and_outlive_their_control_plane() {
    let mut cluster = Cluster::on_engines(3);
    check_logs_exec_and_secrets(&cluster);
    check_every_failure_code(&cluster);
    check_registry_login(&cluster);
    check_image_builds(&cluster);
    let since = Instant::now();
    apply(&cluster, &manifest(10, "one"));
    active(&cluster, 1);
    println!("10 replicas on three hosts: active after {:?}", since.elapsed());

    apply(&cluster, &manifest(6, "one"));
    eventually("six are left", || {
        let status = cluster.nodes[2].json(&["status"]).filter(is_active)?;
        (status["replicas"].as_array()?.len() == 6).then_some(())
    });
    let load = Load::start(cluster.nodes[2].data.join("longshore.sock"));
    let since = Instant::now();
    apply(&cluster, &manifest(6, "two"));
    let status = eventually("rolled", || {
        let status = cluster.nodes[1].json(&["status"]).filter(is_active)?;
        let replicas = status["replicas"].as_array()?;
        let new = replicas.iter().all(|replica| replica["revision"] == 3);
        (new && replicas.len() == 6).then_some(status.clone())
    });
    println!("6 replicas rolled in {:?}", since.elapsed());
    let (asked, failed) = load.end();
    println!("{asked} requests, {failed} failed");
    assert!(asked > 100, "too few requests to prove anything: {asked}");
    assert_eq!(failed, 0, "of {asked}: {status:#}");

    // A changed comment restarts nothing.
    let before: Vec<Vec<String>> = engines(&cluster);
    let again = apply(&cluster, &format!("# the same\n{}", manifest(6, "two")));
    assert_eq!((&again["changed"], &again["revision"]), (&Value::from("no"), &Value::from(3)), "{again:#}");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(engines(&cluster), before);

    suspend_an_engine(&cluster);
    let before: Vec<Vec<String>> = engines(&cluster);

    cluster.nodes.iter_mut().for_each(test_cluster::Node::kill);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(engines(&cluster), before, "a control plane that is gone took containers along");
    cluster.nodes.iter_mut().for_each(test_cluster::Node::start);
    for row in active(&cluster, 0)["replicas"].as_array().unwrap() {
        // The status is from before the restart; an `exec` proves that the host has adopted the replica.
        let id = row["id"].as_str().unwrap();
        eventually("it is had again", || cluster.nodes[0].ask(&["exec", id, "echo"]).status.success().then_some(()));
    }
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(engines(&cluster), before, "one that came back restarted containers");
    let status = active(&cluster, 0);
    let untouched = |row: &Value| row["state"] == "running" && row["restarts"] == 0;
    assert!(status["replicas"].as_array().unwrap().iter().all(untouched), "{status:#}");

    // A host is lost: its replicas run elsewhere soon.
    let leader = cluster.leader();
    let lost = cluster.nodes[leader].name.clone();
    let since = Instant::now();
    cluster.nodes[leader].cable("down");
    let other = (leader + 1) % 3;
    eventually("full strength elsewhere", || {
        let status = cluster.nodes[other].json(&["status"])?;
        let replicas = status["replicas"].as_array()?;
        let elsewhere = replicas.iter().filter(|it| it["state"] == "running" && it["node"] != lost.as_str());
        (elsewhere.count() == 6).then_some(())
    });
    println!("the leader's host lost: full strength after {:?}", since.elapsed());
    let status = cluster.nodes[other].expect_json(&["status"]);
    let gone = status["replicas"].as_array().unwrap().iter().filter(|row| row["node"] == lost.as_str());
    assert!(gone.clone().count() > 0 && gone.clone().all(|it| it["state"] == "lost" && it["code"] == "node_lost"));
    cluster.nodes[leader].cable("up");
    eventually("what is no longer its own is gone", || {
        let counts: Vec<usize> = engines(&cluster).iter().map(Vec::len).collect();
        (counts.iter().sum::<usize>() == 6).then_some(())
    });
}

/// Replicas of an engine that hangs are reported as unreachable, and none is restarted.
fn suspend_an_engine(cluster: &Cluster) {
    let engine = cluster.nodes[1].engine.as_ref().unwrap();
    let since = Instant::now();
    engine.signal(rustix::process::Signal::STOP);
    let unseen = eventually("out of sight", || {
        let status = cluster.nodes[0].json(&["status"])?;
        let replicas = status["replicas"].as_array()?;
        let unseen = replicas.iter().any(|row| row["node"] == "n2" && row["code"] == "engine_unreachable");
        unseen.then(|| status["deployments"][0].clone())
    });
    let said = since.elapsed();
    engine.signal(rustix::process::Signal::CONT);
    assert_eq!(unseen["status"], "degraded", "{unseen:#}");
    let status = active(cluster, 0);
    println!("an engine hung: said after {said:?}, seen again and active after {:?}", since.elapsed());
    let restarted = |row: &Value| row["restarts"] != 0 || !row["code"].is_null();
    assert!(!status["replicas"].as_array().unwrap().iter().any(restarted), "{status:#}");
}

fn engines(cluster: &Cluster) -> Vec<Vec<String>> {
    cluster.nodes.iter().map(|node| node.engine.as_ref().unwrap().running()).collect()
}
