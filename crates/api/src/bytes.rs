//! Any bytes in JSON: base64 with padding.
//!
//! Owns: how they are written. Must not touch: what the bytes are. Invariant: what was written is read back as it was.

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// A text that is no base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not base64 with padding")]
pub struct NotBase64;

/// Bytes as text.
pub fn to_text(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes of a text.
pub fn of_text(text: &str) -> Result<Vec<u8>, NotBase64> {
    STANDARD.decode(text).map_err(|_| NotBase64)
}
