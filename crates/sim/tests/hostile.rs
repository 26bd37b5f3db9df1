//! No text makes the scenario parser or the constraint parser panic, and every accepted scenario can be run.
//!
//! `PROPTEST_CASES=100000 cargo test --release -p longshore-sim --test hostile` runs long.

use longshore_compose::constraint;
use longshore_sim::Scenario;
use proptest::prelude::*;

const GOOD: &str = r#"config: { cpu_overcommit_ratio: 4.0, default_memory: 0, heartbeat_interval: 1s }
nodes:
  - { name: a, count: 3, cpu: 4, memory: 8GiB, labels: { zone: east } }
  - { name: b, cpu: 8, memory: 16GiB, disk: 100GiB, arch: arm64, devices: { gpu: 2 }, plugins: [ "volume/nfs" ] }
images:
  "web:bad": { healthy: false, on: [ a-2 ] }
deployments:
  shop: |
    services: { web: { image: "web:1", deploy: { replicas: 3, placement: { constraints: [ "node.labels.zone == east" ] } } } }
timeline:
  - { at: 30s, apply: { shop: "services: { web: { image: 'web:2' } }" } }
  - { at: 40s, scale: { shop/web: 5 } }
  - { at: 60s, node: a-1, do: fail }
until: 2m
"#;

/// Pieces of malformed text, put into a valid file.
fn pieces() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("\t".to_owned()),
        Just("{ ".to_owned()),
        Just("[[[[".to_owned()),
        Just("&x *x ".to_owned()),
        Just("<<: *x\n".to_owned()),
        Just("-1".to_owned()),
        Just("99999999999999999999".to_owned()),
        Just("\u{0}".to_owned()),
        Just("\n- ".to_owned()),
        Just("!!binary ".to_owned()),
        Just("? ".to_owned()),
        ".{0,12}",
    ]
}

/// One expression for each operator, and for each kind of node attribute.
const EXPRESSIONS: &[&str] = &[
    "node.labels.zone == east",
    "engine.labels.os != debian",
    "node.labels.size < 10",
    "node.labels.size >= 2.5",
    "node.hostname regexp ^a-[0-9]+$",
    "node.labels.kernel version >= 5.4, < 6",
    "node.labels.kernel semver >= 5.4.0-rc.1",
    "node.labels.disks set_contains ssd,nvme",
    "node.labels.disks set_contains_any ssd,hdd",
    "node.labels.gpu is_set",
    "node.labels.gpu is_not_set",
    "node.role in manager,worker",
    "node.ip == 10.0.0.0/8",
    "node.platform.arch == x86_64",
];

/// Pieces of expressions, put where they do not belong.
fn slips() -> impl Strategy<Value = String> {
    let words = vec![
        "==", "=", "!", "<", "regexp", "version", "semver", "in", "is_set", ",", " ", "(", "[", "*", "\\", "1e999",
    ];
    let more =
        vec!["^", "~> 1", "0x", "/129", "::", "\u{0}", "\n", "é", "node.", "labels.", "\"", "{1000}{1000}", "-", "."];
    prop_oneof![
        prop::sample::select(words).prop_map(str::to_owned),
        prop::sample::select(more).prop_map(str::to_owned),
        ".{0,6}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512.max(ProptestConfig::default().cases)))]

    #[test]
    fn a_good_file_with_anything_put_into_it_is_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..40, pieces()), 1..6),
    ) {
        let mut text: Vec<char> = GOOD.chars().collect();
        for (at, cut, piece) in changes {
            let from = at.index(text.len() + 1);
            let to = (from + cut).min(text.len());
            text.splice(from..to, piece.chars());
        }
        let text: String = text.into_iter().collect();
        if let Err(problems) = Scenario::parse("s.yaml", &text) {
            prop_assert!(problems.has_errors());
            prop_assert!(problems.iter().all(|problem| problem.location.line > 0 && problem.location.column > 0));
        }
    }

    #[test]
    fn a_constraint_with_anything_put_into_it_is_refused_or_reads_back_and_is_answered(
        which in prop::sample::select(EXPRESSIONS),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..8, slips()), 0..4),
    ) {
        let mut text: Vec<char> = which.chars().collect();
        for (at, cut, slip) in changes {
            let from = at.index(text.len() + 1);
            let to = (from + cut).min(text.len());
            text.splice(from..to, slip.chars());
        }
        let expression: String = text.into_iter().collect();
        let Ok(known) = constraint::parse(&expression) else { return Ok(()) };
        prop_assert_eq!(constraint::parse(&known.to_string()).ok(), Some(known));
        let quoted = serde_json::to_string(&expression).expect("a text");
        let manifest = format!("services: {{ web: {{ image: w, deploy: {{ placement: {{ constraints: [ {quoted} ] }} }} }} }}");
        let labels = "zone: east, size: '3', kernel: 5.10.0, disks: 'ssd,nvme'";
        let nodes = format!("nodes: [ {{ name: a-1, cpu: 1, memory: 1GiB, ip: 10.0.0.7, labels: {{ {labels} }} }} ]");
        let deployment = serde_json::to_string(&manifest).expect("a text");
        // A `$` is a variable of the manifest, which may be undefined: not tested here.
        let Ok(scenario) = Scenario::parse("s.yaml", &format!("{nodes}\ndeployments: {{ shop: {deployment} }}\nuntil: 5s\n")) else {
            return Ok(());
        };
        let report = longshore_sim::run(&scenario);
        prop_assert!(report.violations.is_empty());
        prop_assert_eq!(report.placements.len() + report.pending.len(), 1, "it is placed or explained");
    }

    #[test]
    fn any_text_at_all_is_read_or_refused(text in "(?s).{0,400}") {
        let _ = Scenario::parse("s.yaml", &text);
    }
}
