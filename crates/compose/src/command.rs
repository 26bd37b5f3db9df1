//! `longshore config` and `longshore validate`, up to the terminal.
//!
//! Owns: what they print and what their exit code means. Must not touch: the terminal itself.

use crate::{
    diagnostic::Diagnostics,
    files::Files,
    load::{Loaded, Request, load},
    render::{self, Secrets},
    yaml::emit,
};

/// How a resolved manifest is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// As a Compose file.
    #[default]
    Yaml,
    /// The same as JSON.
    Json,
}

/// What a command came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// For standard output; empty when there is nothing to show.
    pub text: String,
    /// For standard error: errors, or the warnings of a manifest that is good.
    pub problems: Diagnostics,
    /// 0, or 2 when the manifest is refused.
    pub exit: u8,
}

impl Report {
    fn refused(problems: Diagnostics) -> Self {
        Self { text: String::new(), problems, exit: 2 }
    }
}

/// The resolved manifest of a deployment already loaded.
pub fn print(loaded: &Loaded, output: Output, secrets: Secrets, files: &dyn Files) -> String {
    let value = render::render(loaded, secrets, files);
    match output {
        Output::Yaml => emit::emit(&value),
        Output::Json => serde_json::to_string_pretty(&value).unwrap_or_default() + "\n",
    }
}

/// Prints the resolved manifest, each service with its hash.
pub fn config(request: &Request, files: &dyn Files, output: Output, secrets: Secrets) -> Report {
    match load(request, files) {
        Ok(loaded) => {
            let text = print(&loaded, output, secrets, files);
            Report { text, problems: loaded.warnings.into(), exit: 0 }
        }
        Err(problems) => Report::refused(problems),
    }
}

/// Only judges the manifest.
pub fn validate(request: &Request, files: &dyn Files) -> Report {
    match load(request, files) {
        Ok(loaded) => Report { text: String::new(), problems: loaded.warnings.into(), exit: 0 },
        Err(problems) => Report::refused(problems),
    }
}
