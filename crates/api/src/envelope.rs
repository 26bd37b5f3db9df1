//! The error envelope.
//!
//! Invariant: every answer that is not a success has this shape.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ObjectKind;

/// Every error of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Stable: clients branch on it.
    pub code: String,
    /// For people, without a full stop.
    pub message: String,
    /// Details by name; `hint` says what to do, `kind` and `name` which object does not exist.
    #[serde(default)]
    pub details: BTreeMap<String, Value>,
}

impl Envelope {
    /// An error without details.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), details: BTreeMap::new() }
    }

    /// Adds a detail.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// Says which object does not exist, in `details.kind` and `details.name`: clients never parse the message.
    pub fn about(self, kind: &ObjectKind, name: &str) -> Self {
        self.with("kind", kind.as_str()).with("name", name)
    }

    /// The object that does not exist, where the error is about one.
    pub fn missing(&self) -> Option<(ObjectKind, &str)> {
        let text = |name: &str| self.details.get(name).and_then(Value::as_str);
        Some((ObjectKind::from(text("kind")?), text("name")?))
    }

    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<&str> {
        self.details.get("hint").and_then(Value::as_str)
    }
}

impl fmt::Display for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for Envelope {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_code_message_and_details() {
        let envelope =
            Envelope::new("unknown_node", "there is no node `n9`").with("hint", "name a node that has joined");
        let json = serde_json::to_string(&envelope).unwrap();
        assert_eq!(
            json,
            r#"{"code":"unknown_node","message":"there is no node `n9`","details":{"hint":"name a node that has joined"}}"#
        );
        assert_eq!(envelope.hint(), Some("name a node that has joined"));
    }

    #[test]
    fn an_error_about_a_missing_object_names_its_kind_and_its_name() {
        let envelope = Envelope::new("unknown_node", "there is no node `n9`").about(&ObjectKind::Node, "n9");
        assert_eq!(envelope.missing(), Some((ObjectKind::Node, "n9")));
        assert_eq!(Envelope::new("forbidden", "no").missing(), None);
    }

    #[test]
    fn details_may_be_absent() {
        let envelope: Envelope = serde_json::from_str(r#"{"code":"shutting_down","message":"bye"}"#).unwrap();
        assert_eq!(envelope, Envelope::new("shutting_down", "bye"));
    }
}
