//! Exit codes of the binary.
//!
//! Owns: the number of every way a command can end. Invariant: a number never changes its meaning; scripts test for it.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command did what was asked.
    Success,
    /// An error that is not the input's fault.
    Error,
    /// The input is invalid; the problems were printed.
    BadInput,
    /// A simulation broke a safety rule.
    InvariantViolated,
    /// `--wait`: the change failed or was rolled back.
    Failed,
    /// `--wait`: the time limit passed.
    TimedOut,
    /// `--wait`: only the operator can continue.
    OperatorNeeded,
    /// `exec`: the exit code of the command that ran.
    Command(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Success => Self::SUCCESS,
            Exit::Error => Self::from(1),
            Exit::BadInput => Self::from(2),
            Exit::InvariantViolated => Self::from(3),
            Exit::Failed => Self::from(4),
            Exit::TimedOut => Self::from(5),
            Exit::OperatorNeeded => Self::from(6),
            Exit::Command(code) => Self::from(code),
        }
    }
}
