//! `longshore sim` from the command line: files, pipes, exit codes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

const GOOD: &str = "nodes: [ { name: a, cpu: 1, memory: 1GiB } ]
deployments:
  shop: |
    services: { web: { image: w } }
until: 10s
";

/// A file of its own for each test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, content: &[u8]) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&path, content).expect("the target folder can be written");
        Self(path)
    }
}

fn longshore(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longshore")).args(arguments).output().expect("the binary was built")
}

fn run(file: &Path) -> (Option<i32>, String, String) {
    let output = longshore(&["sim", "run", &file.to_string_lossy(), "--json"]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&*file.to_string_lossy(), "FILE");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_good_scenario_prints_one_object_with_every_key_and_exits_with_0() {
    let file = Scratch::new("good.yaml", GOOD.as_bytes());
    let (code, out, err) = run(&file.0);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let object: serde_json::Value = serde_json::from_str(&out).expect("it is JSON");
    let keys: Vec<&String> = object.as_object().expect("it is an object").keys().collect();
    assert_eq!(keys, ["deployments", "pending", "placements", "replicas", "stats", "timeline", "violations"]);
    assert_eq!(object["placements"]["shop-web-0"], "a");
    assert_eq!(object["deployments"][0]["status"], "active");
    assert!(object["stats"]["decide_us"].is_number());
}

#[test]
fn the_drawing_has_no_colour_when_it_is_not_for_a_terminal() {
    let file = Scratch::new("drawn.yaml", GOOD.as_bytes());
    let output = longshore(&["sim", "run", &file.0.to_string_lossy()]);
    let drawn = String::from_utf8(output.stdout).expect("it is text");
    assert!(drawn.contains("shop is active"), "{drawn}");
    assert!(!drawn.contains('\u{1b}'));
}

#[test]
fn a_bad_scenario_exits_with_2_and_says_where() {
    let file = Scratch::new("bad.yaml", b"nodes: [ { name: a, cpu: 1, memory: lots } ]\n");
    let (code, out, err) = run(&file.0);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.starts_with("FILE:1:37: error: `memory`: `lots` is not an amount of bytes"), "{err}");
}

#[test]
fn an_unreadable_file_is_refused_with_2_and_a_position() {
    let binary = Scratch::new("binary.yaml", b"nodes: []\nx: \xff\xfe");
    let large = Scratch::new("large.yaml", &vec![b'#'; 100 << 20]);
    let cases: [(&Path, &str); 4] = [
        (&binary.0, "FILE:2:4: error: the file is not text in UTF-8"),
        (&large.0, "FILE:1:1: error: the file is larger than 4 MiB"),
        (Path::new(env!("CARGO_TARGET_TMPDIR")), "FILE:1:1: error: the file is a directory"),
        (Path::new("no/such/file.yaml"), "FILE:1:1: error: the file does not exist"),
    ];
    for (path, beginning) in cases {
        let (code, _, err) = run(path);
        assert_eq!(code, Some(2), "{err}");
        assert!(err.starts_with(beginning), "{err}");
        assert!(err.contains("\n\nhint: "), "{err}");
    }
}

#[test]
fn a_closed_pipe_is_no_reason_to_panic() {
    let file = Scratch::new("piped.yaml", GOOD.as_bytes());
    let mut child = Command::new(env!("CARGO_BIN_EXE_longshore"))
        .args(["sim", "run", &file.0.to_string_lossy(), "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_benchmark_prints_every_figure() {
    let output =
        longshore(&["sim", "bench", "--nodes", "10", "--services", "3", "--replicas", "50", "--memory", "--json"]);
    let figures: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!((&figures["replicas"], &figures["placed"]), (&50.into(), &50.into()));
    for key in ["nodes", "services", "decide_ms", "ns_per_replica", "noop_us", "one_more_us", "max_rss_mib"] {
        assert!(figures[key].is_number(), "{key}");
    }
}

#[test]
fn a_benchmark_of_no_nodes_is_refused() {
    assert_eq!(
        longshore(&["sim", "bench", "--nodes", "0", "--services", "1", "--replicas", "1"]).status.code(),
        Some(2)
    );
}

#[test]
fn a_durable_benchmark_commits_what_it_decided_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    for (voters, repeat) in [("1", "2"), ("3", "1")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
        command.args(["sim", "bench", "--nodes", "10", "--services", "3", "--replicas", "50", "--memory", "--json"]);
        command.args(["--durable", "--voters", voters, "--repeat", repeat]).current_dir(folder.path());
        let output = command.output().expect("the binary was built");
        let figures: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        assert_eq!((&figures["committed"], figures["voters"].to_string()), (&50.into(), voters.to_owned()));
        assert!(figures["commit_ms"].as_f64() > Some(0.0) && figures["raw_sync_ms"].as_f64() > Some(0.0));
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0);
}

const THREE: &str = "nodes:
  - { name: a, cpu: 4, memory: 4GiB }
  - { name: b, cpu: 4, memory: 2GiB }
  - { name: c, cpu: 4, memory: 256MiB }
deployments:
  shop: |
    services:
      web: { image: w, x-longshore: { placement: binpack }, deploy: { replicas: 2, resources: { limits: { memory: 1g } } } }
      big: { image: b, deploy: { resources: { limits: { memory: 64g } } } }
until: 10s
";

#[test]
fn why_shows_the_candidates_who_was_refused_and_what_was_compared() {
    let file = Scratch::new("why.yaml", THREE.as_bytes());
    let output = longshore(&["sim", "run", &file.0.to_string_lossy(), "--why", "shop-web-0"]);
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stdout), @r"
    shop-web-0 is on b: binpack, 2 of 3 nodes fit
    refused: no_capacity_memory 1

       NODE  SCORE      BEST FIT  ANTI AFFINITY
    >  b     0.379873   0.379873
       a     -0.310063  0.379873  -1.000000
    ");
    let waiting = longshore(&["sim", "run", &file.0.to_string_lossy(), "--why", "shop-big-0"]);
    insta::assert_snapshot!(String::from_utf8_lossy(&waiting.stdout), @r"
    it waits: no_capacity_memory
    0 of 3 nodes fit: needs 64 GiB, best has 3 GiB free on a
    ");
    let json = longshore(&["sim", "run", &file.0.to_string_lossy(), "--why", "shop-web-0", "--json"]);
    let object: serde_json::Value = serde_json::from_slice(&json.stdout).expect("it is JSON");
    assert_eq!((&object["node"], &object["candidates"]), (&"b".into(), &2.into()));
    assert_eq!(object["best"][0]["keys"][0][0], "score");
}

#[test]
fn why_of_a_replica_that_is_not_there_exits_with_2_and_shows_how_they_are_named() {
    let file = Scratch::new("why-not.yaml", GOOD.as_bytes());
    let output = longshore(&["sim", "run", &file.0.to_string_lossy(), "--why", "web"]);
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stderr), @r"
    replica `web` does not exist at the end, or is stopping

    hint: replicas are named like `shop-web-0`
    ");
}

#[test]
fn fuzz_prints_a_summary_line() {
    let output = longshore(&["sim", "fuzz", "--seeds", "0..3"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).expect("it is text");
    // The numbers change with the scheduler; the words do not.
    let words: Vec<&str> = text.split_whitespace().filter(|word| word.parse::<f64>().is_err()).collect();
    assert_eq!(words.join(" "), "seeds, events, passes in s: no failures");
    assert!(text.starts_with("3 seeds, "), "{text}");
}

#[test]
fn fuzz_prints_one_json_object() {
    let output = longshore(&["sim", "fuzz", "--seeds", "3..5", "--json"]);
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), [].as_slice()));
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let keys: Vec<&String> = object.as_object().expect("it is an object").keys().collect();
    assert_eq!(keys, ["events", "failures", "passes", "seconds", "seeds"]);
    assert_eq!((&object["seeds"], object["failures"].as_array().map(Vec::len)), (&2.into(), Some(0)));
}

#[test]
fn a_range_without_seeds_is_refused_with_2() {
    for range in ["5..5", "9..2", "7", "a..b"] {
        let output = longshore(&["sim", "fuzz", "--seeds", range]);
        assert_eq!(output.status.code(), Some(2), "{range}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("write it like `0..300`"), "{range}");
    }
}

#[test]
fn a_cluster_that_does_not_converge_exits_with_3_and_names_the_rule() {
    let restless = r#"
nodes: [ { name: a, cpu: 1, memory: 1GiB } ]
images: { "ends:1": { exits: 1, after: 10s } }
deployments: { shop: "services: { web: { image: 'ends:1' } }" }
until: 20s
settle: 4m
"#;
    let file = Scratch::new("restless.yaml", restless.as_bytes());
    let output = longshore(&["sim", "run", &file.0.to_string_lossy(), "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(object["violations"][0]["invariant"], "quiet");
}
