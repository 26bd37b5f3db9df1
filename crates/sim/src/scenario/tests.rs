//! Diagnostics of invalid scenario files.

use super::*;

fn errors(text: &str) -> String {
    match Scenario::parse("s.yaml", text) {
        Ok(_) => "no errors".to_owned(),
        Err(problems) => problems.to_string(),
    }
}

const NODE: &str = "nodes: [ { name: a, cpu: 1, memory: 1GiB } ]\n";

#[test]
fn the_example_of_the_format_is_read_whole() {
    let scenario = Scenario::parse(
        "s.yaml",
        r#"
config: { cpu_overcommit_ratio: 2.5, default_memory: 64m, heartbeat_interval: 500ms, preemption: on }
nodes:
  - { name: a, count: 3, cpu: 4, memory: 8GiB, labels: { zone: east } }
  - { name: b, cpu: 8, memory: 16GiB, disk: 100GiB, arch: x86_64, devices: { gpu: 2 }, pool: batch, role: manager,
      engine_labels: { os: debian }, plugins: [ "volume/nfs" ], reserved: { memory: 1GiB }, addresses: 256,
      drivers: [ docker, exec ], ip: 10.0.0.7, overlay: cut }
images:
  "web:bad": { healthy: false, on: [ a-2 ] }
  "web:slow": { start: 90s, pull: 5s }
deployments:
  shop: |
    services: { web: { image: "web:1", deploy: { replicas: 3 } } }
timeline:
  - { at: 5m, node: a-1, do: return }
  - { at: 30s, apply: { shop: "services: { web: { image: 'web:2' } }" } }
  - { at: 40s, scale: { shop/web: 5 } }
  - { at: 45s, join: { name: c, cpu: 4, memory: 8GiB } }
  - { at: 50s, node: a-3, label: { zone: west } }
  - { at: 60s, node: a-1, do: fail }
  - { at: 11m, secret: { name: db-pass, version: 2 } }
  - { at: 12m, quota: { namespace: default, memory: 10GiB, replicas: 50 } }
  - { at: 13m, remove: shop }
until: 20m
"#,
    )
    .unwrap();
    assert_eq!(scenario.config.cpu_overcommit_millionths, 2_500_000);
    let names: Vec<&str> = scenario.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["a-1", "a-2", "a-3", "b"]);
    assert_eq!(scenario.nodes[3].platform.arch, "amd64");
    assert_eq!(scenario.nodes[3].allocatable_memory(), 15 << 30);
    let times: Vec<u64> = scenario.steps.iter().map(|step| step.at.0 / 1000).collect();
    assert_eq!(times, [0, 30, 40, 45, 50, 60, 300, 660, 720, 780]);
    assert_eq!(scenario.until, Time(1_200_000));
}

#[test]
fn an_unknown_key_is_told_from_a_slip_of_the_hand() {
    insta::assert_snapshot!(errors("node: []\n"), @r"
    s.yaml:1:1: error: a scenario needs the key `nodes`
      |
    1 | node: []
      | ^

    hint: add nodes like `nodes: [{ name: a, count: 3, cpu: 4, memory: 8GiB }]`

    s.yaml:1:1: error: unknown key `node` in a scenario
      |
    1 | node: []
      | ^^^^

    hint: did you mean `nodes`?
    ");
    insta::assert_snapshot!(errors("nodes: [ { name: a, cpus: 1, cpu: 1, memory: 1GiB } ]\n"), @r"
    s.yaml:1:21: error: unknown key `cpus` in a node
      |
    1 | nodes: [ { name: a, cpus: 1, cpu: 1, memory: 1GiB } ]
      |                     ^^^^

    hint: did you mean `cpu`?
    ");
    insta::assert_snapshot!(errors(&format!("{NODE}config: {{ cpu_overcommit: 4 }}\n")), @r"
    s.yaml:2:11: error: unknown key `cpu_overcommit` in `config`
      |
    2 | config: { cpu_overcommit: 4 }
      |           ^^^^^^^^^^^^^^

    hint: did you mean `cpu_overcommit_ratio`?
    ");
    insta::assert_snapshot!(errors(&format!("{NODE}timeline: [ {{ at: 1s, explode: a }} ]\n")), @r"
    s.yaml:2:23: error: unknown key `explode` in a timeline entry
      |
    2 | timeline: [ { at: 1s, explode: a } ]
      |                       ^^^^^^^

    hint: known are `apply`, `scale`, `rollback`, `promote`, `pause`, `resume`, `restart`, `stop`, `start`, `join`, `node`, `replica`, `secret`, `quota`, `remove`, `leader`, `pressure`, `rebalance` or `up`
    ");
}

#[test]
fn a_bad_unit_and_a_negative_number_are_shown() {
    insta::assert_snapshot!(errors("nodes: [ { name: a, cpu: -1, memory: 8 parsecs } ]\n"), @r"
    s.yaml:1:26: error: `cpu`: `-1` is not a number of cores; write it like `0.5` or `2`
      |
    1 | nodes: [ { name: a, cpu: -1, memory: 8 parsecs } ]
      |                          ^^

    s.yaml:1:38: error: `memory`: `8 parsecs` is not an amount of bytes; write it like `512m`, `1.5g` or `8GiB`
      |
    1 | nodes: [ { name: a, cpu: -1, memory: 8 parsecs } ]
      |                                      ^^^^^^^^^
    ");
    insta::assert_snapshot!(errors(&format!("{NODE}until: 10\n")), @r"
    s.yaml:2:8: error: `until`: `10` is not a duration; write it like `30s`, `1m30s` or `500ms`
      |
    2 | until: 10
      |        ^^
    ");
    insta::assert_snapshot!(errors(&format!("{NODE}images: {{ x: {{ exits: 300 }}, y: {{ pull: never }} }}\n")), @r"
    s.yaml:2:23: error: `exits` must be an exit code from 0 to 255
      |
    2 | images: { x: { exits: 300 }, y: { pull: never } }
      |                       ^^^

    s.yaml:2:41: error: `pull` must be `fail`, `not_found`, `denied` or a duration such as `5s`, not `never`
      |
    2 | images: { x: { exits: 300 }, y: { pull: never } }
      |                                         ^^^^^
    ");
}

#[test]
fn impossible_values_are_refused() {
    insta::assert_snapshot!(errors("nodes: [ { name: a, count: 0, cpu: 1, memory: 1GiB } ]\n"), @r"
    s.yaml:1:28: error: `count` must be at least 1
      |
    1 | nodes: [ { name: a, count: 0, cpu: 1, memory: 1GiB } ]
      |                            ^

    hint: remove the node if there is none
    ");
    insta::assert_snapshot!(errors("nodes: [ { name: a, cpu: 1, memory: 1GiB, reserved: { memory: 2GiB } } ]\n"), @r"
    s.yaml:1:63: error: `reserved.memory` is more than the node has
      |
    1 | nodes: [ { name: a, cpu: 1, memory: 1GiB, reserved: { memory: 2GiB } } ]
      |                                                               ^^^^
    ");
    insta::assert_snapshot!(errors(&format!("{NODE}config: {{ down_after_missed: 2 }}\n")), @r"
    s.yaml:2:30: error: `down_after_missed` must be more than `suspect_after_missed`
      |
    2 | config: { down_after_missed: 2 }
      |                              ^

    hint: a node is suspect first and down later; the defaults are 3 and 10
    ");
    insta::assert_snapshot!(errors("nodes: [ { name: \"a b\", cpu: 1, memory: 1GiB } ]\n"), @r#"
    s.yaml:1:18: error: `a b` cannot be a node's name
      |
    1 | nodes: [ { name: "a b", cpu: 1, memory: 1GiB } ]
      |                  ^^^^^

    hint: use at most 63 letters, digits, `-`, `_` and `.`, a letter or digit first
    "#);
    insta::assert_snapshot!(errors(&format!("{NODE}until: 400d\n")), @r"
    s.yaml:2:8: error: `until` is more than 31 days
      |
    2 | until: 400d
      |        ^^^^

    hint: shorten the run; `20m` is twenty minutes
    ");
}

#[test]
fn two_nodes_of_one_name_are_refused_wherever_they_come_from() {
    let twice = "nodes:\n  - { name: a, count: 2, cpu: 1, memory: 1GiB }\n  - { name: a-2, cpu: 1, memory: 1GiB }\n";
    insta::assert_snapshot!(errors(twice), @r"
    s.yaml:3:13: error: there are two nodes named `a-2`
      |
    3 |   - { name: a-2, cpu: 1, memory: 1GiB }
      |             ^^^

    hint: give each node a name of its own; `count: 3` makes `a-1`, `a-2` and `a-3` of `name: a`
    ");
    let joins = format!("{NODE}timeline:\n  - {{ at: 1m, join: {{ name: a, cpu: 1, memory: 1GiB }} }}\n");
    insta::assert_snapshot!(errors(&joins), @r"
    s.yaml:3:29: error: a node named `a` is already part of the cluster
      |
    3 |   - { at: 1m, join: { name: a, cpu: 1, memory: 1GiB } }
      |                             ^

    hint: give the new node a name of its own, or remove the old one first
    ");
}

#[test]
fn a_name_nobody_has_is_refused_with_the_one_probably_meant() {
    let text = "nodes: [ { name: east, cpu: 1, memory: 1GiB } ]
deployments:
  shop: |
    services: { web: { image: w } }
timeline:
  - { at: 1s, node: eats, do: fail }
  - { at: 2s, scale: { shop/wbe: 3 } }
  - { at: 3s, scale: { shp/web: 3 } }
  - { at: 4s, remove: shop }
  - { at: 5s, scale: { shop/web: 3 } }
images: { w: { healthy: false, on: [ west ] } }
";
    insta::assert_snapshot!(errors(text), @r"
    s.yaml:11:36: error: there is no node `west`
       |
    11 | images: { w: { healthy: false, on: [ west ] } }
       |                                    ^
    ");
    insta::assert_snapshot!(errors(&text.replace("images: { w: { healthy: false, on: [ west ] } }\n", "")), @r"
    s.yaml:6:21: error: there is no node `eats`
      |
    6 |   - { at: 1s, node: eats, do: fail }
      |                     ^^^^

    hint: did you mean `east`?

    s.yaml:7:24: error: deployment `shop` has no service `wbe`
      |
    7 |   - { at: 2s, scale: { shop/wbe: 3 } }
      |                        ^^^^^^^^

    hint: did you mean `web`?

    s.yaml:8:24: error: there is no deployment `shp`
      |
    8 |   - { at: 3s, scale: { shp/web: 3 } }
      |                        ^^^^^^^

    hint: did you mean `shop`?

    s.yaml:10:24: error: there is no deployment `shop`
       |
    10 |   - { at: 5s, scale: { shop/web: 3 } }
       |                        ^^^^^^^^

    hint: apply the deployment first
    ");
}

#[test]
fn a_malformed_constraint_inside_a_manifest_is_found_in_the_scenario() {
    let text = format!(
        "{NODE}deployments:\n  shop: |\n    services:\n      web:\n        image: w\n        deploy:\n          \
         placement:\n            constraints:\n              - node.labels.zone = east\n"
    );
    insta::assert_snapshot!(errors(&text), @r"
    s.yaml:10:17: error: service `web`: `node.labels.zone = east` needs one operator after `node.labels.zone`: `==`, `!=`, `<=`, `>=`, `<`, `>`, `regexp`, `version`, `semver`, `set_contains`, `set_contains_any`, `is_set`, `is_not_set` or `in`
       |
    10 |               - node.labels.zone = east
       |                 ^^^^^^^^^^^^^^^^^^^^^^^

    hint: equality is written `==`
    ");
    let inline =
        format!("{NODE}timeline:\n  - {{ at: 1s, apply: {{ shop: \"services: {{ web: {{ imgae: w }} }}\" }} }}\n");
    insta::assert_snapshot!(errors(&inline), @r#"
    s.yaml:3:43: error: service `web` has neither `image` nor `build`
      |
    3 |   - { at: 1s, apply: { shop: "services: { web: { imgae: w } }" } }
      |                                           ^^^

    hint: say what to run, for instance `image: nginx:1.27`

    s.yaml:3:50: error: unknown key `imgae` in service `web`
      |
    3 |   - { at: 1s, apply: { shop: "services: { web: { imgae: w } }" } }
      |                                                  ^^^^^

    hint: did you mean `image`?
    "#);
}

#[test]
fn what_the_state_machine_would_refuse_is_refused_before_the_run() {
    let text = format!(
        "{NODE}deployments:\n  shop: |\n    services:\n      db: {{ image: d, volumes: [ 'data:/d' ] }}\n      agent: {{ \
         image: a, deploy: {{ mode: global }} }}\n    volumes: {{ data: {{}} }}\ntimeline:\n  - {{ at: 1s, scale: {{ shop/db: 2 \
         }} }}\n  - {{ at: 2s, scale: {{ shop/agent: 2 }} }}\n"
    );
    insta::assert_snapshot!(errors(&text), @r#"
    s.yaml:9:24: error: service `db` mounts the volume `shop_data` and cannot have 2 replicas
      |
    9 |   - { at: 1s, scale: { shop/db: 2 } }
      |                        ^^^^^^^

    hint: use one replica, or keep the data outside of the service

    s.yaml:10:24: error: service "agent" uses placement=global; remove replicas (global runs one replica per ready node)
       |
    10 |   - { at: 2s, scale: { shop/agent: 2 } }
       |                        ^^^^^^^^^^

    hint: a global service follows the nodes; use constraints to choose them
    "#);
}

#[test]
fn an_entry_says_one_thing_at_one_time() {
    insta::assert_snapshot!(errors(&format!("{NODE}timeline: [ {{ at: 1s, remove: shop, scale: {{ a/b: 1 }} }} ]\n")), @r"
    s.yaml:2:37: error: an entry has one verb: `remove` or `scale`
      |
    2 | timeline: [ { at: 1s, remove: shop, scale: { a/b: 1 } } ]
      |                                     ^^^^^

    hint: write two entries with the same `at`; they happen in the order of the file
    ");
    insta::assert_snapshot!(errors(&format!("{NODE}timeline: [ {{ remove: shop }}, {{ at: 2s }}, {{ at: 3s, node: a }} ]\n")), @r"
    s.yaml:2:13: error: a timeline entry needs the key `at`
      |
    2 | timeline: [ { remove: shop }, { at: 2s }, { at: 3s, node: a } ]
      |             ^

    s.yaml:2:31: error: a timeline entry has no verb
      |
    2 | timeline: [ { remove: shop }, { at: 2s }, { at: 3s, node: a } ]
      |                               ^

    hint: add `apply`, `scale`, `rollback`, `promote`, `pause`, `resume`, `restart`, `stop`, `start`, `join`, `node`, `replica`, `secret`, `quota`, `remove`, `leader`, `pressure`, `rebalance` or `up`

    s.yaml:2:59: error: nothing happens to the node
      |
    2 | timeline: [ { remove: shop }, { at: 2s }, { at: 3s, node: a } ]
      |                                                           ^

    hint: add `do: fail` or `label: { zone: west }`
    ");
    insta::assert_snapshot!(errors(&format!("{NODE}timeline: [ {{ at: 1s, node: a, do: explode }} ]\n")), @r"
    s.yaml:2:36: error: `explode` cannot be done to a node
      |
    2 | timeline: [ { at: 1s, node: a, do: explode } ]
      |                                    ^^^^^^^

    hint: known are `fail`, `return`, `isolate`, `heal`, `pause`, `activate`, `drain`, `remove`, `degrade`, `override` or `lost`
    ");
}

#[test]
fn what_is_no_scenario_at_all_is_refused_politely() {
    for text in ["", "42", "- a\n", "\u{0}", "a: [", "nodes: { a: 1 }", "*x"] {
        assert_ne!(errors(text), "no errors", "{text:?}");
    }
    let deep = "[".repeat(10_000);
    assert!(errors(&deep).starts_with("s.yaml:1:"), "{}", errors(&deep));
    let long = format!("{NODE}x: {}\n", "y".repeat(9 << 20));
    assert!(errors(&long).starts_with("s.yaml:1:1: error:"));
}

/// The warnings of a valid file.
fn warnings(text: &str) -> String {
    let scenario = Scenario::parse("s.yaml", text).expect("the file is right");
    scenario.warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_is_due_after_the_end_of_the_run_is_refused_and_what_is_due_at_its_end_is_not() {
    let timeline = "timeline: [ { at: 60s, node: a, do: pause }, { at: 61s, node: a, do: activate } ]\nuntil: 1m\n";
    insta::assert_snapshot!(errors(&format!("{NODE}{timeline}")), @r"
    s.yaml:2:63: error: this step is never reached: it is due at 61s, and the run ends at 60s
      |
    2 | timeline: [ { at: 60s, node: a, do: pause }, { at: 61s, node: a, do: activate } ]
      |                                                               ^

    hint: set `until: 61s` or later
    ");
}

#[test]
fn a_host_that_is_never_there_is_told_and_one_that_joins_later_is_not() {
    let shop = r#"
deployments:
  shop: |
    services: { web: { image: "web:1", x-longshore: { placement: hosts, hosts: [ aa, b ] } } }
timeline: [ { at: 1m, join: { name: b, cpu: 1, memory: 1GiB } } ]
"#;
    insta::assert_snapshot!(warnings(&format!("{NODE}{shop}")), @r"
    s.yaml:4:3: warning: service `web` is pinned to `aa`, and no node of that name ever joins; did you mean `a`?
    ");
}

#[test]
fn faults_that_make_no_sense_are_refused_all_at_once() {
    let faults = "faults: { seed: -1, loss: 0.95, duplicate: often, delay: 6s, clock_step: 2m, agent_restarts: 0.1 }\n";
    insta::assert_snapshot!(errors(&format!("{NODE}{faults}")), @r"
    s.yaml:2:17: error: `seed` must be a whole number, zero or more, not `-1`
      |
    2 | faults: { seed: -1, loss: 0.95, duplicate: often, delay: 6s, clock_step: 2m, agent_restarts: 0.1 }
      |                 ^^

    s.yaml:2:27: error: `loss` must be at most 0.9
      |
    2 | faults: { seed: -1, loss: 0.95, duplicate: often, delay: 6s, clock_step: 2m, agent_restarts: 0.1 }
      |                           ^^^^

    hint: to drop every message, use `do: isolate`

    s.yaml:2:44: error: `duplicate` must be a number such as `0.5`, not `often`
      |
    2 | faults: { seed: -1, loss: 0.95, duplicate: often, delay: 6s, clock_step: 2m, agent_restarts: 0.1 }
      |                                            ^^^^^

    s.yaml:2:58: error: `delay` must be at most 5 s
      |
    2 | faults: { seed: -1, loss: 0.95, duplicate: often, delay: 6s, clock_step: 2m, agent_restarts: 0.1 }
      |                                                          ^^

    s.yaml:2:74: error: `clock_step` must be at most 60 s
      |
    2 | faults: { seed: -1, loss: 0.95, duplicate: often, delay: 6s, clock_step: 2m, agent_restarts: 0.1 }
      |                                                                          ^^

    s.yaml:2:78: error: unknown key `agent_restarts` in `faults`
      |
    2 | faults: { seed: -1, loss: 0.95, duplicate: often, delay: 6s, clock_step: 2m, agent_restarts: 0.1 }
      |                                                                              ^^^^^^^^^^^^^^

    hint: did you mean `agent_restart`?
    ");
}

#[test]
fn a_time_to_come_to_rest_in_that_is_no_time_is_refused() {
    insta::assert_snapshot!(errors(&format!("{NODE}settle: soon\n")), @r"
    s.yaml:2:9: error: `settle`: `soon` is not a duration; write it like `30s`, `1m30s` or `500ms`
      |
    2 | settle: soon
      |         ^^^^
    ");
}
