//! `longshore config` and `longshore validate`: how a Compose file is understood.
//!
//! Owns: their options. Invariant: manifests and JSON go to standard output, diagnostics for people to standard error.

use clap::{Args, ValueEnum};
use longshore_compose::{Diagnostics, Output, Secrets, yaml::emit::emit};

use crate::{
    exit::Exit,
    input::DiskAndStdin,
    manifest::{ManifestArgs, counted, print_diagnostics},
    output::{OutputFormat, print},
};

const CONFIG_EXAMPLES: &str = "\
Examples:
  longshore config                                       compose.yaml of this directory
  longshore config -f compose.yaml -f compose.prod.yaml  the second file overrides the first
  longshore config --profile debug -o json               with the services of a profile
  cat compose.yaml | longshore config -f -               from a pipe";

const VALIDATE_EXAMPLES: &str = "\
Examples:
  longshore validate                       compose.yaml of this directory
  longshore validate -f compose.yaml -o json

Exit code 0 means that the manifest is valid, possibly with warnings; 2 that it is not.";

/// Print the resolved manifest: files merged, variables replaced, every service with its hash.
///
/// The output is a Compose file with the same meaning. Diagnostics go to standard error; exit code 2 means that the
/// manifest is invalid.
#[derive(Debug, Args)]
#[command(after_help = CONFIG_EXAMPLES)]
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = ConfigFormat::Yaml)]
    output: ConfigFormat,
    /// Print the values of secrets too.
    #[arg(long)]
    show_secrets: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ConfigFormat {
    Yaml,
    Json,
}

/// Check the manifest and print every error and warning.
#[derive(Debug, Args)]
#[command(after_help = VALIDATE_EXAMPLES)]
pub(crate) struct ValidateArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// Output format; JSON and YAML list the diagnostics on standard output.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

pub(crate) fn config(args: ConfigArgs) -> anyhow::Result<Exit> {
    let output = match args.output {
        ConfigFormat::Yaml => Output::Yaml,
        ConfigFormat::Json => Output::Json,
    };
    let secrets = if args.show_secrets { Secrets::Shown } else { Secrets::Hidden };
    let report = longshore_compose::config(&args.manifest.request()?, &DiskAndStdin::default(), output, secrets);
    print::stdout(&report.text)?;
    print_diagnostics(&report.problems);
    Ok(exit_of(&report.problems))
}

pub(crate) fn validate(args: ValidateArgs) -> anyhow::Result<Exit> {
    let (diagnostics, verdict) = match longshore_compose::load(&args.manifest.request()?, &DiskAndStdin::default()) {
        Ok(loaded) => {
            let services = counted(loaded.spec.services.len(), "service");
            let verdict = format!("deployment `{}` is valid: {services}\n", loaded.deployment);
            (Diagnostics::from(loaded.warnings), verdict)
        }
        Err(diagnostics) => (diagnostics, String::new()),
    };
    match args.output {
        OutputFormat::Json => print::stdout(&(diagnostics.to_json() + "\n"))?,
        OutputFormat::Yaml => print::stdout(&emit(&serde_json::from_str(&diagnostics.to_json())?))?,
        OutputFormat::Text => {
            print::stdout(&verdict)?;
            print_diagnostics(&diagnostics);
        }
    }
    Ok(exit_of(&diagnostics))
}

/// Warnings do not fail.
fn exit_of(diagnostics: &Diagnostics) -> Exit {
    if diagnostics.has_errors() { Exit::BadInput } else { Exit::Success }
}
