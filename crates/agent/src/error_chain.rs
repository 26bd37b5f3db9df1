//! An error as one line of text, with all its causes.
//!
//! Owns: the format `error: cause: cause`.

use std::error::Error;

pub(crate) fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
