//! `longshore config` and `longshore validate`: what becomes of a Compose file.
//!
//! Owns: their options, and which answer goes where: manifests and JSON to standard output, problems for people to
//! standard error.

use std::{collections::BTreeMap, env};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use longshore_compose::{Diagnostics, Output, Request, Secrets, Severity, yaml::emit::emit};

use crate::{
    exit::Exit,
    input::{DiskAndStdin, STDIN},
    print,
};

const CONFIG_EXAMPLES: &str = "\
Examples:
  longshore config                                       compose.yaml of this directory
  longshore config -f compose.yaml -f compose.prod.yaml  the second laid over the first
  longshore config --profile debug -o json               services of a profile, too
  cat compose.yaml | longshore config -f -               from a pipe";

const VALIDATE_EXAMPLES: &str = "\
Examples:
  longshore validate                       compose.yaml of this directory
  longshore validate -f compose.yaml -o json

Exit code 0 means that the manifest is good, perhaps with warnings; 2 that it is not.";

/// Which manifest is meant.
#[derive(Debug, Default, Args)]
pub(crate) struct Manifest {
    /// A Compose file; several are laid over each other, `-` is standard input.
    ///
    /// Without any, `compose.yaml`, `compose.yml`, `docker-compose.yaml` or `docker-compose.yml` is taken with its
    /// `override` file and the overlay beside it.
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    files: Vec<String>,
    /// What Compose has no word for; without `-f`, `longshore.yaml` or `jaco.yaml` is found by itself.
    #[arg(long, value_name = "FILE")]
    overlay: Option<String>,
    /// Take services of this profile too; may be given again.
    #[arg(long = "profile", value_name = "PROFILE")]
    profiles: Vec<String>,
    /// Variables from this file instead of `.env`; may be given again.
    #[arg(long = "env-file", value_name = "FILE")]
    env_files: Vec<String>,
    /// Name of the deployment, whatever the files say.
    #[arg(short = 'p', long = "project-name", value_name = "NAME")]
    name: Option<String>,
    /// What relative paths are relative to, instead of the first file's directory.
    #[arg(long, value_name = "DIRECTORY")]
    project_directory: Option<String>,
}

impl Manifest {
    /// Whether any file was named.
    pub(crate) fn is_named(&self) -> bool {
        !self.files.is_empty()
    }

    pub(crate) fn request(self) -> anyhow::Result<Request> {
        let here = env::current_dir().context("the current directory is gone")?;
        let named = |file: String| if file == "-" { STDIN.to_owned() } else { file };
        Ok(Request {
            files: self.files.into_iter().map(named).collect(),
            overlay: self.overlay,
            working_directory: here.to_string_lossy().into_owned(),
            project_directory: self.project_directory,
            environment: environment(),
            env_files: self.env_files,
            profiles: self.profiles.into_iter().collect(),
            name: self.name,
            ..Request::default()
        })
    }
}

/// The variables of the caller. One that is no text cannot be part of a manifest.
fn environment() -> BTreeMap<String, String> {
    env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect()
}

/// Print the manifest as it is understood: files merged, variables replaced, every service with its hash.
///
/// What is printed is itself a Compose file and means the same. Problems go to standard error; exit code 2 means that
/// nothing comes of the manifest.
#[derive(Debug, Args)]
#[command(after_help = CONFIG_EXAMPLES)]
pub(crate) struct Config {
    #[command(flatten)]
    manifest: Manifest,
    /// How it is printed.
    #[arg(short, long, value_enum, default_value_t = Printed::Yaml)]
    output: Printed,
    /// Print the values of secrets too.
    #[arg(long)]
    show_secrets: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Printed {
    Yaml,
    Json,
}

/// Judge the manifest and say all that is wrong with it.
#[derive(Debug, Args)]
#[command(after_help = VALIDATE_EXAMPLES)]
pub(crate) struct Validate {
    #[command(flatten)]
    manifest: Manifest,
    /// How problems are said: for people on standard error, or as a list on standard output.
    #[arg(short, long, value_enum, default_value_t = Said::Text)]
    output: Said,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Said {
    Text,
    Json,
    Yaml,
}

pub(crate) fn config(options: Config) -> anyhow::Result<Exit> {
    let output = match options.output {
        Printed::Yaml => Output::Yaml,
        Printed::Json => Output::Json,
    };
    let secrets = if options.show_secrets { Secrets::Shown } else { Secrets::Hidden };
    let report = longshore_compose::config(&options.manifest.request()?, &DiskAndStdin::default(), output, secrets);
    print::print(&report.text)?;
    complain(&report.problems);
    Ok(exit_of(&report.problems))
}

pub(crate) fn validate(options: Validate) -> anyhow::Result<Exit> {
    let (problems, verdict) = match longshore_compose::load(&options.manifest.request()?, &DiskAndStdin::default()) {
        Ok(loaded) => {
            let services = counted(loaded.spec.services.len(), "service");
            (Diagnostics::from(loaded.warnings), format!("deployment `{}` is good: {services}\n", loaded.deployment))
        }
        Err(problems) => (problems, String::new()),
    };
    match options.output {
        Said::Json => print::print(&(problems.to_json() + "\n"))?,
        Said::Yaml => print::print(&emit(&serde_json::from_str(&problems.to_json())?))?,
        Said::Text => {
            print::print(&verdict)?;
            complain(&problems);
        }
    }
    Ok(exit_of(&problems))
}

/// Warnings do not fail.
fn exit_of(problems: &Diagnostics) -> Exit {
    if problems.has_errors() { Exit::BadInput } else { Exit::Success }
}

/// All problems, and how many there are.
pub(crate) fn complain(problems: &Diagnostics) {
    if problems.is_empty() {
        return;
    }
    let warnings = problems.iter().filter(|found| found.severity == Severity::Warning).count();
    let counts = [(problems.error_count(), "error"), (warnings, "warning")];
    let counts = counts.map(|(count, noun)| (count > 0).then(|| counted(count, noun)));
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    print::note(&format!("{problems}\n\n{}", counts.join(", ")));
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
