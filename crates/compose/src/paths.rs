//! Paths as texts, without access to a file system.
//!
//! Owns: joining and normalising. Must not touch: the disk.

/// `path` relative to `directory`, normalised without `.` and `..`.
pub(crate) fn join(directory: &str, path: &str) -> String {
    if path.starts_with('/') || directory.is_empty() {
        normalise(path)
    } else {
        normalise(&format!("{directory}/{path}"))
    }
}

/// The directory a file is in; empty for a bare name.
pub(crate) fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((directory, _)) => directory,
        None => "",
    }
}

/// The last segment of a path.
pub(crate) fn last(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

fn normalise(path: &str) -> String {
    let absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if absolute => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (absolute, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

#[cfg(test)]
mod tests {
    use super::{join, last, parent};

    #[test]
    fn paths_are_joined_and_normalised() {
        assert_eq!(join("/srv/app", "./data"), "/srv/app/data");
        assert_eq!(join("/srv/app", "../x/./y"), "/srv/x/y");
        assert_eq!(join("/srv/app", "/etc//hosts"), "/etc/hosts");
        assert_eq!(join("/", "../.."), "/");
        assert_eq!(join("a", "../../b"), "../b");
        assert_eq!(join(".", "."), ".");
        assert_eq!(join("", "x/../y"), "y");
    }

    #[test]
    fn parents_and_last_segments_are_found() {
        assert_eq!((parent("a/b/c.yaml"), last("a/b/")), ("a/b", "b"));
        assert_eq!((parent("c.yaml"), parent("/c.yaml")), ("", "/"));
    }
}
