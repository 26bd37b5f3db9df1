//! `longshore apply`: a manifest becomes a deployment.
//!
//! Owns: which files and variables leave this machine: those that resolving the manifest reads, and no others.
//! Invariant: what the daemon resolves is what was judged here.

use std::{cell::RefCell, collections::BTreeMap};

use clap::Args;
use longshore_api::{ApplyRequest, Changed};
use longshore_compose::{Files, Request, files::ReadError};

use crate::{
    exit::Exit,
    input::DiskAndStdin,
    manifest::{Manifest, complain},
    print,
    remote::{self, Connection},
};

/// Apply a manifest: what is new is started, what changed is rolled, what left the manifest is stopped.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    manifest: Manifest,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn run(options: Options) -> anyhow::Result<Exit> {
    let request = options.manifest.request()?;
    let files = Recorded::default();
    // Judged here first: a typo should not need a daemon to be found.
    if let Err(problems) = longshore_compose::load(&request, &files) {
        complain(&problems);
        return Ok(Exit::BadInput);
    }
    let manifest = to_send(request, files.read.into_inner());
    remote::ask(&options.connection, async |client| {
        let applied = client.apply(&manifest).await?;
        applied.warnings.iter().for_each(|warning| print::note(warning));
        let word = match applied.changed {
            Changed::Yes => "applied",
            Changed::No => "unchanged",
        };
        remote::show(&options.connection, &applied, |applied| {
            format!("{} {word}, revision {}\n", applied.deployment, applied.revision)
        })
    })
}

fn to_send(request: Request, texts: BTreeMap<String, String>) -> ApplyRequest {
    // Only variables some file names: the rest of the caller's environment is nobody's business.
    let named = |name: &String| name.starts_with("COMPOSE_") || texts.values().any(|text| text.contains(name.as_str()));
    ApplyRequest {
        environment: request.environment.into_iter().filter(|(name, _)| named(name)).collect(),
        files: request.files,
        texts,
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
