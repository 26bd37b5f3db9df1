//! Binary data in JSON: base64 with padding.
//!
//! Owns: both directions. Must not touch: what the bytes are. Invariant: decoding what was encoded gives the same bytes.

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// The text is not base64 with padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the text is not base64 with padding")]
pub struct NotBase64;

/// Bytes as base64 text.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes of a base64 text.
pub fn decode(text: &str) -> Result<Vec<u8>, NotBase64> {
    STANDARD.decode(text).map_err(|_| NotBase64)
}
