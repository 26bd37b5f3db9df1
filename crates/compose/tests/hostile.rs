//! Hostile input: no panic, no hang, and bounded time and memory.

#[path = "../examples/hostile/attack.rs"]
mod attack;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use longshore_compose::{Memory, Output, Request, Secrets, config, constraint, load_text, units, yaml};
use proptest::prelude::*;

/// Resolves files; returns the printed result and the time it took.
fn run(files: &[(&str, &str)]) -> (String, Duration) {
    let memory = Memory(files.iter().map(|(name, text)| (format!("/p/{name}"), (*text).to_owned())).collect());
    let request = Request { working_directory: "/p".to_owned(), ..Request::default() };
    let start = Instant::now();
    let report = config(&request, &memory, Output::Yaml, Secrets::Hidden);
    let said = report.problems.to_string() + &report.text;
    (said, start.elapsed())
}

fn texts() -> Vec<String> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/compose");
    let mut found = Vec::new();
    for case in fs::read_dir(corpus).expect("the corpus") {
        let file = case.expect("a case").path().join("compose.yaml");
        found.extend(fs::read_to_string(file));
    }
    found.sort();
    assert!(found.len() > 50);
    found
}

/// The debug build is about ten times slower than the release binary, and the machine may be busy: this bound only
/// catches unbounded growth. `cargo run --release --example hostile` measures against the real limit of a second.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn attacks_are_resolved_or_refused_in_time() {
    for (name, text) in attack::attacks(30_000) {
        let (said, took) = run(&[("compose.yaml", &text)]);
        assert!(took < PATIENCE, "{name} took {took:?}");
        assert!(!said.is_empty(), "{name}");
    }
}

#[test]
fn files_that_refer_to_each_other_endlessly_are_refused_in_time() {
    let mut files = BTreeMap::new();
    for at in 0..400 {
        let text = format!("include: [f{}.yaml, f{}.yaml]\nservices: {{s{at}: {{image: a}}}}\n", at + 1, at + 2);
        files.insert(format!("f{at}.yaml"), text);
    }
    files.insert("compose.yaml".to_owned(), "include: [f0.yaml]\nservices: {a: {image: a}}\n".to_owned());
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let (said, took) = run(&files);
    assert!(took < PATIENCE, "{took:?}");
    assert!(said.contains("error"), "{said}");
}

/// Two hundred files, each an alias bomb of that many levels.
fn bombs(levels: usize) -> (String, Duration) {
    let mut bomb = "x-0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..levels {
        let below = vec![format!("*a{}", level - 1); 8].join(", ");
        bomb += &["x-", &level.to_string(), ": &a", &level.to_string(), " [", &below, "]\n"].concat();
    }
    let names: Vec<String> = (0..200).map(|at| format!("f{at}.yaml")).collect();
    let mut files = vec![("compose.yaml", format!("include: [{}]\nservices: {{a: {{image: a}}}}\n", names.join(", ")))];
    files.extend(names.iter().map(|name| (name.as_str(), bomb.clone())));
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    run(&files)
}

#[test]
fn many_alias_bombs_are_refused_in_time() {
    for (levels, answer) in [(5, "the files of one deployment have more than"), (6, "expands to more than")] {
        let (said, took) = bombs(levels);
        assert!(took < PATIENCE, "{took:?}");
        assert!(said.contains(answer), "{said}");
    }
}

#[test]
fn one_env_file_in_thousands_of_services_is_resolved_in_time() {
    let big = format!("A={}\n", "x".repeat(1 << 20));
    let services: String =
        (0..1000).flat_map(|at| ["  s".to_owned(), at.to_string(), ": {image: a, env_file: e}\n".to_owned()]).collect();
    let (said, _) = run(&[("compose.yaml", &format!("services:\n{services}")), ("e", &big)]);
    assert!(said.contains("makes the deployment too large"), "{}", &said[..said.len().min(300)]);
}

/// Characters and words with a meaning in the parsers, to corrupt texts with.
const SHARDS: [&str; 32] = [
    "${",
    "}",
    "$",
    "&a ",
    "*a ",
    "<<: ",
    "- ",
    ": ",
    "\n",
    "\n  ",
    "\t",
    "[",
    "]",
    "{",
    "}",
    "'",
    "\"",
    "|\n",
    "!reset ",
    "!override ",
    "null",
    "-1",
    "99999999999999999999",
    "../..",
    "\u{0}",
    "\u{feff}",
    "é",
    "extends: ",
    "include: ",
    "#",
    "---\n",
    "%YAML 1.2\n",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn broken_manifests_never_panic(
        which in any::<prop::sample::Index>(),
        wounds in prop::collection::vec((any::<prop::sample::Index>(), 0..SHARDS.len(), 0_usize..12), 1..6),
    ) {
        let texts = texts();
        let mut text: Vec<char> = which.get(&texts).chars().collect();
        for (at, shard, cut) in wounds {
            let at = at.index(text.len().max(1)).min(text.len());
            let end = (at + cut).min(text.len());
            text.splice(at..end, SHARDS[shard].chars());
        }
        let text: String = text.into_iter().collect();
        let (said, _) = run(&[("compose.yaml", &text), ("jaco.yaml", &text), (".env", &text)]);
        prop_assert!(!said.is_empty());
        if let Err(problems) = load_text("f", &text, "d", "default") {
            prop_assert!(problems.iter().all(|found| found.location.line > 0 && found.location.column > 0));
            let _ = problems.to_json();
        }
    }

    #[test]
    fn random_texts_never_panic(text in any::<String>(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let garbage = String::from_utf8_lossy(&bytes).into_owned();
        for text in [text, garbage] {
            let _ = yaml::parse("f", &text);
            let _ = constraint::parse(&text);
            let _ = units::parse_bytes(&text);
            let _ = units::parse_cpus(&text);
            let _ = units::parse_duration(&text);
            let _ = run(&[("compose.yaml", &format!("services: {{a: {{image: {text}}}}}")), (".env", &text)]);
            let key = serde_json::Value::from(text.clone()).to_string();
            for location in ["command", "ports", "volumes", "healthcheck", "deploy", "environment", "mem_limit", "x-longshore"] {
                let _ = load_text("f", &format!("services: {{a: {{image: a, {location}: [{key}]}}, b: {{{location}: {key}}}}}"), "d", "n");
            }
        }
    }

    #[test]
    fn trees_of_any_shape_never_panic(value in tree(), key in 0..KEYS.len()) {
        let text = format!("{{\"services\": {{\"a\": {{\"image\": \"a\", \"{}\": {value}}}}}, \"{}\": {value}}}", KEYS[key], TOPS[key % TOPS.len()]);
        let _ = run(&[("compose.yaml", &text), ("longshore.yaml", &text)]);
        let _ = run(&[("compose.yaml", &text)]);
    }
}

const TOPS: [&str; 7] = ["volumes", "networks", "secrets", "configs", "include", "routes", "name"];

const KEYS: [&str; 30] = [
    "ports",
    "volumes",
    "deploy",
    "healthcheck",
    "environment",
    "env_file",
    "extends",
    "networks",
    "depends_on",
    "build",
    "command",
    "secrets",
    "configs",
    "ulimits",
    "logging",
    "devices",
    "gpus",
    "tmpfs",
    "extra_hosts",
    "profiles",
    "x-longshore",
    "post_start",
    "sysctls",
    "labels",
    "label_file",
    "links",
    "network_mode",
    "mem_limit",
    "platform",
    "pull_policy",
];

/// JSON trees of the keys that the readers know.
fn tree() -> impl Strategy<Value = serde_json::Value> {
    const WORDS: [&str; 28] = [
        "mode",
        "replicas",
        "placement",
        "constraints",
        "resources",
        "limits",
        "devices",
        "source",
        "target",
        "type",
        "published",
        "a",
        "test",
        "interval",
        "service",
        "file",
        "path",
        "condition",
        "1",
        "80:80",
        "/a:/b",
        "0",
        "-1",
        "true",
        "1g",
        "",
        "node.role == worker",
        "${A:-b}",
    ];
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        (0..WORDS.len()).prop_map(|at| serde_json::Value::from(WORDS[at])),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::btree_map((0..WORDS.len()).prop_map(|at| WORDS[at].to_owned()), inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}
