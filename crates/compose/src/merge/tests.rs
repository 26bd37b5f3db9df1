//! The rules of the specification, one by one.

use super::*;
use crate::yaml::parse;

/// Lays two services over each other and prints one key of the result, flow style.
fn merged(base: &str, over: &str) -> String {
    let file = |text: &str| parse("f", &format!("services: {{a: {{{text}}}}}")).unwrap_or_else(|p| panic!("{p}"));
    let mut problems = Diagnostics::new();
    let node = merge(file(base), file(over), &mut problems);
    assert!(problems.is_empty(), "{problems}");
    print(node.get("services").and_then(|services| services.get("a")).expect("the service"))
}

fn print(node: &Node) -> String {
    match &node.value {
        Value::Scalar(scalar) => scalar.text.to_string(),
        Value::Sequence(items) => format!("[{}]", items.iter().map(print).collect::<Vec<_>>().join(", ")),
        Value::Mapping(mapping) => {
            let entries: Vec<String> =
                mapping.iter().map(|(key, node)| format!("{}: {}", key.name, print(node))).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

#[test]
fn texts_are_replaced_and_lists_appended() {
    assert_eq!(merged("image: a, cap_add: [x]", "image: b, cap_add: [y]"), "{image: b, cap_add: [x, y]}");
    assert_eq!(merged("ports: ['1:1']", "ports: ['2:2']"), "{ports: [1:1, 2:2]}");
    assert_eq!(merged("image: a", "image: "), "{image: a}");
}

#[test]
fn commands_and_health_tests_are_replaced() {
    assert_eq!(merged("command: [a, b]", "command: [c]"), "{command: [c]}");
    assert_eq!(merged("entrypoint: a", "entrypoint: [c]"), "{entrypoint: [c]}");
    assert_eq!(
        merged("healthcheck: {test: [CMD, a], retries: 2}", "healthcheck: {test: b}"),
        "{healthcheck: {test: b, retries: 2}}"
    );
}

#[test]
fn environment_and_labels_are_merged_by_key_in_either_form() {
    assert_eq!(merged("environment: [A=1, B=2]", "environment: {B: 3, C: 4}"), "{environment: {A: 1, B: 3, C: 4}}");
    assert_eq!(merged("labels: {a: 1}", "labels: [a=2]"), "{labels: {a: 2}}");
    assert_eq!(merged("deploy: {labels: [a=1]}", "deploy: {labels: {b: 2}}"), "{deploy: {labels: {a: 1, b: 2}}}");
}

#[test]
fn names_are_merged_in_either_form() {
    assert_eq!(
        merged("depends_on: [a]", "depends_on: {b: {condition: service_healthy}}"),
        "{depends_on: {a: , b: {condition: service_healthy}}}"
    );
    assert_eq!(merged("networks: [x]", "networks: [y]"), "{networks: {x: , y: }}");
    assert_eq!(merged("env_file: a", "env_file: [b]"), "{env_file: [a, b]}");
    assert_eq!(merged("dns: 1.1.1.1", "dns: 8.8.8.8"), "{dns: [1.1.1.1, 8.8.8.8]}");
}

#[test]
fn mounts_are_merged_by_target() {
    assert_eq!(
        merged("volumes: ['a:/x', 'b:/y']", "volumes: [{type: bind, source: /c, target: /x}]"),
        "{volumes: [{type: bind, source: /c, target: /x}, b:/y]}"
    );
    assert_eq!(merged("secrets: [a]", "secrets: [a, b]"), "{secrets: [a, b]}");
}

#[test]
fn logging_is_merged_only_for_the_same_driver() {
    assert_eq!(
        merged("logging: {driver: x, options: {a: 1}}", "logging: {options: {b: 2}}"),
        "{logging: {driver: x, options: {a: 1, b: 2}}}"
    );
    assert_eq!(
        merged("logging: {driver: x, options: {a: 1}}", "logging: {driver: y, options: {b: 2}}"),
        "{logging: {driver: y, options: {b: 2}}}"
    );
}

#[test]
fn builds_and_ulimits_are_merged_in_either_form() {
    assert_eq!(merged("build: .", "build: {target: t}"), "{build: {context: ., target: t}}");
    assert_eq!(merged("ulimits: {n: {soft: 1, hard: 2}}", "ulimits: {n: 5}"), "{ulimits: {n: 5}}");
}

#[test]
fn reset_removes_and_override_replaces() {
    assert_eq!(merged("image: a, ports: ['1:1']", "ports: !reset []"), "{image: a}");
    assert_eq!(merged("ports: ['1:1']", "ports: !override ['2:2']"), "{ports: [2:2]}");
    assert_eq!(merged("environment: {A: 1, B: 2}", "environment: {A: !reset null}"), "{environment: {B: 2}}");
    assert_eq!(merged("image: a", "ports: !reset null, user: u"), "{image: a, user: u}");
    assert_eq!(merged("deploy: {replicas: 3, mode: x}", "deploy: !override {replicas: 1}"), "{deploy: {replicas: 1}}");
}

#[test]
fn different_shapes_are_refused() {
    let file = |text: &str| parse("f", &format!("services: {{a: {{{text}}}}}")).unwrap();
    let mut problems = Diagnostics::new();
    merge(file("cap_add: [x]"), file("cap_add: {y: z}"), &mut problems);
    assert!(problems.to_string().contains("`cap_add` is a mapping here and a list in an earlier file"), "{problems}");
}
