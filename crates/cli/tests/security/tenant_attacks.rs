//! Ways from a `deploy` token in one namespace to the machine, or to another tenant's data: each is refused by name.

use serde_json::{Value, json};

use crate::{
    raw_http::{Answer, ask, request},
    test_cluster::{Cluster, Node},
};

/// Refused by every namespace: the manifest has no such word.
const UNKNOWN_TO_MANIFESTS: &str = "manifest_invalid";

/// Ways of a service, each a YAML flow mapping beside `image: busybox:1`, with the rule that refuses it.
const OF_A_SERVICE: &[(&str, &str)] = &[
    ("privileged: true", "privileged"),
    ("post_start: [{command: [id], privileged: true}]", "privileged"),
    ("pre_stop: [{command: [id], privileged: true}]", "privileged"),
    ("network_mode: host", "host_namespaces"),
    ("network_mode: \"container:longshore_prod.bank-web-0_g1_r0\"", UNKNOWN_TO_MANIFESTS),
    ("network_mode: bridge", UNKNOWN_TO_MANIFESTS),
    ("network_mode: longshore_prod.bank_default", UNKNOWN_TO_MANIFESTS),
    ("pid: host", "host_namespaces"),
    ("pid: \"container:bank\"", UNKNOWN_TO_MANIFESTS),
    ("ipc: host", "host_namespaces"),
    ("ipc: \"container:bank\"", UNKNOWN_TO_MANIFESTS),
    ("uts: host", "host_namespaces"),
    ("userns_mode: host", "host_namespaces"),
    ("cgroup: host", "host_namespaces"),
    ("cgroup_parent: /", "host_namespaces"),
    ("cgroup_parent: /system.slice/longshore.service", "host_namespaces"),
    ("volumes: [\"/:/host\"]", "bind_mounts"),
    ("volumes: [\"/etc:/etc:ro\"]", "bind_mounts"),
    ("volumes: [\"/var/run/docker.sock:/var/run/docker.sock\"]", "bind_mounts"),
    ("volumes: [\"/run/containerd/containerd.sock:/c.sock\"]", "bind_mounts"),
    ("volumes: [\"/var/lib/longshore:/d\"]", "bind_mounts"),
    ("volumes: [\"/var/lib/docker/volumes:/v\"]", "bind_mounts"),
    ("volumes: [\"/proc:/p\"]", "bind_mounts"),
    ("volumes: [\"/sys/fs/cgroup:/c\"]", "bind_mounts"),
    ("volumes: [\"/run/longshore/secrets:/s\"]", "bind_mounts"),
    ("volumes: [\"../../../../etc:/e\"]", "bind_mounts"),
    ("volumes: [\"./x/../../../../:/e\"]", "bind_mounts"),
    ("volumes: [{type: bind, source: /root, target: /r, read_only: true}]", "bind_mounts"),
    ("volumes: [{type: bind, source: /, target: /r, bind: {propagation: rshared}}]", "bind_mounts"),
    ("volumes: [{type: bind, source: /srv, target: /r, bind: {selinux: Z}}]", "bind_mounts"),
    ("devices: [\"/dev/sda\"]", "devices"),
    ("devices: [\"/dev/mem:/dev/mem:rwm\"]", "devices"),
    ("devices: [\"/dev/../dev/kmsg\"]", "devices"),
    ("device_cgroup_rules: [\"b *:* rwm\"]", "devices"),
    ("gpus: all", "devices"),
    (
        "deploy: {resources: {reservations: {devices: [{driver: cdi, capabilities: [gpu], device_ids: [\"evil.com/x=all\"]}]}}}",
        "devices",
    ),
    ("cap_add: [ALL]", "capabilities"),
    ("cap_add: [SYS_ADMIN]", "capabilities"),
    ("cap_add: [cap_sys_ptrace]", "capabilities"),
    ("cap_add: [CAP_DAC_READ_SEARCH]", "capabilities"),
    ("cap_add: [sys_module]", "capabilities"),
    ("cap_add: [NET_ADMIN]", "capabilities"),
    ("security_opt: [\"seccomp=unconfined\"]", "security_options"),
    ("security_opt: [\"apparmor=unconfined\"]", "security_options"),
    ("security_opt: [\"apparmor:unconfined\"]", "security_options"),
    ("security_opt: [\"label=disable\"]", "security_options"),
    ("security_opt: [\"systempaths=unconfined\"]", "security_options"),
    ("security_opt: [\"no-new-privileges=false\"]", "security_options"),
    ("sysctls: {kernel.core_pattern: \"|/evil\"}", "sysctls"),
    ("sysctls: {net.ipv4.ip_forward: 1}", "sysctls"),
    ("runtime: runc-root", "runtimes"),
    ("annotations: {run.oci.hooks.x: /evil}", "runtimes"),
    ("logging: {driver: syslog, options: {syslog-address: \"unixgram:///dev/log\"}}", "log_drivers"),
    ("logging: {driver: evil-plugin}", "log_drivers"),
    ("environment: [AWS_SECRET_ACCESS_KEY]", "host_environment"),
    ("post_start: [{command: [id], environment: [LONGSHORE_TOKEN]}]", "host_environment"),
    ("oom_kill_disable: true", "oom_protection"),
    ("oom_score_adj: -1000", "oom_protection"),
    ("ports: [\"22:22\"]", "host_ports"),
    ("ports: [{target: 80, published: 80, mode: host}]", "host_ports"),
    ("ports: [{target: 53, published: 53, protocol: udp, host_ip: 127.0.0.1}]", "host_ports"),
    ("command: [id], x-longshore: {driver: exec}", "exec_users"),
    ("command: [id], user: root, x-longshore: {driver: exec}", "exec_users"),
    ("command: [id], user: \"0\", x-longshore: {driver: exec}", "exec_users"),
    ("command: [id], user: \"00:1000\", x-longshore: {driver: exec}", "exec_users"),
    ("command: [id], user: \"+0\", x-longshore: {driver: exec}", "exec_users"),
    ("command: [id], user: \"nobody:docker\", x-longshore: {driver: exec}", "exec_users"),
    ("command: [id], user: \"nobody\", x-longshore: {driver: exec}", "exec_users"),
];

/// Ways of the other sections, with a service that uses them.
const OF_A_DEPLOYMENT: &[(&str, &str)] = &[
    (
        "services: {w: {image: busybox:1, volumes: [\"x:/x\"]}}\nvolumes: {x: {name: longshore_prod.bank_data}}",
        "engine_names",
    ),
    (
        "services: {w: {image: busybox:1, volumes: [\"x:/x\"]}}\nvolumes: {x: {external: true, name: longshore_prod.bank_data}}",
        "engine_names",
    ),
    (
        "services: {w: {image: busybox:1, volumes: [\"x:/x\"]}}\nvolumes: {x: {external: {name: longshore_prod.bank_data}}}",
        "engine_names",
    ),
    (
        "services: {w: {image: busybox:1, volumes: [\"longshore_shop_data:/x\"]}}\nvolumes: {longshore_shop_data: {external: true}}",
        "engine_names",
    ),
    ("services: {w: {image: busybox:1, volumes: [\"x:/x\"]}}\nvolumes: {x: {name: bank_data}}", "engine_names"),
    ("services: {w: {image: busybox:1, volumes: [\"x:/x\"]}}\nvolumes: {x: {name: evil_other}}", "engine_names"),
    (
        "services: {w: {image: busybox:1, volumes: [\"x:/x\"]}}\nvolumes: {x: {driver: local, driver_opts: {type: none, o: bind, device: /}}}",
        "volume_drivers",
    ),
    (
        "services: {w: {image: busybox:1, volumes: [\"x:/x\"]}}\nvolumes: {x: {driver_opts: {type: nfs, o: \"addr=10.0.0.1,rw\", device: \":/prod\"}}}",
        "volume_drivers",
    ),
    ("services: {w: {image: busybox:1, volumes: [\"x:/x\"]}}\nvolumes: {x: {driver: sshfs}}", "volume_drivers"),
    (
        "services: {w: {image: busybox:1, networks: [x]}}\nnetworks: {x: {external: true, name: longshore_prod.bank_default}}",
        "engine_names",
    ),
    (
        "services: {w: {image: busybox:1, networks: [x]}}\nnetworks: {x: {name: longshore_prod.bank_default}}",
        "engine_names",
    ),
    ("services: {w: {image: busybox:1, networks: [x]}}\nnetworks: {x: {external: true, name: host}}", "engine_names"),
    ("services: {w: {image: busybox:1, networks: [x]}}\nnetworks: {x: {external: true, name: bridge}}", "engine_names"),
    ("services: {w: {image: busybox:1}}\nnetworks: {default: {external: true, name: prod_net}}", "engine_names"),
    (
        "services: {w: {image: busybox:1, networks: [x]}}\nnetworks: {x: {driver: macvlan, driver_opts: {parent: eth0}}}",
        "network_drivers",
    ),
    ("services: {w: {image: busybox:1, networks: [x]}}\nnetworks: {x: {driver: host}}", "network_drivers"),
    (
        "services: {w: {image: busybox:1, networks: [x]}}\nnetworks: {x: {driver_opts: {com.docker.network.bridge.name: docker0}}}",
        "network_drivers",
    ),
    ("services: {w: {image: busybox:1, networks: {x: {driver_opts: {a: b}}}}}\nnetworks: {x: {}}", "network_drivers"),
];

fn apply(node: &Node, token: &str, namespace: &str, manifest: &str) -> Answer {
    send(node, token, "POST /v1/deployments", &manifest_body(namespace, manifest))
}

fn manifest_body(namespace: &str, manifest: &str) -> Value {
    json!({
        "files": ["compose.yaml"], "texts": {"/w/evil/compose.yaml": manifest}, "working_directory": "/w/evil",
        "name": "evil", "namespace": namespace,
    })
}

fn send(node: &Node, token: &str, line: &str, body: &Value) -> Answer {
    let body = body.to_string();
    let head = String::from_utf8(request(line, Some(token))).unwrap();
    let fields = format!("\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    ask(node, head.replace("\r\n\r\n", &fields).as_bytes()).unwrap()
}

/// What is wrong with the answer to an attack; `None` if it was refused by its rule, with key and remedy.
fn slips_through(node: &Node, token: &str, manifest: &str, rule: &str) -> Option<String> {
    let answer = apply(node, token, "team", manifest);
    if rule == UNKNOWN_TO_MANIFESTS {
        return (answer.code() != "manifest_invalid").then(|| format!("{manifest}: {}", answer.body));
    }
    let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let denied = body["details"]["denied"].as_array().cloned().unwrap_or_default();
    let is_named =
        denied.iter().any(|denied| denied["rule"] == rule && denied["key"].as_str().is_some_and(|key| !key.is_empty()));
    let has_remedy = body["details"]["hint"].as_str().is_some_and(|hint| hint.contains("longshore policy set team"));
    let is_refused = (answer.status, answer.code().as_str()) == (403, "policy_denied");
    (!is_refused || !is_named || !has_remedy).then(|| format!("{manifest}: {}", answer.body))
}

fn attacks() -> impl Iterator<Item = (String, &'static str)> {
    let services =
        OF_A_SERVICE.iter().map(|(way, rule)| (format!("services: {{w: {{image: \"busybox:1\", {way}}}}}"), *rule));
    services.chain(OF_A_DEPLOYMENT.iter().map(|(manifest, rule)| ((*manifest).to_owned(), *rule)))
}

#[test]
fn a_deploy_token_of_a_new_namespace_reaches_neither_the_machine_nor_another_tenant() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let token = node.token(&["tenant", "--role", "deploy", "--namespace", "team"]);
    let plain = "services: {w: {image: \"busybox:1\", command: [sleep, \"600\"]}}";
    let untouched = apply(node, &token, "team", plain);
    assert_eq!((untouched.status, untouched.code().as_str()), (403, "policy_denied"), "{}", untouched.body);
    // From here on images are allowed, so that every way is refused by its own rule.
    node.expect_json(&["policy", "set", "team", "images=busybox"]);
    let ways: Vec<(String, &str)> = attacks().collect();
    let let_in: Vec<String> =
        ways.iter().filter_map(|(manifest, rule)| slips_through(node, &token, manifest, rule)).collect();
    assert!(let_in.is_empty(), "{}", let_in.join("\n"));
    let tried = ways.len();
    assert!(tried >= 80, "only {tried} ways were tried");
    assert_eq!(node.expect_json(&["status", "-n", "team"])["replicas"].as_array().map(Vec::len), Some(0));
    assert_eq!(apply(node, &token, "team", plain).status, 200, "an ordinary manifest is let in");
}

#[test]
fn the_name_of_a_namespace_cannot_spell_the_volumes_of_another() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let admin = node.token(&["ops", "--role", "admin"]);
    for name in ["prod.bank", "a_b", "", "../x", "Team", "te\u{200b}am", "x/y"] {
        let answer = apply(node, &admin, name, "services: {w: {image: \"busybox:1\"}}");
        assert_eq!((answer.status, answer.code().as_str()), (400, "request_invalid"), "{name:?}: {}", answer.body);
    }
}

#[test]
fn the_exec_driver_runs_as_root_only_for_an_admin_of_the_cluster_or_by_the_word_of_the_policy() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let (scoped, deploy) = (
        node.token(&["scoped", "--role", "admin", "--namespace", "default"]),
        node.token(&["deploy", "--role", "deploy"]),
    );
    let manifest = "services: {w: {image: none, command: [sleep, \"600\"], x-longshore: {driver: exec}}}";
    for token in [&scoped, &deploy] {
        let answer = apply(node, token, "default", manifest);
        assert_eq!(answer.code(), "policy_denied", "{}", answer.body);
        assert!(answer.body.contains("services.w.user"), "{}", answer.body);
        let other = "services: {w: {image: \"busybox:1\", volumes: [\"x:/x\"]}}\nvolumes: {x: {name: longshore_prod.bank_data}}";
        assert_eq!(apply(node, token, "default", other).code(), "policy_denied", "another namespace's volume");
    }
    let admin = node.token(&["ops", "--role", "admin"]);
    assert_eq!(apply(node, &admin, "default", manifest).status, 200);
    // A command beside it would be root, too.
    crate::test_cluster::eventually("it runs", || {
        let rows = node.expect_json(&["status"])["replicas"].clone();
        rows.as_array()?.iter().all(|row| row["state"] == "running").then_some(())
    });
    let body = json!({"command": ["id"]});
    let refused = send(node, &deploy, "POST /v1/replicas/evil-w-0/exec", &body);
    assert_ne!(refused.status, 101);
    node.expect_json(&["policy", "set", "default", "exec_users=root"]);
    assert_eq!(apply(node, &deploy, "default", &manifest.replace("600", "601")).status, 200);
    node.expect_json(&["rm", "evil"]);
}

#[test]
fn a_tightened_policy_stops_nothing_and_lets_nothing_old_back_in() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let token = node.token(&["tenant", "--role", "deploy", "--namespace", "team"]);
    node.expect_json(&["policy", "set", "team", "--only", "images=yes", "exec_users=root,nobody"]);
    let old = "services: {w: {image: none, command: [sleep, \"600\"], x-longshore: {driver: exec}}}";
    assert_eq!(apply(node, &token, "team", old).status, 200);
    let running = || {
        let rows = node.expect_json(&["status", "-n", "team"])["replicas"].clone();
        let first = rows.as_array()?.first()?.clone();
        (first["state"] == "running").then(|| first["since_ms"].clone())
    };
    let since = crate::test_cluster::eventually("it runs", running);
    node.expect_json(&["policy", "set", "team", "exec_users=nobody"]);
    let tested = send(node, &token, "POST /v1/policy-test", &manifest_body("team", old));
    assert!(tested.body.contains("exec_users"), "{}", tested.body);
    let scale =
        send(node, &token, "POST /v1/deployments/evil/services/w/scale?namespace=team", &json!({"replicas": 2}));
    assert_eq!(scale.code(), "policy_denied", "{}", scale.body);
    let narrow = old.replace("command", "user: nobody, command");
    assert_eq!(apply(node, &token, "team", &narrow).status, 200);
    let back = send(node, &token, "POST /v1/deployments/evil/rollback?namespace=team", &json!({"to": 1}));
    assert_eq!(back.code(), "policy_denied", "{}", back.body);
    assert!(since.is_u64(), "{since}");
    let audit = node.expect_json(&["audit"]).to_string();
    assert!(audit.contains("policy_set"), "{audit}");
    node.expect_json(&["rm", "evil", "-n", "team"]);
}

#[test]
fn a_plain_process_with_a_user_reads_its_own_secret_and_nobody_elses() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let token = node.token(&["tenant", "--role", "deploy", "--namespace", "team"]);
    node.expect_json(&["policy", "set", "team", "exec_users=nobody,daemon"]);
    let script = "id -u; id -g; cat $$LONGSHORE_FILE_PASS; echo; sleep 600";
    let service = |user: &str| {
        format!(
            "{{image: none, user: {user}, command: [sh, -c, \"{script}\"], secrets: [pass], x-longshore: {{driver: exec}}}}"
        )
    };
    let manifest = format!("services: {{w: {}}}\nsecrets: {{pass: {{environment: PASS}}}}", service("nobody"));
    let mut body = manifest_body("team", &manifest);
    body["environment"] = json!({"PASS": "hunter2"});
    let answer = send(node, &token, "POST /v1/deployments", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let lines = crate::test_cluster::eventually("it prints its secret", || {
        let logs = node.ask(&["logs", "evil", "-n", "team"]);
        let text = String::from_utf8_lossy(&logs.stdout).into_owned();
        text.contains("hunter2").then_some(text)
    });
    assert!(lines.contains("65534"), "it runs as nobody, with nobody's group: {lines}");
    node.expect_json(&["rm", "evil", "-n", "team"]);
}
