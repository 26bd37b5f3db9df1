//! `longshore sim run FILE`: runs one scenario.
//!
//! Owns: reading the file, and the exit code of the run.

use std::path::Path;

use longshore_sim::{Report, Scenario};

use super::{SimOutputArgs, report_view, why};
use crate::{
    exit::Exit,
    input,
    output::{print, style::Colour},
};

/// Runs a file and prints its final state, or the placement of `replica` alone.
pub(super) fn run(file: &Path, output: SimOutputArgs, replica: Option<&str>) -> anyhow::Result<Exit> {
    let text = match input::read_text(file) {
        Ok(text) => text,
        Err(problem) => {
            print::stderr(&problem);
            return Ok(Exit::BadInput);
        }
    };
    let scenario = match Scenario::parse(&file.to_string_lossy(), &text) {
        Ok(scenario) => scenario,
        Err(problems) => {
            print::stderr(&problems.to_string());
            return Ok(Exit::BadInput);
        }
    };
    for warning in &scenario.warnings {
        print::stderr(&format!("{warning}\n"));
    }
    let Some(replica) = replica else {
        let report = longshore_sim::run(&scenario);
        let view = || report_view::draw(&report, Colour::of_stdout());
        return finish(&report, &output.render(|| Ok(report.to_json()), view)?);
    };
    let (report, why) = longshore_sim::run_and_explain(&scenario, replica);
    let Some(why) = why else {
        print::stderr(&no_such_replica(replica, &report));
        return Ok(Exit::BadInput);
    };
    let json = || Ok(serde_json::to_string_pretty(&why)? + "\n");
    finish(&report, &output.render(json, || why::explanation(&why))?)
}

/// Prints the text; the exit code says whether the run broke a safety rule.
fn finish(report: &Report, text: &str) -> anyhow::Result<Exit> {
    print::stdout(text)?;
    Ok(if report.violations.is_empty() { Exit::Success } else { Exit::InvariantViolated })
}

fn no_such_replica(replica: &str, report: &Report) -> String {
    let example = report.replicas.first().map(|row| format!("\n\nhint: replicas are named like `{}`", row.id));
    format!("replica `{replica}` does not exist at the end, or is stopping{}", example.unwrap_or_default())
}
