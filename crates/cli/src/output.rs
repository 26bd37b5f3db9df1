//! What commands print: formats, tables, colours, progress.
//!
//! Owns: `-o`, and the layout of everything that goes to a terminal.
//! Must not touch: the daemon; a caller hands in the answer that is printed.
//! Invariant: `-o json` and `-o yaml` print the whole answer; a table for people may leave fields out.

pub(crate) mod candidates;
pub(crate) mod live_region;
pub(crate) mod moves;
pub(crate) mod print;
pub(crate) mod progress;
pub(crate) mod style;
pub(crate) mod table;
pub(crate) mod timestamp;

use clap::{Args, ValueEnum};
use longshore_api::Changed;
use longshore_compose::yaml::emit::emit;
use serde::Serialize;

use crate::exit::Exit;

/// The `-o` option.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OutputArgs {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text, global = true)]
    output: OutputFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// A table or a sentence for people.
    Text,
    /// The whole answer as JSON.
    Json,
    /// The whole answer as YAML.
    Yaml,
}

impl OutputArgs {
    pub(crate) const fn format(self) -> OutputFormat {
        self.output
    }

    /// Prints an answer in the chosen format; `table` renders it for people.
    pub(crate) fn print<T: Serialize>(self, answer: &T, table: impl FnOnce(&T) -> String) -> anyhow::Result<Exit> {
        print::stdout(&self.output.render(answer, table)?)?;
        Ok(Exit::Success)
    }
}

impl OutputFormat {
    pub(crate) fn render<T: Serialize>(self, answer: &T, table: impl FnOnce(&T) -> String) -> anyhow::Result<String> {
        Ok(match self {
            Self::Text => table(answer),
            Self::Json => serde_json::to_string_pretty(answer)? + "\n",
            Self::Yaml => emit(&serde_json::to_value(answer)?),
        })
    }
}

/// What people read after a request that changes something.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "every answer is rendered from a reference")]
pub(crate) fn changed(changed: &Changed) -> String {
    match changed {
        Changed::Yes => "done\n".to_owned(),
        Changed::No => "unchanged\n".to_owned(),
    }
}

/// What people read after a request whose effect takes time.
#[derive(Clone, Debug)]
pub(crate) struct EffectWords {
    /// After a request that was not waited for: what has begun, and how to follow it.
    pub(crate) begun: String,
    /// After `--wait`: what is so now.
    pub(crate) done: String,
}

impl EffectWords {
    /// Prints the answer to the request. After an error that was printed, people get no second verdict.
    pub(crate) fn print(&self, output: OutputArgs, changed: Changed, waited: Option<Exit>) -> anyhow::Result<Exit> {
        let exit = waited.unwrap_or(Exit::Success);
        if exit == Exit::Success || output.format() != OutputFormat::Text {
            output.print(&changed, |changed| self.text(*changed, waited))?;
        }
        Ok(exit)
    }

    fn text(&self, changed: Changed, waited: Option<Exit>) -> String {
        match (changed, waited) {
            (Changed::No, _) => "unchanged\n".to_owned(),
            (Changed::Yes, None) => format!("{}\n", self.begun),
            (Changed::Yes, Some(_)) => format!("{}\n", self.done),
        }
    }
}

/// A name as tables print it: outside the namespace `default`, the namespace comes first, as in replica ids.
pub(crate) fn qualified(namespace: &str, name: &str) -> String {
    if namespace == "default" { name.to_owned() } else { format!("{namespace}.{name}") }
}
