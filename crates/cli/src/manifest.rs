//! The manifest of a command: the options that name it, parsing it here, and the request that sends it to a daemon.
//!
//! Owns: which files and variables leave this machine: those that parsing the manifest reads, and no others.
//! Invariant: the daemon parses the same text that was parsed here.

use std::{cell::RefCell, collections::BTreeMap, env};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use longshore_api::{ApplyRequest, ComposeVolumes, PullChoice, base64};
use longshore_compose::{Diagnostics, Files, Loaded, Request, Severity, declarations::Content, files::ReadError};

use crate::{
    input::{DiskAndStdin, STDIN},
    output::print,
};

/// Options that name a manifest.
#[derive(Debug, Default, Args)]
pub(crate) struct ManifestArgs {
    /// A Compose file, `-` for standard input; later files override earlier ones.
    ///
    /// Without any, `compose.yaml`, `compose.yml`, `docker-compose.yaml` or `docker-compose.yml` is used, with its
    /// `override` file and the overlay beside it.
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    files: Vec<String>,
    /// File with settings that Compose has no key for; without `-f`, `longshore.yaml` or `jaco.yaml` is used if it
    /// exists.
    #[arg(long, value_name = "FILE")]
    overlay: Option<String>,
    /// Include services of this profile; repeatable.
    #[arg(long = "profile", value_name = "PROFILE")]
    profiles: Vec<String>,
    /// Read variables from this file instead of `.env`; repeatable.
    #[arg(long = "env-file", value_name = "FILE")]
    env_files: Vec<String>,
    /// Name of the deployment; overrides the files.
    #[arg(short = 'p', long = "project-name", value_name = "NAME")]
    name: Option<String>,
    /// Base of relative paths, instead of the first file's directory.
    #[arg(long, value_name = "DIRECTORY")]
    project_directory: Option<String>,
}

impl ManifestArgs {
    pub(crate) fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// The name of the deployment that the manifest makes, as `up` finds it. Without a file, `--project-name` is enough.
    pub(crate) fn deployment(self, namespace: &str) -> anyhow::Result<String> {
        let given = self.name.clone();
        let request = Request { namespace: Some(namespace.to_owned()), ..self.request()? };
        match (longshore_compose::load(&request, &DiskAndStdin::default()), given) {
            (Ok(loaded), _) => Ok(loaded.deployment.to_string()),
            (Err(_), Some(name)) => Ok(name),
            (Err(problems), None) => {
                anyhow::bail!("the deployment is not known, as its manifest cannot be read\n\n{problems}")
            }
        }
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

/// Environment variables of the caller. One that is not UTF-8 cannot be part of a manifest.
fn environment() -> BTreeMap<String, String> {
    env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect()
}

/// A valid manifest, as it is sent and as it was parsed.
pub(crate) struct ParsedManifest {
    pub(crate) request: ApplyRequest,
    pub(crate) loaded: Loaded,
}

/// Parses a manifest before any daemon is asked, so that a typo is found without one. Returns `None` after printing the
/// diagnostics.
pub(crate) fn parse(manifest: ManifestArgs, namespace: &str) -> anyhow::Result<Option<ParsedManifest>> {
    let request = Request { namespace: Some(namespace.to_owned()), ..manifest.request()? };
    let files = RecordingFiles::default();
    let loaded = match longshore_compose::load(&request, &files) {
        Ok(loaded) => loaded,
        Err(problems) => {
            print_diagnostics(&problems);
            return Ok(None);
        }
    };
    let bytes_base64 = match read_file_contents(&loaded, &files) {
        Ok(bytes) => bytes,
        Err(missing) => {
            print::stderr(&missing);
            return Ok(None);
        }
    };
    let request = ApplyRequest { bytes_base64, ..apply_request(request, files.read.into_inner()) };
    Ok(Some(ParsedManifest { request, loaded }))
}

/// The name of the deployment that the Compose file of this folder makes; `None` if there is none that can be read.
pub(crate) fn folder_deployment(namespace: &str) -> Option<String> {
    ManifestArgs::default().deployment(namespace).ok()
}

/// Reads the files of secrets and configs, so that they are sent along. Returns those that are not text, in base64.
fn read_file_contents(loaded: &Loaded, files: &RecordingFiles) -> Result<BTreeMap<String, String>, String> {
    let mut others = BTreeMap::new();
    for declared in loaded.secrets.values().chain(loaded.configs.values()) {
        let Content::File(path) = &declared.content else { continue };
        let read = match files.read(path) {
            // It is below the size limit, or that would have been the error.
            Err(ReadError::NotText { .. }) => std::fs::read(path).map_err(ReadError::from).map(Some),
            read => read.map(|_| None),
        };
        let bytes = read.map_err(|error| {
            let (place, hint) = (&declared.location, error.hint());
            format!("{place}: error: the file `{path}` of `{}` {error}\n\nhint: {hint}", declared.name)
        })?;
        others.extend(bytes.map(|bytes| (path.clone(), base64::encode(&bytes))));
    }
    Ok(others)
}

fn apply_request(request: Request, texts: BTreeMap<String, String>) -> ApplyRequest {
    // Only variables that a file names: the rest of the caller's environment may hold secrets.
    let named = |name: &String| name.starts_with("COMPOSE_") || texts.values().any(|text| text.contains(name.as_str()));
    ApplyRequest {
        environment: request.environment.into_iter().filter(|(name, _)| named(name)).collect(),
        files: request.files,
        texts,
        bytes_base64: BTreeMap::new(),
        overlay: request.overlay,
        working_directory: request.working_directory,
        project_directory: request.project_directory,
        env_files: request.env_files,
        profiles: request.profiles,
        name: request.name,
        namespace: request.namespace,
        rerun_ended: false,
        compose_volumes: None,
        pull: None,
    }
}

/// Options for volumes that Compose made, and for the source of images.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct EngineArgs {
    /// Use the data of volumes that Docker Compose made for this project.
    #[arg(long, conflicts_with = "fresh_volumes")]
    adopt_volumes: bool,
    /// Leave volumes that Docker Compose made for this project alone, and start with empty ones.
    #[arg(long)]
    fresh_volumes: bool,
    /// Whether registries are asked for newer images, where the manifest has no `pull_policy`.
    #[arg(long, value_name = "POLICY")]
    pull: Option<PullArg>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PullArg {
    Always,
    Missing,
    Never,
}

impl EngineArgs {
    /// Adds the options to a request; `default` is where images come from unless said.
    pub(crate) fn add_to(self, request: &mut ApplyRequest, default: Option<PullChoice>) {
        request.compose_volumes = match (self.adopt_volumes, self.fresh_volumes) {
            (true, _) => Some(ComposeVolumes::Adopt),
            (false, true) => Some(ComposeVolumes::Fresh),
            (false, false) => None,
        };
        let pull = self.pull.map(|pull| match pull {
            PullArg::Always => PullChoice::Always,
            PullArg::Missing => PullChoice::Missing,
            PullArg::Never => PullChoice::Never,
        });
        request.pull = pull.or(default);
    }
}

/// Reads files of this machine and records which.
#[derive(Debug, Default)]
struct RecordingFiles {
    files: DiskAndStdin,
    read: RefCell<BTreeMap<String, String>>,
}

impl Files for RecordingFiles {
    fn read(&self, path: &str) -> Result<String, ReadError> {
        let text = self.files.read(path)?;
        self.read.borrow_mut().insert(path.to_owned(), text.clone());
        Ok(text)
    }
}

/// Prints all diagnostics and their counts to standard error.
pub(crate) fn print_diagnostics(diagnostics: &Diagnostics) {
    if diagnostics.is_empty() {
        return;
    }
    let warnings = diagnostics.iter().filter(|found| found.severity == Severity::Warning).count();
    let counts = [(diagnostics.error_count(), "error"), (warnings, "warning")];
    let counts = counts.map(|(count, noun)| (count > 0).then(|| counted(count, noun)));
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    print::stderr(&format!("{diagnostics}\n\n{}", counts.join(", ")));
}

/// `1 service`, `2 services`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_that_a_file_names_are_sent() {
        let environment = [("TAG", "1"), ("AWS_SECRET", "x"), ("COMPOSE_PROFILES", "a")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let texts = BTreeMap::from([("/c.yaml".to_owned(), "image: web:${TAG}".to_owned())]);
        let sent = apply_request(Request { environment, ..Request::default() }, texts);
        assert_eq!(sent.environment.into_keys().collect::<Vec<_>>(), ["COMPOSE_PROFILES", "TAG"]);
    }
}
