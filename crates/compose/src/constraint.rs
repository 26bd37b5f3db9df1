//! The constraint language: Swarm's two comparisons and Nomad's further operators.
//!
//! Owns: parsing text into [`Constraint`], and refusing expressions that could never hold.
//! Must not touch: evaluation, which the scheduler does.
//! Invariant: an expression that parses can be evaluated. Swarm disables its filter when one does not parse; we refuse it.

use std::net::IpAddr;

use longshore_model::{Attribute, Constraint, Operator, service::DeviceConstraint};

use crate::{diagnostic::one_of, suggest};

mod pattern;

/// The keys of node attributes, in the order of the documentation.
const KNOWN_KEYS: [&str; 10] = [
    "node.id",
    "node.hostname",
    "node.ip",
    "node.role",
    "node.pool",
    "node.datacenter",
    "node.platform.os",
    "node.platform.arch",
    "node.labels.<name>",
    "engine.labels.<name>",
];

/// Symbols first, the longer ones before those they begin with.
const SYMBOLS: [Operator; 6] = [
    Operator::Equal,
    Operator::NotEqual,
    Operator::LessOrEqual,
    Operator::GreaterOrEqual,
    Operator::Less,
    Operator::Greater,
];

const WORDS: [Operator; 8] = [
    Operator::Regexp,
    Operator::Version,
    Operator::Semver,
    Operator::SetContains,
    Operator::SetContainsAny,
    Operator::IsSet,
    Operator::IsNotSet,
    Operator::In,
];

/// Why an expression is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// No key, or one with characters a key cannot have.
    #[error("`{expression}` does not begin with a key such as `node.labels.zone`")]
    Key {
        /// The whole expression.
        expression: String,
    },
    /// No device attribute.
    #[error("`{expression}` does not begin with an attribute of a device, such as `memory`")]
    DeviceKey {
        /// The whole expression.
        expression: String,
    },
    /// A key that is no node attribute.
    #[error("`{key}` names nothing of a node; known are {}", one_of(KNOWN_KEYS))]
    UnknownKey {
        /// The key.
        key: String,
        /// The most similar known key.
        meant: Option<String>,
    },
    /// No operator after the key, or an unknown one.
    #[error("`{expression}` needs one operator after `{key}`: {}", one_of(operators()))]
    Operator {
        /// The whole expression.
        expression: String,
        /// The key.
        key: String,
    },
    /// A comparison without a value.
    #[error("`{expression}` needs a value after `{operator}`")]
    ValueMissing {
        /// The whole expression.
        expression: String,
        /// The operator.
        operator: &'static str,
    },
    /// A value after an operator that takes none.
    #[error("`{operator}` takes no value, found `{value}`")]
    ValueNotTaken {
        /// The operator.
        operator: &'static str,
        /// The value.
        value: String,
    },
    /// A value that is invalid for the operator.
    #[error("`{value}` is {reason}")]
    Value {
        /// The value.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl ConstraintError {
    /// What to do about it, where there is a suggestion.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownKey { meant: Some(meant), .. } => Some(format!("did you mean `{meant}`?")),
            Self::Operator { expression, .. } if expression.contains('=') => {
                Some("equality is written `==`".to_owned())
            }
            Self::Key { .. }
            | Self::DeviceKey { .. }
            | Self::UnknownKey { meant: None, .. }
            | Self::Operator { .. }
            | Self::ValueMissing { .. }
            | Self::ValueNotTaken { .. }
            | Self::Value { .. } => None,
        }
    }
}

fn operators() -> impl Iterator<Item = &'static str> {
    SYMBOLS.iter().chain(&WORDS).map(|operator| operator.as_str())
}

/// Parses `key operator value`.
pub fn parse(expression: &str) -> Result<Constraint, ConstraintError> {
    let (key, rest) = split_key(expression);
    if !is_key(key) {
        return Err(ConstraintError::Key { expression: expression.to_owned() });
    }
    let attribute = parse_attribute(key)?;
    let (operator, value) = parse_comparison(expression, key, rest, &attribute)?;
    Ok(Constraint { attribute, operator, value })
}

/// Parses `attribute operator value` about a device. Attribute names are not checked, because nodes define them.
pub fn parse_device(expression: &str) -> Result<DeviceConstraint, ConstraintError> {
    let (key, rest) = split_key(expression);
    if key.is_empty() {
        return Err(ConstraintError::DeviceKey { expression: expression.to_owned() });
    }
    // A device attribute is a named text, like a label.
    let (operator, value) = parse_comparison(expression, key, rest, &Attribute::Label(key.to_owned()))?;
    Ok(DeviceConstraint { attribute: key.to_owned(), operator, value })
}

fn split_key(expression: &str) -> (&str, &str) {
    let text = expression.trim();
    text.split_at(text.find(|c: char| !is_key_char(c)).unwrap_or(text.len()))
}

fn parse_comparison(
    expression: &str,
    key: &str,
    rest: &str,
    attribute: &Attribute,
) -> Result<(Operator, String), ConstraintError> {
    let Some((operator, value)) = split_operator(rest.trim_start()) else {
        return Err(ConstraintError::Operator { expression: expression.to_owned(), key: key.to_owned() });
    };
    let value = value.trim();
    check_presence(expression, operator, value)?;
    check_value(attribute, operator, value)?;
    Ok((operator, value.to_owned()))
}

/// Parses a single key, for `spread` and `distinct_property`.
pub fn parse_attribute(key: &str) -> Result<Attribute, ConstraintError> {
    let lower = key.to_ascii_lowercase();
    let label = |prefix: &str| key.get(prefix.len()..).filter(|name| lower.starts_with(prefix) && !name.is_empty());
    Ok(match lower.as_str() {
        "node.id" => Attribute::Id,
        "node.hostname" => Attribute::Hostname,
        "node.ip" => Attribute::Ip,
        "node.role" => Attribute::Role,
        "node.pool" => Attribute::Pool,
        "node.datacenter" => Attribute::Datacenter,
        "node.platform.os" => Attribute::Os,
        "node.platform.arch" => Attribute::Arch,
        _ => match (label("node.labels."), label("engine.labels.")) {
            (Some(name), _) if name.chars().all(is_key_char) => Attribute::Label(name.to_owned()),
            (None, Some(name)) if name.chars().all(is_key_char) => Attribute::EngineLabel(name.to_owned()),
            (Some(_) | None, _) => {
                let meant = meant(key);
                return Err(ConstraintError::UnknownKey { key: key.to_owned(), meant });
            }
        },
    })
}

/// The most similar known key; of a label only the prefix before its name is compared.
fn meant(key: &str) -> Option<String> {
    let prefixes = ["node.labels", "engine.labels", "node.platform"];
    let label = key.match_indices('.').nth(1).map(|(at, _)| key.split_at(at));
    let label = label.and_then(|(prefix, name)| Some(format!("{}{name}", suggest::nearest(prefix, prefixes)?)));
    label.or_else(|| suggest::nearest(key, KNOWN_KEYS).map(str::to_owned))
}

fn is_key_char(c: char) -> bool {
    // Swarm has no slash in keys; labels such as `topology.example.com/zone` are common elsewhere.
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/')
}

fn is_key(key: &str) -> bool {
    key.len() >= 2 && key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

fn split_operator(rest: &str) -> Option<(Operator, &str)> {
    if let Some(found) = SYMBOLS.iter().find(|operator| rest.starts_with(operator.as_str())) {
        return Some((*found, &rest[found.as_str().len()..]));
    }
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let (word, value) = rest.split_at(end);
    WORDS.iter().find(|operator| operator.as_str() == word).map(|found| (*found, value))
}

fn check_presence(expression: &str, operator: Operator, value: &str) -> Result<(), ConstraintError> {
    let word = operator.as_str();
    match (operand(operator), value.is_empty()) {
        (Operand::None, true) | (Operand::Value, false) => Ok(()),
        (Operand::None, false) => Err(ConstraintError::ValueNotTaken { operator: word, value: value.to_owned() }),
        (Operand::Value, true) => {
            Err(ConstraintError::ValueMissing { expression: expression.to_owned(), operator: word })
        }
    }
}

/// The text after an operator.
enum Operand {
    None,
    Value,
}

fn operand(operator: Operator) -> Operand {
    match operator {
        Operator::IsSet | Operator::IsNotSet => Operand::None,
        Operator::Equal
        | Operator::NotEqual
        | Operator::Less
        | Operator::LessOrEqual
        | Operator::Greater
        | Operator::GreaterOrEqual
        | Operator::Regexp
        | Operator::Version
        | Operator::Semver
        | Operator::SetContains
        | Operator::SetContainsAny
        | Operator::In => Operand::Value,
    }
}

fn check_value(attribute: &Attribute, operator: Operator, value: &str) -> Result<(), ConstraintError> {
    let refuse = |reason: &str| ConstraintError::Value { value: value.to_owned(), reason: reason.to_owned() };
    match operator {
        Operator::Equal | Operator::NotEqual => {
            if *attribute == Attribute::Ip && !is_ip_or_network(value) {
                return Err(refuse("neither an IP address nor a network such as `10.0.0.0/8`"));
            }
            if !value.chars().all(is_value_char) {
                return Err(refuse("not a value that can be compared; see `regexp` for patterns and `in` for lists"));
            }
        }
        Operator::Regexp => {
            pattern::check(value).map_err(|error| refuse(&error.to_string()))?;
        }
        Operator::Version if !bounds_hold(value, TildeBound::Allowed) => {
            return Err(refuse("not a list of version bounds such as `>= 1.2, < 2.0` or `~> 1.2`"));
        }
        Operator::Semver if !bounds_hold(value, TildeBound::Refused) => {
            return Err(refuse("not a list of semantic version bounds such as `>= 1.2.0, < 2.0.0`"));
        }
        Operator::SetContains | Operator::SetContainsAny | Operator::In => {
            if value.split(',').any(|item| item.trim().is_empty()) {
                return Err(refuse("a list with an empty entry; separate values by single commas"));
            }
        }
        Operator::Version
        | Operator::Semver
        | Operator::Less
        | Operator::LessOrEqual
        | Operator::Greater
        | Operator::GreaterOrEqual
        | Operator::IsSet
        | Operator::IsNotSet => {}
    }
    Ok(())
}

/// Relative cost of checking a constraint, in units of some microseconds: patterns cost more than all else in a manifest.
pub(crate) fn cost(constraint: &Constraint) -> usize {
    if constraint.operator == Operator::Regexp { pattern::cost(&constraint.value) } else { 0 }
}

fn is_value_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || " :-_.*()?+[]\\^$|/".contains(c)
}

fn is_ip_or_network(value: &str) -> bool {
    let Some((address, bits)) = value.split_once('/') else { return value.parse::<IpAddr>().is_ok() };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

/// Whether `~>` may be used; semantic versions have no such bound.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TildeBound {
    Allowed,
    Refused,
}

fn bounds_hold(value: &str, tilde: TildeBound) -> bool {
    value.split(',').all(|bound| {
        let bound = bound.trim();
        let end = bound.find(|c: char| !"=!<>~".contains(c)).unwrap_or(bound.len());
        let (operator, version) = bound.split_at(end);
        let known = matches!(operator, "" | "=" | "!=" | "<" | "<=" | ">" | ">=")
            || (operator == "~>" && tilde == TildeBound::Allowed);
        known && is_version(version.trim())
    })
}

/// Dotted numbers with optional `v` prefix, pre-release and build part.
fn is_version(text: &str) -> bool {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (numbers, pre) = text.split_once('-').map_or((text, None), |(numbers, pre)| (numbers, Some(pre)));
    let identifiers = |part: &str| {
        part.split('.').all(|id| !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'))
    };
    numbers.split('.').all(|number| number.parse::<u64>().is_ok() && !number.starts_with('+'))
        && pre.is_none_or(identifiers)
        && build.is_none_or(identifiers)
}

#[cfg(test)]
mod tests;
