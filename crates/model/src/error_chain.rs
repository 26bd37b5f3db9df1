//! An error as one line of text.
//!
//! Owns: how causes are joined. Invariant: every cause is printed once, outermost first.

/// The message of an error and of all its causes, joined by `: `.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
