//! `longshore sim run FILE`.

use std::path::Path;

use longshore_sim::{Report, Scenario};

use super::{draw, why};
use crate::{exit::Exit, input, print, style::Colour};

/// How the result is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Drawing,
}

/// Runs a file and shows the whole end of it or, where asked, only why one replica is where it is.
pub(super) fn run(file: &Path, format: Format, asked: Option<&str>) -> anyhow::Result<Exit> {
    let text = match input::read_text(file) {
        Ok(text) => text,
        Err(problem) => {
            print::note(&problem);
            return Ok(Exit::BadInput);
        }
    };
    let scenario = match Scenario::parse(&file.to_string_lossy(), &text) {
        Ok(scenario) => scenario,
        Err(problems) => {
            print::note(&problems.to_string());
            return Ok(Exit::BadInput);
        }
    };
    for warning in &scenario.warnings {
        print::note(&format!("{warning}\n"));
    }
    let Some(replica) = asked else {
        let report = longshore_sim::run(&scenario);
        return show(
            &report,
            &match format {
                Format::Json => report.to_json(),
                Format::Drawing => draw::draw(&report, Colour::of_stdout()),
            },
        );
    };
    let (report, answer) = longshore_sim::run_and_ask(&scenario, replica);
    let Some(answer) = answer else {
        print::note(&no_such_replica(replica, &report));
        return Ok(Exit::BadInput);
    };
    show(
        &report,
        &match format {
            Format::Json => serde_json::to_string_pretty(&answer)? + "\n",
            Format::Drawing => why::draw(&answer),
        },
    )
}

/// Prints what is asked for; the exit code is the run's.
fn show(report: &Report, text: &str) -> anyhow::Result<Exit> {
    print::print(text)?;
    Ok(if report.violations.is_empty() { Exit::Success } else { Exit::Violation })
}

fn no_such_replica(replica: &str, report: &Report) -> String {
    let known = report.replicas.first().map(|row| format!("\n\nhint: replicas are named like `{}`", row.id));
    format!("no replica `{replica}` exists in the end, or it is on its way out{}", known.unwrap_or_default())
}
