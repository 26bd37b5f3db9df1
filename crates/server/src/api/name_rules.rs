//! Rules for names that clients choose.
//!
//! Owns: what keeps a name from being mistaken for something else where it is printed, logged or put in a path.

/// Longest name in bytes.
pub(crate) const MAX_BYTES: usize = 128;

/// Whether a name is trimmed plain text without `/`, within the limit.
pub(crate) fn is_usable(name: &str) -> bool {
    let plain = |letter: char| !letter.is_control() && letter != '/' && letter != '\u{2028}' && letter != '\u{2029}';
    !name.is_empty() && name.len() <= MAX_BYTES && name.trim() == name && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_plain_text() {
        for usable in ["n1", "shop_floor 7", "größe", "[::1]:7474"] {
            assert!(is_usable(usable), "{usable}");
        }
        let long = "n".repeat(MAX_BYTES + 1);
        for not in ["", " n1", "a\nb", "a/b", "\u{1b}[2J", "a\0", long.as_str()] {
            assert!(!is_usable(not), "{not:?}");
        }
    }
}
