//! `longshore sim run FILE`.

use std::path::Path;

use longshore_sim::Scenario;

use super::draw;
use crate::{exit::Exit, input, print, style::Colour};

/// How the result is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Drawing,
}

pub(super) fn run(file: &Path, format: Format) -> anyhow::Result<Exit> {
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
    let report = longshore_sim::run(&scenario);
    let shown = match format {
        Format::Json => report.to_json(),
        Format::Drawing => draw::draw(&report, Colour::of_stdout()),
    };
    print::print(&shown)?;
    Ok(if report.violations.is_empty() { Exit::Success } else { Exit::Violation })
}
