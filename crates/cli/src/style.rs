//! Colour, where a terminal wants it.
//!
//! Owns: when colour is used and which. Invariant: without colour the text says the same.

use std::io::IsTerminal;

/// Whether to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    On,
    Off,
}

impl Colour {
    /// On for a terminal, unless `NO_COLOR` is set to anything.
    pub(crate) fn of_stdout() -> Self {
        Self::of(&std::io::stdout())
    }

    /// The same for standard error.
    pub(crate) fn of_stderr() -> Self {
        Self::of(&std::io::stderr())
    }

    fn of(stream: &impl IsTerminal) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if stream.is_terminal() && !refused && !dumb { Self::On } else { Self::Off }
    }

    /// The text in a tone.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        match self {
            Self::On => format!("\u{1b}[{}m{text}\u{1b}[0m", tone.code()),
            Self::Off => text.to_owned(),
        }
    }
}

/// What somebody else wrote, as text and nothing else: a name or an output that holds commands for a terminal must not give
/// them to the terminal of whoever reads it.
pub(crate) fn plain(text: &str) -> String {
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
    fn commands_for_a_terminal_are_shown_and_not_given() {
        assert_eq!(plain("red \u{1b}[31m and\r\nhidden \u{9b}8m"), r"red \u{1b}[31m and\r\nhidden \u{9b}8m");
        assert_eq!(plain("grün, 8 µs"), "grün, 8 µs");
    }
}
