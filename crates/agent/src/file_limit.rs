//! The limit of open files: a daemon relays connections and needs more than a shell; what it starts does not.
//!
//! Owns: raising the limit of this process, and remembering what it was, so that plain processes get that.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit before it was raised.
static ORIGINAL: OnceLock<u64> = OnceLock::new();

/// Raises the soft limit of this process to the hard one. Programs that use `select` cannot have more than 1024, which is
/// why the soft limit is low; this process does not use it.
pub fn raise() {
    let Rlimit { current: Some(current), maximum } = getrlimit(Resource::Nofile) else { return };
    if setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok() {
        let _ = ORIGINAL.set(current);
    }
}

/// The soft limit for what this process starts; `None` if it was not raised.
pub(crate) fn original() -> Option<u64> {
    ORIGINAL.get().copied()
}

/// Lowers the soft limit of this process, which becomes another program.
pub(crate) fn lower_to(soft: u64) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // A process that may not lower its own limit keeps the higher one.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum });
}
