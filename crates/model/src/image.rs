//! The identity of an image: what a reference such as `web:1` was resolved to.
//!
//! Owns: its form, and the parts of an image reference.
//! Must not touch: engines and registries; the server resolves references when a manifest is applied.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// What an image reference was resolved to, in a form that an engine accepts as an image.
///
/// Either `repository@sha256:…`, which every node can pull, or `sha256:…`, the id of an image that comes from no
/// registry and exists only where it was built or loaded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResolvedImage(pub Arc<str>);

impl ResolvedImage {
    /// Whether a registry has it, so that any node can pull it.
    pub fn is_pullable(&self) -> bool {
        self.0.contains('@')
    }

    /// Whether it is an image of this reference's repository; an image id says nothing about that.
    pub fn is_of(&self, reference: &str) -> bool {
        self.0.split_once('@').is_none_or(|(repository, _)| familiar(repository) == familiar(repository_of(reference)))
    }
}

impl fmt::Display for ResolvedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An image reference without tag and digest.
pub fn repository_of(reference: &str) -> &str {
    let untagged = reference.split('@').next().unwrap_or(reference);
    let name_at = untagged.rfind('/').map_or(0, |slash| slash + 1);
    untagged[name_at..].find(':').map_or(untagged, |colon| &untagged[..name_at + colon])
}

/// A repository as engines print it: without the default registry and its `library/`.
pub fn familiar(repository: &str) -> &str {
    let name = repository.strip_prefix("docker.io/").unwrap_or(repository);
    name.strip_prefix("library/").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_the_reference_without_tag_and_digest() {
        assert_eq!(repository_of("127.0.0.1:5000/shop/web:1"), "127.0.0.1:5000/shop/web");
        assert_eq!(repository_of("127.0.0.1:5000/web"), "127.0.0.1:5000/web");
        assert_eq!(repository_of("nginx:1@sha256:00"), "nginx");
        assert_eq!(familiar(repository_of("docker.io/library/nginx:1")), "nginx");
    }

    #[test]
    fn a_digest_belongs_to_one_repository_and_an_image_id_to_any() {
        let pulled = ResolvedImage("nginx@sha256:00".into());
        assert!(pulled.is_pullable() && pulled.is_of("docker.io/library/nginx:2") && !pulled.is_of("web"));
        let built = ResolvedImage("sha256:00".into());
        assert!(!built.is_pullable() && built.is_of("web"));
    }
}
