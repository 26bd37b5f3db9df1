//! A JSON value as YAML: block style, sorted keys, quotation marks only where needed.
//!
//! Invariant: the output parses as the same value, also with YAML 1.1, where `yes` is a boolean and `1:30` a number.

use std::fmt::Write as _;

use serde_json::Value;

/// The document, with a line feed at the end.
pub fn emit(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => object(map, 0, &mut out),
        Value::Array(items) if !items.is_empty() => array(items, 0, &mut out),
        Value::Object(_) | Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            inline(value, &mut out);
            out.push('\n');
        }
    }
    out
}

fn object(map: &serde_json::Map<String, Value>, depth: usize, out: &mut String) {
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    for (at, (key, value)) in entries.into_iter().enumerate() {
        // The first key of a mapping inside a list is on the line of the dash.
        if at > 0 || out.is_empty() || out.ends_with('\n') {
            indent(depth, out);
        }
        text(key, out);
        out.push(':');
        below(value, depth, out);
    }
}

fn below(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            object(map, depth + 1, out);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            array(items, depth + 1, out);
        }
        Value::Object(_) | Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.push(' ');
            inline(value, out);
            out.push('\n');
        }
    }
}

fn array(items: &[Value], depth: usize, out: &mut String) {
    for item in items {
        indent(depth, out);
        match item {
            Value::Object(map) if !map.is_empty() => {
                out.push_str("- ");
                object(map, depth + 1, out);
            }
            Value::Object(_) | Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                out.push('-');
                below(item, depth, out);
            }
        }
    }
}

fn indent(depth: usize, out: &mut String) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

fn inline(value: &Value, out: &mut String) {
    match value {
        Value::String(content) => text(content, out),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            out.push_str(&value.to_string());
        }
    }
}

fn text(content: &str, out: &mut String) {
    if is_plain(content) {
        out.push_str(content);
        return;
    }
    out.push('"');
    for c in content.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                let _ = write!(out, "\\U{:08x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Whether a text needs no quotation marks in YAML 1.1 and 1.2.
fn is_plain(content: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '_');
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.' | '+' | '@' | '=' | ',');
    let word = content.to_ascii_lowercase();
    let special = matches!(
        word.as_str(),
        "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null" | "none" | "nan" | "inf"
    );
    // A colon inside a word, as in `web:1.2`, needs no quotation marks; one at the end does.
    let colons = !content.ends_with(':') && content.chars().all(|c| inner(c) || c == ':');
    (content.starts_with(first) && colons && !special) || is_duration(content)
}

/// A duration such as `1m30s` needs no quotation marks: it is no number in any YAML version.
fn is_duration(content: &str) -> bool {
    content.ends_with(['s', 'm', 'h'])
        && content.chars().all(|c| c.is_ascii_digit() || matches!(c, 'h' | 'm' | 's' | 'u' | 'n'))
        && crate::units::parse_duration(content).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::yaml;

    #[test]
    fn values_are_emitted_as_readable_yaml() {
        let value = json!({
            "b": {"list": ["a", {"x": 1, "z": [2, []]}, {}], "empty": {}},
            "a": "web:1.2",
            "c": [["nested"]],
            "quoted": ["yes", "1:30", "0440", "a: b", "", "line\nfeed", "#x", "\u{1}"],
        });
        assert_eq!(
            emit(&value),
            "a: web:1.2\nb:\n  empty: {}\n  list:\n    - a\n    - x: 1\n      z:\n        - 2\n        - []\n    - {}\nc:\n  -\n    \
             - nested\nquoted:\n  - \"yes\"\n  - \"1:30\"\n  - \"0440\"\n  - \"a: b\"\n  - \"\"\n  - \"line\\nfeed\"\n  - \"#x\"\n  \
             - \"\\U00000001\"\n"
        );
    }

    fn read(node: &yaml::Node) -> Value {
        match &node.value {
            yaml::Value::Sequence(items) => items.iter().map(read).collect(),
            yaml::Value::Mapping(map) => map.iter().map(|(key, node)| (key.name.to_string(), read(node))).collect(),
            yaml::Value::Scalar(scalar) if scalar.style == yaml::Style::Plain => {
                serde_json::from_str(&scalar.text).unwrap_or_else(|_| Value::String(scalar.text.to_string()))
            }
            yaml::Value::Scalar(scalar) => Value::String(scalar.text.to_string()),
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            "[ -~]{0,12}",
            "\\PC{0,8}",
            "(yes|no|null|~|-|1e3|0x1f|1:30|a: b|# c|---|\\.\\.\\.|\n|\t|\r|\u{85}|\u{2028})"
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            text.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, move |inner| {
            let list = proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from);
            let map = proptest::collection::btree_map(text.clone(), inner, 0..5);
            prop_oneof![list, map.prop_map(|map| Value::Object(map.into_iter().collect()))]
        })
    }

    proptest! {
        #[test]
        fn whatever_is_written_reads_back_as_the_same(value in any_value()) {
            let text = emit(&value);
            let node = yaml::parse("written", &text).map_err(|problems| TestCaseError::fail(format!("{problems}\n{text}")))?;
            prop_assert_eq!(read(&node), value, "{}", text);
        }
    }
}
