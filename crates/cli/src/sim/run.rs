//! `longshore sim run FILE`.

use std::path::Path;

use longshore_sim::{Report, Scenario};

use super::{Answer, draw, why};
use crate::{exit::Exit, input, print, style::Colour};

/// Runs a file and shows the whole end of it or, where asked, only why one replica is where it is.
pub(super) fn run(file: &Path, answer: Answer, asked: Option<&str>) -> anyhow::Result<Exit> {
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
        return show(&report, &answer.text(|| Ok(report.to_json()), || draw::draw(&report, Colour::of_stdout()))?);
    };
    let (report, told) = longshore_sim::run_and_ask(&scenario, replica);
    let Some(told) = told else {
        print::note(&no_such_replica(replica, &report));
        return Ok(Exit::BadInput);
    };
    show(&report, &answer.text(|| Ok(serde_json::to_string_pretty(&told)? + "\n"), || why::draw(&told))?)
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
