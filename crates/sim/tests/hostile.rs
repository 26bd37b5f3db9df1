//! No text makes the scenario parser panic, and none of it takes long.

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

/// Pieces a hostile or hurried hand puts into a file.
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

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
            prop_assert!(problems.iter().all(|problem| problem.place.line > 0 && problem.place.column > 0));
        }
    }

    #[test]
    fn any_text_at_all_is_read_or_refused(text in "(?s).{0,400}") {
        let _ = Scenario::parse("s.yaml", &text);
    }
}
