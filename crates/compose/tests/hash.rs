//! The spec hash: syntax and placement do not change it, any change of the container does.

use std::collections::BTreeMap;

use longshore_compose::load_text;
use proptest::prelude::*;

fn hash(text: &str) -> String {
    let (spec, _) = load_text("f.yaml", text, "d", "default").unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    spec.services["web"].spec_hash.to_string()
}

/// Keys of a service with everything the hash covers, one semantic unit each.
const BASE: &[(&str, &str)] = &[
    ("image", "web:1"),
    ("command", "[serve, --port, '80']"),
    ("entrypoint", "[/entry]"),
    ("environment", "{A: '1', B: two}"),
    ("labels", "{team: core}"),
    ("annotations", "{note: x}"),
    (
        "healthcheck",
        "{test: [CMD, check], interval: 10s, timeout: 3s, retries: 4, start_period: 5s, start_interval: 2s}",
    ),
    ("stop_signal", "SIGINT"),
    ("stop_grace_period", "20s"),
    ("user", "'1000'"),
    ("group_add", "[audio]"),
    ("working_dir", "/app"),
    ("hostname", "h"),
    ("domainname", "example.com"),
    ("ports", "['8080:80', '53:53/udp']"),
    ("volumes", "['data:/data', '/host:/host:ro', '/anonymous']"),
    ("tmpfs", "['/tmp:size=64m']"),
    ("networks", "[default]"),
    ("secrets", "[{source: s, target: t, mode: '0400'}]"),
    ("configs", "[c]"),
    ("cap_add", "[A]"),
    ("cap_drop", "[ALL]"),
    ("security_opt", "['x:y']"),
    ("devices", "['/dev/a:/dev/a']"),
    ("sysctls", "{net.a: '1'}"),
    ("ulimits", "{nofile: 5}"),
    ("shm_size", "64m"),
    ("dns", "[1.1.1.1]"),
    ("extra_hosts", "['a=1.2.3.4']"),
    ("read_only", "true"),
    ("init", "true"),
    ("logging", "{driver: json-file, options: {max-size: 1m}}"),
    ("pid", "host"),
    ("pids_limit", "10"),
    ("cpus", "0.5"),
    ("mem_limit", "100m"),
    ("gpus", "[{count: 1}]"),
];

/// The same keys with other values.
const EDITS: &[(&str, &str)] = &[
    ("image", "web:2"),
    ("command", "[serve, --port, '81']"),
    ("command", "[]"),
    ("entrypoint", "[/entry, x]"),
    ("environment", "{A: '1', B: three}"),
    ("environment", "{A: '1', B: two, C: ''}"),
    ("environment", "{A: '1', B: }"),
    ("labels", "{team: edge}"),
    ("labels", "{team: core, more: ''}"),
    ("annotations", "{note: y}"),
    (
        "healthcheck",
        "{test: [CMD, check], interval: 11s, timeout: 3s, retries: 4, start_period: 5s, start_interval: 2s}",
    ),
    (
        "healthcheck",
        "{test: [CMD, other], interval: 10s, timeout: 3s, retries: 4, start_period: 5s, start_interval: 2s}",
    ),
    (
        "healthcheck",
        "{test: [CMD, check], interval: 10s, timeout: 3s, retries: 5, start_period: 5s, start_interval: 2s}",
    ),
    ("healthcheck", "{disable: true}"),
    ("stop_signal", "SIGTERM"),
    ("stop_grace_period", "21s"),
    ("user", "'1001'"),
    ("group_add", "[video]"),
    ("working_dir", "/srv"),
    ("hostname", "i"),
    ("domainname", "example.org"),
    ("ports", "['8081:80', '53:53/udp']"),
    ("ports", "['8080:80', '53:53']"),
    ("ports", "[{target: 80, published: 8080, mode: host}, '53:53/udp']"),
    ("volumes", "['data:/data:ro', '/host:/host:ro', '/anonymous']"),
    ("volumes", "['data:/data', '/host:/host', '/anonymous']"),
    ("volumes", "['data:/data2', '/host:/host:ro', '/anonymous']"),
    ("volumes", "['data:/data', '/host2:/host:ro', '/anonymous']"),
    ("tmpfs", "['/tmp:size=65m']"),
    ("networks", "{default: {aliases: [x]}}"),
    ("networks", "[default, other]"),
    ("secrets", "[{source: s, target: u, mode: '0400'}]"),
    ("secrets", "[{source: s, target: t, mode: '0440'}]"),
    ("configs", "[{source: c, target: /elsewhere}]"),
    ("cap_add", "[B]"),
    ("cap_drop", "[]"),
    ("security_opt", "['x:z']"),
    ("devices", "['/dev/a:/dev/b']"),
    ("sysctls", "{net.a: '2'}"),
    ("ulimits", "{nofile: 6}"),
    ("shm_size", "65m"),
    ("dns", "[1.1.1.2]"),
    ("extra_hosts", "['a=1.2.3.5']"),
    ("read_only", "false"),
    ("init", "false"),
    ("logging", "{driver: json-file, options: {max-size: 2m}}"),
    ("pid", ""),
    ("pids_limit", "11"),
    ("cpus", "0.6"),
    ("mem_limit", "101m"),
    ("gpus", "[{count: 2}]"),
];

const REST: &str =
    "volumes: {data: }\nnetworks: {other: }\nsecrets: {s: {external: true}}\nconfigs: {c: {external: true}}\n";

fn manifest(keys: &[(&str, &str)]) -> String {
    let mut text = "services:\n  web:\n".to_owned();
    for (key, value) in keys {
        text += &["    ", key, ": ", value, "\n"].concat();
    }
    text + REST
}

#[test]
fn every_single_edit_changes_the_hash() {
    let mut seen = BTreeMap::from([(hash(&manifest(BASE)), "the base".to_owned())]);
    for (key, value) in EDITS {
        let edited: Vec<(&str, &str)> =
            BASE.iter().map(|(name, old)| (*name, if name == key { *value } else { *old })).collect();
        let before = seen.insert(hash(&manifest(&edited)), format!("{key}: {value}"));
        assert_eq!(before, None, "{key}: {value}");
    }
}

#[test]
fn scale_placement_and_policy_do_not_change_the_hash() {
    let keys: Vec<(&str, &str)> = BASE.iter().copied().filter(|(key, _)| *key != "volumes").collect();
    let base = hash(&manifest(&keys));
    for (key, value) in [
        ("deploy", "{replicas: 5}"),
        ("deploy", "{mode: global}"),
        ("deploy", "{labels: {a: b}, endpoint_mode: dnsrr}"),
        ("deploy", "{placement: {constraints: [node.role == worker], preferences: [{spread: node.labels.z}]}}"),
        ("deploy", "{update_config: {parallelism: 3, order: stop-first}, rollback_config: {delay: 1s}}"),
        ("deploy", "{restart_policy: {condition: none}}"),
        ("x-longshore", "{placement: pack, priority: 3, pool: x, canary: 1, rebalance: off, distinct_hosts: true}"),
        ("x-other", "anything"),
        ("restart", "always"),
        ("expose", "[80]"),
        ("depends_on", "{gone: {condition: service_started, required: false}}"),
    ] {
        let mut keys = keys.clone();
        keys.push((key, value));
        assert_eq!(hash(&manifest(&keys)), base, "{key}: {value}");
    }
}

#[test]
fn short_and_long_syntax_give_the_same_hash() {
    let pairs = [
        ("command: 'a \"b c\"'", "command: [a, b c]"),
        ("environment: [A=1, B=]", "environment: {B: '', A: 1}"),
        ("labels: [a=1]", "labels: {a: 1}"),
        ("ports: ['1-2:3-4']", "ports: [{target: 4, published: 2}, {target: 3, published: '1', protocol: tcp}]"),
        ("ports: ['127.0.0.1:5:5/udp']", "ports: [{target: 5, published: 5, protocol: udp, host_ip: 127.0.0.1}]"),
        ("volumes: ['data:/d:ro']", "volumes: [{type: volume, source: data, target: /d, read_only: true}]"),
        ("volumes: ['/h:/d']", "volumes: [{type: bind, source: /h, target: /d}]"),
        ("volumes: ['/h:/d/']", "volumes: [{type: bind, source: /h/, target: /d, bind: {create_host_path: true}}]"),
        (
            "volumes: ['/h:/d:z,rslave']",
            "volumes: [{type: bind, source: /h, target: /d, bind: {selinux: z, propagation: rslave}}]",
        ),
        ("tmpfs: '/t:size=1m'", "volumes: [{type: tmpfs, target: /t, tmpfs: {size: 1048576}}]"),
        ("secrets: [s]", "secrets: [{source: s, target: s}]"),
        ("secrets: [{source: s, mode: 0440}]", "secrets: [{source: s, mode: '0440'}]"),
        ("configs: [c]", "configs: [{source: c, target: /c}]"),
        ("healthcheck: {test: x}", "healthcheck: {test: [CMD-SHELL, x], interval: 30s, retries: 3}"),
        ("healthcheck: {disable: true}", "healthcheck: {test: [NONE]}"),
        ("ulimits: {nofile: 5}", "ulimits: {nofile: {soft: 5, hard: 5}}"),
        ("devices: [/dev/a]", "devices: [{source: /dev/a, target: /dev/a, permissions: rwm}]"),
        ("dns: 1.1.1.1", "dns: [1.1.1.1]"),
        ("extra_hosts: ['a:1.2.3.4']", "extra_hosts: {a: 1.2.3.4}"),
        ("networks: [default]", "networks: {default: }"),
        ("networks: [default]", "hostname: "),
        ("gpus: all", "deploy: {resources: {reservations: {devices: [{capabilities: [gpu], count: all}]}}}"),
        ("mem_limit: 1g", "deploy: {resources: {limits: {memory: 1024M}}}"),
        ("cpus: 0.5", "deploy: {resources: {limits: {cpus: '.50'}}}"),
        ("stop_grace_period: 90s", "stop_grace_period: 1m30s"),
        ("cap_add: [A, B]", "cap_add: [B, A, B]"),
        ("volumes: ['/h:/d', '/i:/e']", "volumes: ['/i:/e', '/h:/d']"),
        ("pull_policy: missing", "pull_policy: if_not_present"),
        ("sysctls: [a=1]", "sysctls: {a: 1}"),
    ];
    for (short, long) in pairs {
        let manifest = |key: &str| format!("services:\n  web:\n    image: a\n    {key}\n{REST}");
        assert_eq!(hash(&manifest(short)), hash(&manifest(long)), "{short}\n{long}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn order_comments_and_anchors_do_not_matter(
        order in Just((0..BASE.len()).collect::<Vec<_>>()).prop_shuffle(),
        comments in proptest::collection::vec(any::<bool>(), BASE.len()),
        anchored in proptest::collection::vec(any::<bool>(), BASE.len()),
    ) {
        let mut shared = "x-shared:\n".to_owned();
        let mut own = String::new();
        for at in order {
            let (key, value) = BASE[at];
            if comments[at] {
                own += "    # a remark\n\n";
            }
            if anchored[at] {
                shared += &["  ", key, ": &a", &at.to_string(), " ", value, "\n"].concat();
                own += &["    ", key, ": *a", &at.to_string(), "\n"].concat();
            } else {
                own += &["    ", key, ":   ", value, "   # why not\n"].concat();
            }
        }
        let text = [&shared, "  unused: 1\nservices:\n  web:\n", &own, REST].concat();
        prop_assert_eq!(hash(&text), hash(&manifest(BASE)));
    }

    #[test]
    fn merge_keys_spelled_out_or_not_agree(split in 0..BASE.len()) {
        let (first, second) = BASE.split_at(split);
        let lines = |keys: &[(&str, &str)], by: &str| -> String {
            keys.iter().flat_map(|(key, value)| [by, key, ": ", value, "\n"]).collect()
        };
        let text = ["x-base: &base\n  x-none: 1\n", &lines(first, "  "), "services:\n  web:\n    <<: *base\n", &lines(second, "    "), REST].concat();
        prop_assert_eq!(hash(&text), hash(&manifest(BASE)));
    }

    #[test]
    fn another_environment_is_another_hash(a in "[A-Z]{1,4}", left in "[ -~]{0,6}", right in "[ -~]{0,6}") {
        let with = |value: &str| hash(&manifest(&[
            ("image", "a"),
            ("environment", &["{", &a, ": ", &serde_json::Value::from(value.replace('$', "$$")).to_string(), "}"].concat()),
        ]));
        prop_assert_eq!(with(&left) == with(&right), left == right);
    }
}
