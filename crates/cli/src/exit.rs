//! Exit codes that mean something.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// As asked.
    Success,
    /// Something outside of the input went wrong.
    Trouble,
    /// The input makes no sense; what is wrong with it was printed.
    BadInput,
    /// A safety rule was broken in a simulation.
    Violation,
    /// What was waited for failed, or was undone.
    Failed,
    /// What was waited for took too long.
    TimedOut,
    /// What was waited for waits for a word of the operator.
    Held,
    /// As a command beside a replica ended.
    Of(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Success => Self::SUCCESS,
            Exit::Trouble => Self::from(1),
            Exit::BadInput => Self::from(2),
            Exit::Violation => Self::from(3),
            Exit::Failed => Self::from(4),
            Exit::TimedOut => Self::from(5),
            Exit::Held => Self::from(6),
            Exit::Of(code) => Self::from(code),
        }
    }
}
