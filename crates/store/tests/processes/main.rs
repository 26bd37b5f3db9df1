//! Members as processes of their own that are killed, held and starved, and must remember what they acknowledged.
//!
//! This program is two things: the stories, and the member process they start. It is its own test runner, so that no
//! process and no mount outlives it. `--heavy` runs every story for minutes; other words pick stories by name.
#![expect(clippy::unwrap_used, reason = "a story that cannot go on has failed, and says where")]

mod fleet;
mod line;
mod load;
mod member_process;
mod stories;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    time::Instant,
};

/// How long a story may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    Light,
    Heavy,
}

impl Weight {
    /// A number of rounds for everyday, or for a soak.
    fn rounds(self, light: u32, heavy: u32) -> u32 {
        match self {
            Self::Light => light,
            Self::Heavy => heavy,
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, rest @ ..] = &arguments[..]
        && word == "member"
    {
        return member_process::main(rest);
    }
    let weight = if arguments.iter().any(|word| word == "--heavy") { Weight::Heavy } else { Weight::Light };
    let wanted: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let mut outcome = ExitCode::SUCCESS;
    for (name, story) in stories::ALL {
        if !wanted.is_empty() && !wanted.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let since = Instant::now();
        let told = catch_unwind(AssertUnwindSafe(|| story(weight)));
        let verdict = if told.is_ok() { "ok" } else { "FAILED" };
        println!("test {name} ... {verdict} ({:.1} s)", since.elapsed().as_secs_f64());
        if told.is_err() {
            outcome = ExitCode::FAILURE;
        }
    }
    outcome
}
