//! The files of the repository, as text, by path from its root.
//!
//! Owns: which files are checked. Checks read nothing else, so a test can pass a tree of a few lines.
//! Invariant: paths are sorted and use `/`; files that are not text are listed with no content.

use std::{collections::BTreeMap, path::Path, process::Command};

use anyhow::{Context, ensure};

/// Every file that is tracked, or would be by `git add`.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the working tree this program was built from.
    pub(crate) fn of_this_repository() -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask is in the repository")?;
        // New files are checked before they are added: a finding after the commit would come too late. `safe.directory`
        // allows a folder of another user, which is common on build machines.
        let listing = Command::new("git")
            .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("could not run `git ls-files`")?;
        ensure!(listing.status.success(), "`git ls-files` failed: {}", String::from_utf8_lossy(&listing.stderr));
        let mut files = BTreeMap::new();
        for path in String::from_utf8_lossy(&listing.stdout).split('\0').filter(|path| !path.is_empty()) {
            // A file deleted but not yet committed is still listed.
            if let Ok(bytes) = std::fs::read(root.join(path)) {
                files.insert(path.to_owned(), String::from_utf8(bytes).unwrap_or_default());
            }
        }
        Ok(Self { files })
    }

    /// A tree of these files, for tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect() }
    }

    /// Every file with its text.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Every Rust file with its text.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(|(path, _)| has_extension(path, "rs"))
    }

    /// Every Markdown file with its text.
    pub(crate) fn markdown(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(|(path, _)| has_extension(path, "md"))
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether a file or folder of that path exists.
    pub(crate) fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty() || self.files.contains_key(path) || self.files.keys().any(|file| file.starts_with(&folder))
    }
}

/// Whether the path ends in `.<extension>`.
pub(crate) fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}
