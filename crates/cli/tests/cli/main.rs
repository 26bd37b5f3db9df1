//! The command line as people use it: the real binary, real processes, a real terminal.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

mod compose_habits;
mod dry_run;
mod every_command;
mod logs_exec;
mod machine;
mod node_attributes;
mod pipes;
mod readme_console;
mod terminal;
mod up;
mod words;
