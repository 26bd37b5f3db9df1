//! Errors of settings, as data.
//!
//! Owns: what can be wrong with a setting, and the sentence and hint for it.
//! Must not touch: where the text came from; callers add the file and line, or the HTTP status.

use std::fmt;

use super::SETTINGS;

/// A setting that could not be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// The name that was given.
    pub name: String,
    /// What is wrong.
    pub problem: SettingProblem,
}

/// What is wrong with a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingProblem {
    /// No setting has the name.
    Unknown {
        /// The most similar name, if one is similar enough.
        nearest: Option<&'static str>,
    },
    /// The text is no value of the setting's kind.
    Malformed {
        /// The sentence about the text.
        message: String,
        /// An example of a value.
        hint: Option<&'static str>,
    },
    /// The value is not among the allowed ones.
    NotAllowed {
        /// The allowed values, for example `at least 10ms`.
        allowed: String,
    },
    /// The value must be greater than that of another setting.
    NotAbove {
        /// The other setting.
        other: &'static str,
        /// Why.
        hint: &'static str,
    },
    /// The setting cannot be changed in a running cluster.
    Fixed,
}

impl SettingError {
    /// One sentence without a full stop, without the hint.
    pub fn message(&self) -> String {
        let name = &self.name;
        match &self.problem {
            SettingProblem::Unknown { .. } => format!("unknown setting `{name}`"),
            SettingProblem::Malformed { message, .. } => format!("`{name}`{message}"),
            SettingProblem::NotAllowed { allowed } => format!("`{name}` must be {allowed}"),
            SettingProblem::NotAbove { other, .. } => format!("`{name}` must be more than `{other}`"),
            SettingProblem::Fixed => format!("`{name}` cannot be changed: replicas have addresses of it"),
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match &self.problem {
            SettingProblem::Unknown { nearest: Some(nearest) } => Some(format!("did you mean `{nearest}`?")),
            SettingProblem::Unknown { nearest: None } => {
                let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
                Some(format!("the settings are {}", names.join(", ")))
            }
            SettingProblem::Malformed { hint, .. } => hint.map(str::to_owned),
            SettingProblem::NotAbove { hint, .. } => Some((*hint).to_owned()),
            SettingProblem::NotAllowed { .. } | SettingProblem::Fixed => None,
        }
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for SettingError {}
