//! Checks of `-o json` and `-o yaml`: JSON of an exact shape, and YAML with the same content.

use longshore_compose::yaml::{self, Node, Style};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Commands that change nothing, so that a second run gives the same answer but for numbers.
const QUERIES: &[&str] = &[
    "audit",
    "cluster settings",
    "cluster status",
    "config",
    "images",
    "logs",
    "namespace ls",
    "network inspect",
    "network ls",
    "node inspect",
    "node ls",
    "plan",
    "policy show",
    "policy test",
    "port",
    "ps",
    "registry ls",
    "secret ls",
    "service inspect",
    "sim bench",
    "sim fuzz",
    "sim run",
    "status",
    "token ls",
    "validate",
    "version",
    "volume ls",
    "whatif",
    "why",
];

/// Commands without `-o`: they print a log, the output of another command, or a script.
pub(super) const TEXT_ONLY: [&str; 6] = ["completions", "cp", "exec", "run", "server", "up"];

pub(super) fn is_query(leaf: &str) -> bool {
    QUERIES.contains(&leaf)
}

/// Parses an answer as `T`, and asserts that no field is unknown or missing.
pub(super) fn assert_shape<T: DeserializeOwned + Serialize>(answer: &Value) {
    let read: T = serde_json::from_value(answer.clone()).unwrap_or_else(|error| panic!("{error}: {answer:#}"));
    let read = serde_json::to_value(&read).unwrap();
    assert_eq!(difference(&read, answer, "answer"), None, "unknown or missing fields");
}

/// The first place at which two values differ.
fn difference(one: &Value, other: &Value, at: &str) -> Option<String> {
    match (one, other) {
        (Value::Object(ones), Value::Object(others)) => {
            let names = ones.keys().chain(others.keys().filter(|name| !ones.contains_key(*name)));
            names.into_iter().find_map(|name| {
                let path = format!("{at}.{name}");
                ones.get(name)
                    .zip(others.get(name))
                    .map_or(Some(path.clone()), |(one, other)| difference(one, other, &path))
            })
        }
        (Value::Array(ones), Value::Array(others)) if ones.len() == others.len() => {
            let pairs = ones.iter().zip(others).enumerate();
            pairs.into_iter().find_map(|(number, (one, other))| difference(one, other, &format!("{at}[{number}]")))
        }
        _ => (one != other).then(|| format!("{at}: {one} is not {other}")),
    }
}

/// Parses YAML as any YAML reader would.
pub(super) fn parse_yaml(text: &str) -> Value {
    let document = yaml::parse("answer", text).unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    value(&document)
}

fn value(node: &Node) -> Value {
    match &node.value {
        yaml::Value::Sequence(items) => items.iter().map(value).collect(),
        yaml::Value::Mapping(mapping) => {
            mapping.iter().map(|(key, node)| (key.name.to_string(), value(node))).collect()
        }
        yaml::Value::Scalar(scalar) if scalar.style == Style::Plain => {
            serde_json::from_str(&scalar.text).unwrap_or_else(|_| Value::String(scalar.text.to_string()))
        }
        yaml::Value::Scalar(scalar) => Value::String(scalar.text.to_string()),
    }
}

/// Replaces every number with 0, because measurements differ between two requests.
pub(super) fn without_numbers(value: &Value) -> Value {
    match value {
        Value::Number(_) => 0.into(),
        Value::Array(items) => items.iter().map(without_numbers).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), without_numbers(value))).collect(),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}
