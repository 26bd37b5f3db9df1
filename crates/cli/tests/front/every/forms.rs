//! The forms in which programs are answered: JSON of an exact shape, and YAML that reads as the same.

use longshore_compose::yaml::{self, Node, Style};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Commands whose answer is the same when asked again, as far as nobody counts or measures.
const QUESTIONS: &[&str] = &[
    "audit",
    "cluster settings",
    "cluster status",
    "config",
    "logs",
    "namespace ls",
    "node inspect",
    "node ls",
    "plan",
    "registry ls",
    "secret ls",
    "sim bench",
    "sim fuzz",
    "sim run",
    "status",
    "token ls",
    "validate",
    "volume ls",
    "whatif",
    "why",
];

/// Commands that answer with nothing but what somebody else says: a daemon's log, a command's output, a script.
pub(super) const FOR_PEOPLE: [&str; 4] = ["completions", "exec", "server", "up"];

/// Whether a command only asks.
pub(super) fn is_question(leaf: &str) -> bool {
    QUESTIONS.contains(&leaf)
}

/// Reads an answer as a type, and demands that nothing is left over or missing.
pub(super) fn is_exactly<T: DeserializeOwned + Serialize>(answer: &Value) {
    let read: T = serde_json::from_value(answer.clone()).unwrap_or_else(|error| panic!("{error}: {answer:#}"));
    let read = serde_json::to_value(&read).unwrap();
    assert_eq!(difference(&read, answer, "answer"), None, "left over or missing");
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

/// The value that a YAML document says, as any reader of YAML would have it.
pub(super) fn read(text: &str) -> Value {
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

/// A value without its numbers: others of one moment are not others of the next.
pub(super) fn unmeasured(value: &Value) -> Value {
    match value {
        Value::Number(_) => 0.into(),
        Value::Array(items) => items.iter().map(unmeasured).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), unmeasured(value))).collect(),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}
