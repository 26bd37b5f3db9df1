//! The front door as people use it: the real binary, real processes, a real terminal.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by ending")]

mod beside;
mod every;
mod foresight;
mod machine;
mod pipes;
mod readme;
mod terminal;
mod up;
