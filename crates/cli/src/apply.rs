//! `longshore apply`: a manifest becomes a deployment.
//!
//! Owns: which files and variables leave this machine: those that resolving the manifest reads, and no others.
//! Invariant: what the daemon resolves is what was judged here.

use std::{cell::RefCell, collections::BTreeMap};

use clap::Args;
use longshore_api::{AppliedManifest, ApplyRequest, Changed, bytes};
use longshore_compose::{Files, Loaded, Request, files::ReadError, scope::Content};

use crate::{
    build,
    exit::Exit,
    input::DiskAndStdin,
    live::{Live, Side},
    manifest::{Manifest, complain},
    print,
    remote::{self, Scoped},
    wait::{self, Goal, Patience},
};

/// Apply a manifest: what is new is started, what changed is rolled, what left the manifest is stopped.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore apply -f compose.yaml\n  longshore apply -f compose.yaml --wait")]
pub(crate) struct Options {
    #[command(flatten)]
    manifest: Manifest,
    #[command(flatten)]
    scope: Scoped,
    #[command(flatten)]
    patience: Patience,
}

pub(crate) fn run(options: Options) -> anyhow::Result<Exit> {
    let Some(Judged { request, loaded }) = judge(options.manifest, options.scope.namespace())? else {
        return Ok(Exit::BadInput);
    };
    let connection = &options.scope.connection;
    remote::ask(connection, async |client| {
        if !loaded.builds.is_empty() && client.nodes().await.is_ok_and(|nodes| nodes.len() > 1) {
            for warning in build::to_be_pulled(&loaded) {
                print::note(&warning);
            }
        }
        let applied = client.apply(&request).await?;
        applied.warnings.iter().for_each(|warning| print::note(warning));
        let exit = match options.patience.limit() {
            Some(limit) => {
                let AppliedManifest { namespace, deployment, revision, .. } = applied.clone();
                let goal = Goal { namespace, deployment, revision };
                wait::settle(client, &goal, limit, &mut Live::new(Side::Err)).await?.told(&goal)
            }
            None => Exit::Success,
        };
        let word = match applied.changed {
            Changed::Yes => "applied",
            Changed::No => "unchanged",
        };
        remote::show(connection, &applied, |applied| {
            format!("{} {word}, revision {}\n", applied.deployment, applied.revision)
        })?;
        Ok(exit)
    })
}

/// A manifest that is good, as it is sent and as it is understood.
pub(crate) struct Judged {
    pub(crate) request: ApplyRequest,
    pub(crate) loaded: Loaded,
}

/// Judges a manifest here first: a typo should not need a daemon to be found. Nothing where it is bad, which was said.
pub(crate) fn judge(manifest: Manifest, namespace: &str) -> anyhow::Result<Option<Judged>> {
    let request = Request { namespace: Some(namespace.to_owned()), ..manifest.request()? };
    let files = Recorded::default();
    let loaded = match longshore_compose::load(&request, &files) {
        Ok(loaded) => loaded,
        Err(problems) => {
            complain(&problems);
            return Ok(None);
        }
    };
    let bytes_base64 = match bring_along(&loaded, &files) {
        Ok(bytes) => bytes,
        Err(missing) => {
            print::note(&missing);
            return Ok(None);
        }
    };
    let request = ApplyRequest { bytes_base64, ..to_send(request, files.read.into_inner()) };
    Ok(Some(Judged { request, loaded }))
}

/// Reads what secrets and configs hold that are files beside the manifest, so that it is sent along; those that are no
/// texts are the answer.
fn bring_along(loaded: &Loaded, files: &Recorded) -> Result<BTreeMap<String, String>, String> {
    let mut others = BTreeMap::new();
    for declared in loaded.secrets.values().chain(loaded.configs.values()) {
        let Content::File(path) = &declared.content else { continue };
        let read = match files.read(path) {
            // Smaller than a manifest may be, or it would have been refused for that.
            Err(ReadError::NotText { .. }) => std::fs::read(path).map_err(ReadError::from).map(Some),
            read => read.map(|_| None),
        };
        let bytes = read.map_err(|error| {
            let (place, hint) = (&declared.place, error.hint());
            format!("{place}: error: the file `{path}` of `{}` {error}\n\nhint: {hint}", declared.name)
        })?;
        others.extend(bytes.map(|bytes| (path.clone(), bytes::to_text(&bytes))));
    }
    Ok(others)
}

fn to_send(request: Request, texts: BTreeMap<String, String>) -> ApplyRequest {
    // Only variables some file names: the rest of the caller's environment is nobody's business.
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
    }
}

/// Files of this machine, and which of them were read.
#[derive(Debug, Default)]
struct Recorded {
    files: DiskAndStdin,
    read: RefCell<BTreeMap<String, String>>,
}

impl Files for Recorded {
    fn read(&self, path: &str) -> Result<String, ReadError> {
        let text = self.files.read(path)?;
        self.read.borrow_mut().insert(path.to_owned(), text.clone());
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_that_a_file_names_are_sent() {
        let environment = [("TAG", "1"), ("AWS_SECRET", "x"), ("COMPOSE_PROFILES", "a")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let texts = BTreeMap::from([("/c.yaml".to_owned(), "image: web:${TAG}".to_owned())]);
        let sent = to_send(Request { environment, ..Request::default() }, texts);
        assert_eq!(sent.environment.into_keys().collect::<Vec<_>>(), ["COMPOSE_PROFILES", "TAG"]);
    }
}
