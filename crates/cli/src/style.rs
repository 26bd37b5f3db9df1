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
