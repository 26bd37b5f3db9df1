//! Colours, and text from others made safe for a terminal.
//!
//! Owns: when colour is used, and which tone a state has. Invariant: without colour the text says the same.

use std::io::IsTerminal;

use longshore_api::{DeploymentStatus, Health, ReplicaState};

/// Whether to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    On,
    Off,
}

impl Colour {
    /// On if standard output is a terminal and `NO_COLOR` is unset or empty.
    pub(crate) fn of_stdout() -> Self {
        Self::of(&std::io::stdout())
    }

    /// On if standard error is a terminal and `NO_COLOR` is unset or empty.
    pub(crate) fn of_stderr() -> Self {
        Self::of(&std::io::stderr())
    }

    fn of(stream: &impl IsTerminal) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if stream.is_terminal() && !refused && !dumb { Self::On } else { Self::Off }
    }

    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        match self {
            Self::On => format!("\u{1b}[{}m{text}\u{1b}[0m", tone.code()),
            Self::Off => text.to_owned(),
        }
    }
}

/// Escapes control characters. A name or an output may contain terminal commands, which must not reach the terminal of
/// whoever reads it.
pub(crate) fn escape_control(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, letter| {
        if letter.is_control() {
            out.extend(letter.escape_default());
        } else {
            out.push(letter);
        }
        out
    })
}

/// What a colour means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Busy,
    Bad,
    Quiet,
    Strong,
}

impl Tone {
    pub(crate) const fn of_replica(state: &ReplicaState) -> Self {
        match state {
            ReplicaState::Running | ReplicaState::Completed => Self::Good,
            ReplicaState::Failed | ReplicaState::Degraded | ReplicaState::Lost => Self::Bad,
            ReplicaState::Stopped | ReplicaState::Draining => Self::Quiet,
            ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Starting | ReplicaState::Unknown(_) => {
                Self::Busy
            }
        }
    }

    pub(crate) const fn of_deployment(status: &DeploymentStatus) -> Self {
        match status {
            DeploymentStatus::Active | DeploymentStatus::Completed => Self::Good,
            DeploymentStatus::Failed | DeploymentStatus::Degraded => Self::Bad,
            DeploymentStatus::Stopped => Self::Quiet,
            DeploymentStatus::Pending | DeploymentStatus::Progressing | DeploymentStatus::Unknown(_) => Self::Busy,
        }
    }

    pub(crate) const fn of_health(health: &Health) -> Self {
        match health {
            Health::Ready => Self::Good,
            Health::Down | Health::Degraded => Self::Bad,
            Health::Suspect | Health::Unknown(_) => Self::Busy,
        }
    }

    const fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Busy => "33",
            Self::Bad => "31",
            Self::Quiet => "2",
            Self::Strong => "1",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_commands_are_shown_escaped() {
        assert_eq!(escape_control("red \u{1b}[31m and\r\nhidden \u{9b}8m"), r"red \u{1b}[31m and\r\nhidden \u{9b}8m");
        assert_eq!(escape_control("grün, 8 µs"), "grün, 8 µs");
    }
}
