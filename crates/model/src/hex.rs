//! Bytes as lower-case hexadecimal digits.
//!
//! Owns: both directions. Must not touch: what the bytes are. Invariant: decoding what was encoded gives the same bytes.

use std::fmt::Write as _;

/// Two digits per byte.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of a text with two digits per byte; `None` for any other text.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_the_round_trip_and_other_text_is_rejected() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&bytes)), Some(bytes));
        assert_eq!(decode(""), Some(Vec::new()));
        for wrong in ["a", "zz", "+1", "ü", "0x"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
