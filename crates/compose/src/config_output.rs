//! A resolved manifest as text.
//!
//! Owns: its output formats, and the problems reported with it. Must not touch: the terminal and exit codes.

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

/// A resolved manifest, or why there is none.
#[derive(Clone, Debug)]
pub struct Report {
    /// The resolved manifest; empty when the files were refused.
    pub text: String,
    /// Errors, or the warnings of a valid manifest.
    pub problems: Diagnostics,
}

/// Prints a loaded deployment as a resolved manifest.
pub fn print(loaded: &Loaded, output: Output, secrets: Secrets, files: &dyn Files) -> String {
    let value = render::render(loaded, secrets, files);
    match output {
        Output::Yaml => emit::emit(&value),
        Output::Json => serde_json::to_string_pretty(&value).unwrap_or_default() + "\n",
    }
}

/// Loads and prints the resolved manifest of a request, each service with its hash.
pub fn config(request: &Request, files: &dyn Files, output: Output, secrets: Secrets) -> Report {
    match load(request, files) {
        Ok(loaded) => Report { text: print(&loaded, output, secrets, files), problems: loaded.warnings.into() },
        Err(problems) => Report { text: String::new(), problems },
    }
}
