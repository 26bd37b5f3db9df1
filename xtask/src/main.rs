//! Development tasks: `cargo run -p xtask -- tidy`, and `bench` for `make bench`.
//!
//! Owns: the command line and the exit code.
//! Must not touch: any file. A task that writes would belong to `make fix`.

mod bench;
mod tidy;
mod tree;

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["tidy"] => Ok(report(&tidy::findings(&tree::Tree::of_this_repository()?))),
        ["bench", longshore, commits] => Ok(match bench::run(longshore, commits)? {
            bench::Outcome::Within => ExitCode::SUCCESS,
            bench::Outcome::Exceeded => ExitCode::FAILURE,
        }),
        _ => anyhow::bail!(
            "unknown task\n\nhint: `tidy`, or `bench <path of the longshore binary> <path of commit_bench>`"
        ),
    }
}

fn report(findings: &[tidy::Finding]) -> ExitCode {
    for finding in findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: no findings");
        return ExitCode::SUCCESS;
    }
    println!("tidy: {} findings", findings.len());
    ExitCode::FAILURE
}
