//! Members in processes that are killed, suspended and run out of disk, and must keep what they acknowledged.
//!
//! This program is both the test runner and the member process. It has its own runner so that no process and no mount
//! outlives it. `--heavy` runs every test for minutes; other arguments select tests by name.
#![expect(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod load;
mod member_process;
mod process_cluster;
mod socket;
mod tests;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    time::Instant,
};

/// How long a test may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    Light,
    Heavy,
}

impl Weight {
    /// The number of rounds in a normal or a heavy run.
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
    for (name, test) in tests::ALL {
        if !wanted.is_empty() && !wanted.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let since = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| test(weight)));
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        println!("test {name} ... {verdict} ({:.1} s)", since.elapsed().as_secs_f64());
        if result.is_err() {
            outcome = ExitCode::FAILURE;
        }
    }
    outcome
}
